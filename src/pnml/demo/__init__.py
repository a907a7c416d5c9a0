"""A small trained network, its detector and real pictures, all in the package: the method at work, without a download.

``pnml demo`` prints the comparison with words around it, and writes a report. The same in Python:

    from pnml import demo

    outcome = demo.run()
    demo.compare(outcome)
"""

from __future__ import annotations

from pnml.demo.report import as_report
from pnml.demo.scoring import Outcome, Scored, run
from pnml.demo.table import as_table, compare

__all__ = ["Outcome", "Scored", "as_report", "as_table", "compare", "run"]
