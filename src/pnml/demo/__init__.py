"""The method on a small trained network and real images, all part of the package; nothing is downloaded.

``pnml demo`` prints the comparison and writes a report. The same in Python:

    from pnml import demo

    result = demo.run()
    demo.compare(result)
"""

from __future__ import annotations

from pnml.demo.report import as_report, as_table, compare
from pnml.demo.scoring import DemoResult, run

__all__ = ["DemoResult", "as_report", "as_table", "compare", "run"]
