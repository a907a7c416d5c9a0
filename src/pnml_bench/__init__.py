"""The benchmark of the paper: protocol, runner, metrics, tables and figures; its commands join those of ``pnml``."""
