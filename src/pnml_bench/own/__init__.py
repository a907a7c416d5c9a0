"""The benchmark on a network, sets and methods of one's own; see :mod:`pnml_bench.own.benchmark`."""
