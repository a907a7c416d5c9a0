"""scikit-learn estimators: a classifier with a regret for every prediction, and an outlier detector.

Both wrap a classifier of scikit-learn that ends in a linear layer: a linear model, an ``MLPClassifier``, or a pipeline
that ends in one of these. What enters it is watched as its hidden layers are, every column in standard deviations.
"""

from pnml.integrations.sklearn.classifier import PNMLClassifier
from pnml.integrations.sklearn.outliers import PNMLOutlierDetector

__all__ = ["PNMLClassifier", "PNMLOutlierDetector"]
