"""Tests of pnml.uses."""
