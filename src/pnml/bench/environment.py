"""What a benchmark runs with: versions, hardware and the commit of the code."""

from __future__ import annotations

import platform
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from pnml._version import __version__

_CPUINFO = Path("/proc/cpuinfo")
_PACKAGE = Path(__file__).parents[1]


def environment() -> dict[str, str]:
    """Return the versions and hardware of this process, without host names and paths.

    Python, pnml, NumPy, the platform and the CPU; PyTorch and the GPU where available.

    >>> environment()["numpy"] == np.__version__
    True
    """
    found = {
        "python": platform.python_version(),
        "pnml": __version__,
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_name(),
    }
    if find_spec("torch") is not None:
        import torch

        found["torch"] = str(torch.__version__)
        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name()
    return found


def git_state(package: Path = _PACKAGE) -> tuple[str | None, bool | None]:
    """Return the commit of the package's repository, and whether the package's files differ from that commit.

    Both are None for an installed package, which no repository tracks.
    """
    if _git(package, "ls-files", "--error-unmatch", "_version.py") is None:
        return None, None
    commit, changes = _git(package, "rev-parse", "HEAD"), _git(package, "status", "--porcelain", "--", ".")
    return commit, None if changes is None else bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command, or None where git is missing or the command fails."""
    git = shutil.which("git")
    if git is None:
        return None
    done = subprocess.run([git, *arguments], cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_name() -> str:
    """Return the model name of the processor, or its architecture where the system does not name it."""
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
