"""Inspect logs: one `.eval` a model, which `inspect view` opens and `inspect_ai.log` reads.

An `.eval` is a zip of JSON members. Inspect writes them with Zstandard and reads deflate as well, which the standard
library writes. Trials are epochs, of which the questions need not have equally many; what was not asked for is listed
as stopped early, with the reason. Nothing of Inspect is needed to write one.
"""

from adaptive_eval.export.inspect.log import ENDING, write_logs

__all__ = ["ENDING", "write_logs"]
