"""What a benchmark runs with: versions, hardware and the commit of the code."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pnml._version import __version__

if TYPE_CHECKING:
    import torch

_CPUINFO = Path("/proc/cpuinfo")
_SOURCE = Path(__file__).parents[1]
_OBJECT = re.compile("[0-9a-f]{40}")


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


def git_state(source: Path = _SOURCE) -> tuple[str | None, bool | None]:
    """Return the commit of the repository of the packages, and whether their files differ from that commit.

    On another machine, where no repository tracks them or one that is of another commit, the environment
    variable PNML_COMMIT may say both: ``PNML_COMMIT="$(git rev-parse HEAD HEAD:src)"``, the commit and the tree of the
    sources, with which the files are compared. Where neither says it, both are None.
    """
    stated = os.environ.get("PNML_COMMIT", "")
    if stated:
        return _stated_state(stated, source)
    if _git(source, "ls-files", "--error-unmatch", "pnml/_version.py") is None:
        return None, None
    commit, changes = _git(source, "rev-parse", "HEAD"), _git(source, "status", "--porcelain", "--", ".")
    return commit, None if changes is None else bool(changes)


def _stated_state(stated: str, source: Path) -> tuple[str, bool]:
    objects = stated.split()
    if len(objects) != 2 or not all(map(_OBJECT.fullmatch, objects)):
        raise ValueError(
            f"PNML_COMMIT is {stated!r}, expected a commit and the tree of the sources: set it with "
            'export PNML_COMMIT="$(git rev-parse HEAD HEAD:src)"'
        )
    commit, tree = objects
    return commit, tree_id(source) != tree


def tree_id(folder: Path) -> str:
    """Return the identifier that git gives to a folder with these files, except compiled ones.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as empty:
    ...     tree_id(Path(empty))
    '4b825dc642cb6eb9a060e54bf8d69288fbee4904'
    """
    return _object("tree", _tree(folder)).hex()


def _tree(folder: Path) -> bytes:
    entries = []
    for path in folder.iterdir():
        if path.is_dir() and path.name != "__pycache__":
            if inner := _tree(path):  # git knows no empty folders
                entries.append((f"{path.name}/", b"40000", _object("tree", inner)))
        elif path.is_file():
            mode = b"100755" if os.access(path, os.X_OK) else b"100644"
            entries.append((path.name, mode, _object("blob", path.read_bytes())))
    lines = [mode + b" " + name.rstrip("/").encode() + b"\0" + digest for name, mode, digest in sorted(entries)]
    return b"".join(lines)


def _object(kind: str, content: bytes) -> bytes:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).digest()


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


def choose_device(name: str) -> torch.device:
    """Return the device of a name, as PyTorch names it; "auto" takes a CUDA device where there is one.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"PyTorch knows no device {name!r}: give auto, cpu, cuda or cuda:0") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"there is no CUDA device for {name!r} here: give --device cpu")
    return device
