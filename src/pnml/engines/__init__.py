"""Fit and score whole files: in this process, or on a cluster with Ray."""
