"""Reports of scores as one self-contained HTML page."""

from pnml.report.model import Report, ScoredSet, Table
from pnml.report.page import write_report

__all__ = ["Report", "ScoredSet", "Table", "write_report"]
