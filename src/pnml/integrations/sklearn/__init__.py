"""scikit-learn estimators: a classifier with a regret for every prediction, and an outlier detector.

Both wrap a classifier of scikit-learn that ends in a linear layer: a linear model, an ``MLPClassifier``, or a pipeline
that ends in one of these. The features of a linear model are used as embeddings without scaling
(``embedding_scale="natural"``), its coefficients are the last layer, and an intercept is the weight of an additional
constant feature 1, so the leverage depends neither on the origin nor on the units of the features.
"""

from pnml.integrations.sklearn.classifier import PNMLClassifier
from pnml.integrations.sklearn.outliers import PNMLOutlierDetector

__all__ = ["PNMLClassifier", "PNMLOutlierDetector"]
