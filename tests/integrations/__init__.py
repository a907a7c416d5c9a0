"""Tests of the adapters to other packages."""
