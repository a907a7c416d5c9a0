"""A Ray to work on: the one already connected, the cluster at RAY_ADDRESS, or one of this machine for the while."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pnml.backend.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def cluster(cpus: int | None = None) -> Iterator[Any]:
    """Give the module ``ray``, connected; on leaving, stop or leave what was started or joined here, nothing else.

    Args:
        cpus: how many cores a Ray of this machine may use; all when None.
    """
    ray = require("ray", extra="ray", what="the engine ray")
    require("ray.data", extra="ray", what="the engine ray")
    elsewhere = "the Ray that is connected" if ray.is_initialized() else os.environ.get("RAY_ADDRESS")
    if elsewhere and cpus is not None:
        raise ValueError(f"{cpus} cores were asked for, but {elsewhere} brings its own: leave the number of cores out")
    with _quiet():
        if ray.is_initialized():
            yield ray
            return
        silent: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if elsewhere:
            ray.init(**silent)
        else:
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **silent)
        try:
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray Data's remarks on what it starts and ends off the terminal."""
    logger = logging.getLogger("ray.data")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
