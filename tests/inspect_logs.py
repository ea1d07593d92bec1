"""Logs of Inspect, read by Inspect itself. It is loaded where a log is read: that takes seconds, and each of the
processes that share the tests imports all their files.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog


def read_log(file: Path, header_only: bool = False) -> "EvalLog":
    from inspect_ai.log import read_eval_log

    return read_eval_log(str(file), header_only=header_only)
