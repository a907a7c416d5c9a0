"""Run the tests as other processors would round: instruction sets, BLAS kernels and threads of six settings.

    python -m studies.checks.cpus [paths of tests ...]

The exit status is 1 if a test fails in any setting. A setting whose instructions this processor lacks is left out.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

SETTINGS = [
    ("default", "Haswell", 1),
    ("default", "Zen", 2),
    ("avx2", "Zen", 1),
    ("avx2", "Haswell", 2),
    ("avx512", "SkylakeX", 1),
    ("avx512", "SkylakeX", 2),
]
COUNTS = ("passed", "failed", "error", "skipped")

ABOVE = {"default": "X86_V3 X86_V4 AVX", "avx2": "X86_V4 AVX512", "avx512": "-"}  # what NumPy must not use
ONEDNN = {"default": "SSE41", "avx2": "AVX2", "avx512": "AVX512_CORE"}
XLA = {"default": "AVX2", "avx2": "AVX2", "avx512": "AVX512"}  # it needs AVX2 for float16
MKL = {"default": "COMPATIBLE", "avx2": "AVX2", "avx512": "AUTO"}


def environment(instructions: str, kernels: str, threads: int) -> dict[str, str]:
    """Return the variables that hold PyTorch (ATen, MKL, oneDNN), NumPy (its loops, OpenBLAS) and JAX to a setting."""
    above = tuple(ABOVE[instructions].split())
    disabled = [name for name in __cpu_dispatch__ if __cpu_features__[name] and name.startswith(above)]
    counts = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    return {
        **os.environ,
        **counts,
        "ATEN_CPU_CAPABILITY": instructions,
        "OPENBLAS_CORETYPE": kernels,
        "MKL_CBWR": MKL[instructions],
        "ONEDNN_MAX_CPU_ISA": ONEDNN[instructions],
        "XLA_FLAGS": f"--xla_cpu_max_isa={XLA[instructions]}",
        "NPY_DISABLE_CPU_FEATURES": " ".join(disabled),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="tests to run; all when none are named")
    paths = parser.parse_args().paths
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    failures: dict[str, list[str]] = {}
    print(f"{'instructions':<14}{'BLAS kernels':<14}{'threads':>7}", *(f"{name:>9}" for name in COUNTS), flush=True)
    for instructions, kernels, threads in SETTINGS:
        row = f"{instructions:<14}{kernels:<14}{threads:>7}"
        if instructions != "default" and instructions.replace("512", "512f") not in flags:
            print(row, "not on this processor")
            continue
        workers = max(1, (os.cpu_count() or 1) // threads)
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-p", "no:cacheprovider", *paths]
        done = subprocess.run(  # noqa: S603
            command, env=environment(instructions, kernels, threads), capture_output=True, text=True, check=False
        )
        summary = done.stdout.rstrip().rpartition("\n")[2]
        counts = [int(found[1]) if (found := re.search(rf"(\d+) {name}", summary)) else 0 for name in COUNTS]
        print(row, *(f"{count:>9}" for count in counts), flush=True)
        if done.returncode:
            failures[row] = re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE) or [
                done.stdout + done.stderr
            ]
    for row, lines in failures.items():
        print(f"\n{row}", *lines, sep="\n  ")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
