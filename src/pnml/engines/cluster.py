"""Connect to Ray: to a running connection, to the cluster at RAY_ADDRESS, or to a new one on this machine."""

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
    """Yield the module ``ray``, connected; on exit, disconnect from, or stop, only what was joined or started here.

    A new Ray on this machine may use ``cpus`` cores; all when None.
    """
    ray = require("ray", extra="ray", what="the engine ray")
    require("ray.data", extra="ray", what="the engine ray")
    address = "the connected Ray" if ray.is_initialized() else os.environ.get("RAY_ADDRESS")
    if address and cpus is not None:
        raise ValueError(f"expected no number of cores, which {address} determines itself, got {cpus}: leave it out")
    with _quiet():
        if ray.is_initialized():
            yield ray
            return
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address:
            ray.init(**quiet)
        else:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody who runs pnml agreed to send any
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
        try:
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the progress messages of Ray Data."""
    logger = logging.getLogger("ray.data")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
