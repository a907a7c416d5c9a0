"""Tests of pnml_bench.methods."""
