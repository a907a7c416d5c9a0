"""Tests of pnml.bench.methods."""
