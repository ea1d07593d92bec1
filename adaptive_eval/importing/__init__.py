"""Logs of other harnesses, tables and tensors, as a run or as an array.

Each format has one reader, a generator of `Record`s; they are checked and graded in one place, and written in another,
whole or not at all.
"""

from adaptive_eval.importing.perform import Imported, import_logs
from adaptive_eval.importing.terms import Request

__all__ = ["Imported", "Request", "import_logs"]
