"""A stored run in the formats of others: arrays, tables, JSON lines, Inspect logs.

    export(Request(Path("runs/aime"), "csv"))

Every format reads one moment of the run, trial by trial, and appears whole or not at all.
"""

from adaptive_eval.export.export import FORMATS, Exported, Format, Request, export

__all__ = ["FORMATS", "Exported", "Format", "Request", "export"]
