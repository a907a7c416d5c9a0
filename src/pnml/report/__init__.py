"""Reports of scores, and of a monitored stream, as one self-contained HTML page each."""

from pnml.report.model import Report, ScoredSet, Table
from pnml.report.monitored import write_monitor
from pnml.report.page import write_report

__all__ = ["Report", "ScoredSet", "Table", "write_monitor", "write_report"]
