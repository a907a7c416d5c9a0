"""Adapters to other packages, one module each.

``sklearn.PNMLClassifier`` and ``sklearn.PNMLOutlierDetector`` are scikit-learn estimators, ``pytorch_ood.PNML`` is a
detector of pytorch-ood, and ``openood.PNMLPostprocessor`` is a postprocessor for the evaluator of OpenOOD.
"""
