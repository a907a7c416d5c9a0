"""What else a regret is good for: each use in a module of its own, for any score that grows with distrust.

``selective`` (refuse the least trustworthy), ``calibration_error`` (are the probabilities right?), ``acquisition``
(which samples to label next) and ``adversarial`` (images made to mislead; needs PyTorch).

>>> from pnml.uses.acquisition import acquire
>>> acquire([0.2, 0.9, 0.5], 2)
array([1, 2])
"""
