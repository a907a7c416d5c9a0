"""``python -m pnml``: the command line where the ``pnml`` script is not on the path."""

from __future__ import annotations

from pnml.cli import app

app(prog_name="pnml")
