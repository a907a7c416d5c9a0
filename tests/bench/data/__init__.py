"""Tests of the image sets."""
