"""The picture of the README: confidence and regret of the demo's network on known and on unknown images.

Everything is part of the package or of scikit-learn and scikit-image; nothing is downloaded. It takes seconds.

Example: python -m studies.pictures.default --out out/figures
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from pnml import demo
from pnml_bench.figures import save
from pnml_bench.figures._comparison import Comparison, Scores
from pnml_bench.figures.histograms import draw

KINDS = ("Handwritten digits", "Crops of textures")  # one that is easy to tell, and the hardest of the demo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/figures"))
    args = parser.parse_args()
    result = demo.run()
    known = result.ind
    comparisons = [
        Comparison(
            "resnet-20",
            "cifar10",
            one.name,
            "baseline",
            Scores(np.asarray(known.baseline), np.asarray(one.baseline)),
            Scores(known.regret, one.regret),
        )
        for one in result.ood
        if one.name in KINDS
    ]
    for path in save(draw(comparisons), args.out, "default"):
        print(path)


if __name__ == "__main__":
    main()
