"""Reports of scores as one self-contained HTML page."""

from pnml.report.model import Report, ScoredSet
from pnml.report.page import write_report
from pnml.report.table import Table

__all__ = ["Report", "ScoredSet", "Table", "write_report"]
