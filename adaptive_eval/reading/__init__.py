"""Reading a stored run: as one value, at any time, whether or not another process is writing it."""

from adaptive_eval.reading.restore import StoredRun, restored_results, stored_run
from adaptive_eval.reading.types import RunView
from adaptive_eval.reading.view import assemble, read_run

__all__ = ["RunView", "StoredRun", "assemble", "read_run", "restored_results", "stored_run"]
