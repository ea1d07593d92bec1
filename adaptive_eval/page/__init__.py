"""The page on which a run is read: served by the monitor, or as one file that needs nothing else."""

from adaptive_eval.page.documents import MONITOR_POLICY, assets, monitor_page, report_page, runs_page

__all__ = ["MONITOR_POLICY", "assets", "monitor_page", "report_page", "runs_page"]
