"""Rank language models with as few samples as an honest ranking needs.

From Python: `adaptive_eval.run(config)` ranks the models of a configuration, and
`adaptive_eval.read_run(directory)` opens a run that is stored. Each is imported when it is first used.
"""

TYPE_CHECKING = False  # type checkers take it to be True; importing `typing` would take half of this import's time
if TYPE_CHECKING:
    from adaptive_eval.notebook.started import run
    from adaptive_eval.notebook.stored import RunRecord, read_run

try:
    from scorio import PART_OF, __version__
except ImportError:  # PyPI's package of that name has no such name, and may have overwritten ours
    PART_OF = ""
if PART_OF != "adaptive-eval":
    from adaptive_eval.base.foreign_scorio import foreign_scorio

    raise foreign_scorio()

__all__ = ["RunRecord", "__version__", "read_run", "run"]

_HOMES = {"RunRecord": "stored", "read_run": "stored", "run": "started"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        value: object = getattr(import_module(f"adaptive_eval.notebook.{_HOMES[name]}"), name)
        return value
    raise AttributeError(f"module 'adaptive_eval' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
