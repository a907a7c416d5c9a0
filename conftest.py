"""For all tests: one thread per worker, no usage statistics, no time limits, and an importable torchvision."""

from __future__ import annotations

import os
from contextlib import suppress

if "PYTEST_XDIST_WORKER" in os.environ:  # before NumPy and PyTorch are imported: they read these once
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # its threads outlive the tests of Ray, and disturb others

from hypothesis import HealthCheck, settings

from pnml.integrations._import import import_pytorch_ood

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

with suppress(ImportError):  # pytorch-ood may bring a torchvision without its compiled operators
    import_pytorch_ood("the tests")
