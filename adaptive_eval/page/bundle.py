"""The page's modules as one script: what a single file can carry, and a browser fetches once.

The modules under `static` are ES modules of a simple kind, which is all that is understood here: imports stand one a
line at the top, and what is exported is a function or a constant at the left margin. Each becomes a function of its
own, so that names need only be unique within a module.
"""

import re
from functools import cache
from importlib.resources import files

STATIC = files("adaptive_eval.page") / "static"
ENTRY = "main.js"

_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const) (\w+))", re.MULTILINE)


@cache
def script(entry: str = ENTRY) -> str:
    """Every module that the entry needs, those it depends on first."""
    modules: dict[str, str] = {}
    _collect(entry, modules, ())
    return '"use strict";\n' + "\n".join(modules.values())


@cache
def style() -> str:
    """The style sheet."""
    return (STATIC / "style.css").read_text("utf-8")


@cache
def icon() -> str:
    """The sign of a page, an SVG."""
    return (STATIC / "icon.svg").read_text("utf-8").strip()


def _collect(name: str, modules: dict[str, str], importers: tuple[str, ...]) -> None:
    if name in importers:
        raise ValueError(f"modules may not import each other in a circle, but {' -> '.join((*importers, name))} do")
    if name in modules:
        return
    source = (STATIC / name).read_text("utf-8")
    for _, imported in _IMPORT.findall(source):
        _collect(imported, modules, (*importers, name))
    modules[name] = _as_function(name, source)


def _as_function(name: str, source: str) -> str:
    """A module as a constant that holds what it exports."""
    exported = ", ".join(_EXPORT.findall(source))
    body = _EXPORT.sub("", _IMPORT.sub(lambda found: f"const {{ {found[1]} }} = {_constant(found[2])};\n", source))
    return f"const {_constant(name)} = (() => {{\n{body.strip()}\nreturn {{ {exported} }};\n}})();\n"


def _constant(name: str) -> str:
    return f"$_{name.removesuffix('.js')}"
