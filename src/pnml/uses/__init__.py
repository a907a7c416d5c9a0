"""Further uses of the regret, or of any score that is larger for less trustworthy predictions.

``selective`` (answer only trustworthy samples), ``calibration_error`` (compare probabilities with frequencies),
``acquisition`` (select samples to label next) and ``adversarial`` (attacks on images; needs PyTorch).

>>> from pnml.uses.acquisition import acquire
>>> acquire([0.2, 0.9, 0.5], 2)
array([1, 2])
"""
