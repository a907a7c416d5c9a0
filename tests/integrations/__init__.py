"""Tests of pnml.integrations."""
