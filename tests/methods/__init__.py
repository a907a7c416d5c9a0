"""Tests of the methods."""
