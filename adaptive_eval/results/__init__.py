"""results.json: what a run has found, for people and programs."""

from adaptive_eval.results.build import Snapshot, Subject, build_results, take_snapshot
from adaptive_eval.results.file import RESULTS_FILE, read_results, write_results
from adaptive_eval.results.types import FORMAT, Caution, Results

__all__ = [
    "FORMAT",
    "RESULTS_FILE",
    "Caution",
    "Results",
    "Snapshot",
    "Subject",
    "build_results",
    "read_results",
    "take_snapshot",
    "write_results",
]
