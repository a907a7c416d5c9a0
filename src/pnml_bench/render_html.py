"""The tables as one HTML page that needs nothing but itself."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from pnml_bench.layout import OURS, Line, header, lines, notes
from pnml_bench.table_counts import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml_bench.tables import Table

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
caption { text-align: left; padding-bottom: .5rem; }
th, td { padding: .1rem .75rem; text-align: left; white-space: nowrap; font-weight: normal; vertical-align: top; }
thead th, .ours td { font-weight: 600; }
thead, tbody { border-bottom: 2px solid; }
.ours { border-top: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
.beside { color: color-mix(in srgb, currentColor 75%, transparent); }
.legend span { padding: .1rem .75rem; }
.own { background: color-mix(in srgb, #2a78c8 20%, transparent); }
.retrained { background: color-mix(in srgb, #e8a010 28%, transparent); }
.none { color: color-mix(in srgb, currentColor 60%, transparent); }
.ours .none { font-weight: normal; }
ul { padding-left: 1.2rem; }
"""


def render_html(tables: Sequence[Table]) -> str:
    """Write a page with a section per table; the body of a table is divided by in-distribution set.

    >>> from pnml_bench.table_sources import Sources
    >>> from pnml_bench.tables import build_tables
    >>> render_html(build_tables(Sources([]))).count("<table>")
    8
    """
    counts = count(tables)
    sentences = "\n".join(f"<p>{escape(text)}</p>" for text in (str(counts), *counts.differences))
    sections = "\n".join(_section(table) for table in tables)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The paper's tables</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>The paper's tables, ours beside the paper's</h1>
{sentences}
<p class="legend"><span class="own">on the paper's own network</span> <span class="retrained">on a network trained
anew†</span> <span class="none">not run</span></p>
{sections}
</main>
</body>
</html>
"""


def _section(table: Table) -> str:
    heads = "".join(f'<th scope="col">{escape(text)}</th>' for text in header(table))
    bodies = [
        "\n".join(["<tbody>", *map(_row, of_ind), "</tbody>"])
        for _, of_ind in groupby(lines(table), lambda line: line.ind)
    ]
    below = "".join(f"<li>{escape(note)}</li>" for note in notes(table))
    return f"""<section id="{escape(table.name)}">
<h2>{escape(table.title)}</h2>
<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">
<table>
<caption>{escape(table.caption)}</caption>
<thead><tr>{heads}</tr></thead>
{"".join(bodies)}
</table>
</div>
{f"<ul>{below}</ul>" if below else ""}
</section>"""


def _row(line: Line) -> str:
    heads = "".join(
        f'<th scope="rowgroup" rowspan="{span}">{escape(text)}</th>'
        for text, span in ((line.ind, line.ind_span), (line.ood, line.ood_span))
        if span
    )
    kinds = line.networks if line.kind == OURS else [""] * len(line.cells)
    cells = "".join(
        f'<td class="{kind}">{escape(cell)}</td>' if kind else f"<td>{escape(cell)}</td>"
        for cell, kind in zip(line.cells, kinds, strict=True)
    )
    return (
        f'<tr class="{"ours" if line.kind == OURS else "beside"}">{heads}<th scope="row">{line.kind}</th>{cells}</tr>'
    )
