"""The lines that an error prints, typed as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

import pnml

if TYPE_CHECKING:
    from torch import nn


def by_lines_of(error: Exception, model: nn.Module) -> pnml.Guard:
    """Return the guard that the last of the indented lines of an error makes of a model."""
    names: dict[str, Any] = {"model": model, "pnml": pnml, "torch": torch}
    *lines, last = [line.strip() for line in str(error).splitlines() if line.startswith("  ")]
    exec("\n".join(lines), names)  # noqa: S102
    guard: pnml.Guard = eval(last, names)  # noqa: S307
    return guard
