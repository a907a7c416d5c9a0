"""Print the notes of a release, or say what is missing: version, changelog, date, citation and address must agree.

Example:
    python .github/check_release.py v0.2.0 owner/pnml
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def release_notes(tag: str, repository: str, root: Path = ROOT) -> str:
    """Return what the changelog says about the version of a tag; raise ``ValueError`` if a file contradicts it.

    Args:
        tag: such as v0.2.0.
        repository: owner and name, such as owner/pnml.
        root: the folder of the project.
    """
    texts = {name: (root / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "CITATION.cff")}
    version = _found(r'^__version__ = "(.+)"$', (root / "src/pnml/_version.py").read_text(encoding="utf-8"))
    if tag != f"v{version}":
        raise ValueError(
            f"the tag is {tag}, and src/pnml/_version.py has {version}: tag v{version}, or change the file"
        )
    if _found(r"^version: (.+)$", texts["CITATION.cff"]) != version:
        raise ValueError(f"CITATION.cff has another version than src/pnml/_version.py, {version}: change it")
    dated = re.search(
        rf"^## \[{re.escape(version)}\], (\d{{4}}-\d\d-\d\d)$(.*?)(?=^## |\Z)",
        texts["CHANGELOG.md"],
        re.MULTILINE | re.DOTALL,
    )
    if dated is None:
        raise ValueError(f"CHANGELOG.md has no heading '## [{version}], YYYY-MM-DD': rename that of Unreleased")
    if _found(r"^date-released: (.+)$", texts["CITATION.cff"]) != dated[1]:
        raise ValueError(f"CITATION.cff has another date than CHANGELOG.md, {dated[1]}: change date-released")
    address = f"https://github.com/{repository}"
    if address not in (root / "pyproject.toml").read_text(encoding="utf-8"):
        raise ValueError(f"pyproject.toml does not name {address}: add Source, Issues and Changelog to [project.urls]")
    for page in ("README.md", "docs/index.md"):
        if "No release is on PyPI yet" in (root / page).read_text(encoding="utf-8"):
            raise ValueError(f"{page} says that no release is on PyPI yet: write pip install 'pnml[torch,sklearn]'")
    return dated[2].strip() + "\n"


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return "" if match is None else match[1].strip('"')


if __name__ == "__main__":
    try:
        sys.stdout.write(release_notes(*sys.argv[1:]))
    except ValueError as error:
        sys.exit(str(error))
