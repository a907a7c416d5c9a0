"""A report of what was scored: one HTML page that needs nothing but itself."""

from pnml.report.model import Report, ScoredSet, Table
from pnml.report.page import write_report

__all__ = ["Report", "ScoredSet", "Table", "write_report"]
