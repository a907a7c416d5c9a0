"""Tests of the guard around PyTorch classifiers."""
