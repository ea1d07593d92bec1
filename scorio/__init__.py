"""Statistics of repeated, graded trials: Bayes@N and its family, on ragged counts.

Use the families by name, `scorio.eval.bayes(...)`, `scorio.rank.bayes(...)`; every function takes an
(M, N) matrix of outcomes or a `Counts`. A family is imported when it is first used.

PyPI has another package of this name. This one is a part of adaptive-eval, and has its version.
"""

TYPE_CHECKING = False  # type checkers take it to be True
if TYPE_CHECKING:
    from scorio import categorical, convergence, eval, rank, sinf
    from scorio.counts import Counts

__version__ = "0.1.0"
PART_OF = "adaptive-eval"
"""The distribution that this package is a part of, by which `adaptive_eval` knows it from the other one."""
__all__ = ["Counts", "__version__", "categorical", "convergence", "eval", "rank", "sinf"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "Counts":
        return import_module("scorio.counts").Counts
    if name in __all__:
        return import_module(f"scorio.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
