"""Draw the paper's figures at full size from kept scores: ``python -m studies.paper.figures``.

``studies/paper/run.py`` keeps the scores of every sample in results/scores. Pictures go to docs/images, the counts of
the Gram figure to results/. Where LSUN is in the paper's figure, another set stands in: LSUN is not available.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIGURES = {
    "histograms": (
        "paper/densenet-bc-100__cifar10__svhn__baseline",
        "paper/densenet-bc-100__cifar10__tinyimagenet_crop__baseline",
    ),
    "spectrum": (
        "paper/densenet-bc-100__cifar10__svhn__baseline",
        "paper/densenet-bc-100__cifar100__svhn__baseline",
        "paper/densenet-bc-100__svhn__cifar10__baseline",
        "retrained/resnet-34__cifar10__svhn__baseline",
        "retrained/resnet-34__cifar100__svhn__baseline",
        "retrained/resnet-34__svhn__cifar10__baseline",
    ),
    "gram-vs-pnml": ("paper/densenet-bc-100__cifar100__tinyimagenet_crop__gram",),
    "tpr-tnr": (
        "retrained-oracle/resnet-34__cifar100__isun__odin",
        "retrained-oracle/resnet-34__cifar100__tinyimagenet_resize_nearest__odin",
        "paper-oracle/densenet-bc-100__cifar10__isun__odin",
        "paper-oracle/densenet-bc-100__cifar10__tinyimagenet_resize_nearest__odin",
    ),
}
"""The files of scores that each figure is drawn from."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, default=ROOT / "results" / "scores")
    parser.add_argument("--only", action="append", choices=list(FIGURES), help="one figure; may be repeated")
    args = parser.parse_args()
    for name in args.only or FIGURES:
        files = [args.scores / f"{file}.safetensors" for file in FIGURES[name]]
        if absent := [str(file) for file in files if not file.exists()]:
            print(f"{name}: without {', '.join(absent)}")
        files = [file for file in files if file.exists()]
        if not files:
            continue
        with tempfile.TemporaryDirectory() as folder:
            words = [word for file in files for word in ("--scores", str(file))]
            command = [sys.executable, "-m", "pnml", "figures", name, *words, "--out", folder]
            subprocess.run(command, check=True)  # noqa: S603 - our own program
            shutil.copy(Path(folder) / f"{name}.png", ROOT / "docs" / "images")
            for counts in Path(folder).glob("*.json"):
                shutil.copy(counts, ROOT / "results")


if __name__ == "__main__":
    main()
