"""Tests of the other uses of the regret."""
