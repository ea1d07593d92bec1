"""The error for a `scorio` that is not this project's.

PyPI has another package of that name. pip installs both into one folder, where the later one overwrites files of the
earlier, and removing either removes files of both. Before an editable installation, PyPI's is found first.
"""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from types import TracebackType
from urllib.parse import urlsplit
from urllib.request import url2pathname

from adaptive_eval.base.errors import ForeignScorio

PROJECT = "adaptive-eval"


def foreign_scorio() -> ForeignScorio:
    """The error; if a program does not catch it, it is printed without a traceback."""
    earlier = sys.excepthook

    def print_message(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, ForeignScorio):
            print(f"error: {error}", file=sys.stderr)
        else:
            earlier(kind, error, traceback)

    sys.excepthook = print_message
    place = _origin()
    state = f"is another package, {place}" if place else "is missing or partly removed"
    return ForeignScorio(
        f"adaptive_eval needs its own package scorio, but here scorio {state}. It cannot be installed together with "
        f"PyPI's scorio, since they overwrite each other. To remove PyPI's and restore it:\n"
        f"  {repair_command()}"
    )


def _origin() -> str | None:
    try:
        spec = find_spec("scorio")
    except ValueError:  # a module without a specification
        return None
    return None if spec is None else spec.origin


def repair_command() -> str:
    """The shell command that removes the other scorio, and reinstalls this project from its original source."""
    pip = f"{shlex.quote(sys.executable)} -m pip"
    again = " ".join(map(shlex.quote, _installed_from()))
    return f"{pip} uninstall --yes scorio; {pip} install --force-reinstall --no-deps {again}"


def _installed_from() -> list[str]:
    """The arguments of the original `pip install`: a folder, an address, or the name with the version."""
    try:
        package = distribution(PROJECT)
        direct = json.loads(package.read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return [PROJECT]
    url, vcs = direct.get("url"), direct.get("vcs_info")
    if url is None:
        return [f"{PROJECT}=={package.version}"]
    if direct.get("dir_info", {}).get("editable"):
        return ["--editable", url2pathname(urlsplit(url).path)]
    return [f"{PROJECT} @ {vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else f"{PROJECT} @ {url}"]
