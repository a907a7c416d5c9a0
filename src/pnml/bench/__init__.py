"""The benchmark of the paper: protocol, runner, metrics, tables and figures."""
