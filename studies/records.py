"""Writing the records and the tables of the studies' pages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pnml.backend.files import write_text

if TYPE_CHECKING:
    from pathlib import Path


def write_record(path: Path, record: dict[str, Any], *, depth: int = 2) -> None:
    """Write JSON with one line for each entry of a level, by default the second."""
    write_text(path, _json(record, depth) + "\n")


def replace_table(page: Path, mark: str, table: str) -> None:
    """Replace what stands between the comments ``mark`` and ``end of mark`` of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(f"<!-- {mark} -->\n")
    _, _, after = rest.partition(f"<!-- end of {mark} -->")
    write_text(page, f"{before}<!-- {mark} -->\n{table}<!-- end of {mark} -->{after}")


def _json(value: Any, depth: int) -> str:
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_json(item, depth - 1)}" for key, item in value.items()) + "\n}"
