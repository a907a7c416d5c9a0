"""The commands of the benchmark, one per file."""

from __future__ import annotations

import pnml.cli as pnml_cli  # noqa: F401 - makes the app, which takes the commands from here: it has to come first
