"""The error for a `scorio` that is not this project's.

PyPI has another package of that name. pip installs both into one folder, where the later one overwrites files of the
earlier, and removing either removes files of both. Before an editable installation, PyPI's is found first.
"""

import shlex
import sys
from importlib.util import find_spec
from types import TracebackType

from adaptive_eval.base.errors import ForeignScorio


def foreign_scorio() -> ForeignScorio:
    """The error; if a program does not catch it, it is printed without a traceback."""
    earlier = sys.excepthook

    def print_message(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, ForeignScorio):
            print(f"error: {error}", file=sys.stderr)
        else:
            earlier(kind, error, traceback)

    sys.excepthook = print_message
    pip = f"{shlex.quote(sys.executable)} -m pip"
    place = _origin()
    state = f"is another package, {place}" if place else "is missing or partly removed"
    return ForeignScorio(
        f"adaptive_eval needs its own package scorio, but here scorio {state}. It cannot be installed together with "
        f"PyPI's scorio, since they overwrite each other. To remove PyPI's and restore it, install adaptive-eval again "
        f"from where it came (a version, a folder or an address):\n"
        f"  {pip} uninstall --yes scorio; {pip} install --force-reinstall --no-deps SOURCE"
    )


def _origin() -> str | None:
    try:
        spec = find_spec("scorio")
    except ValueError:  # a module without a specification
        return None
    return None if spec is None else spec.origin
