"""Make the near set of TinyImageNet-200: ImageNet's validation pictures of the 800 classes that it does not have.

    python -m studies.photographs.imagenet_others --val val --index imagenet_class_index.json \
        --tiny data/tiny-imagenet-200 --out data/imagenet-others

``--val`` has ``N/*.JPEG``, validation pictures of class N; ``--index`` is a JSON file that gives the WordNet id of each
N, as {"0": ["n01440764", "tench"], ...}. Pictures are made as TinyImageNet's own look, so that neither sharpness nor
compression tells them apart: the middle square, 64×64 pixels interpolated without a filter, as TinyImageNet's alias,
and JPEG of quality 75.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from PIL import Image

SIDE, QUALITY = 64, 75


def shrink(image: Image.Image) -> Image.Image:
    """Return the middle square of a picture, interpolated between its nearest pixels."""
    left, top = ((side - min(image.size)) / 2 for side in image.size)
    box = (left, top, left + min(image.size), top + min(image.size))
    return image.transform((SIDE, SIDE), Image.Transform.EXTENT, box, Image.Resampling.BILINEAR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--val", type=Path, required=True, help="validation pictures, a folder for each class")
    parser.add_argument("--index", type=Path, required=True, help="the WordNet id of each class, as JSON")
    parser.add_argument("--tiny", type=Path, required=True, help="tiny-imagenet-200, for its wnids.txt")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    given = parser.parse_args()
    known = set((given.tiny / "wnids.txt").read_text(encoding="ascii").split())
    index = json.loads(given.index.read_text(encoding="utf-8"))
    if absent := known - {wnid for wnid, _ in index.values()}:
        raise SystemExit(f"{given.index} lacks {len(absent)} classes of TinyImageNet, such as {min(absent)}")
    count = 0
    for number, (wnid, _) in index.items():
        if wnid in known:
            continue
        for path in sorted((given.val / number).iterdir()):
            (given.out / wnid).mkdir(parents=True, exist_ok=True)
            with Image.open(path) as image:
                shrink(image.convert("RGB")).save(given.out / wnid / f"{path.stem}.JPEG", quality=QUALITY)
            count += 1
    print(f"{count:,} pictures of {len(index) - len(known)} classes in {given.out}")


if __name__ == "__main__":
    main()
