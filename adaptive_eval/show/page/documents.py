"""The HTML documents: the monitor's pages, which fetch their data, and the report, which contains it.

No text of a model, question or configuration becomes markup: the report's data are JSON in which no character can end
the enclosing element, and the script makes nodes and texts of them. The policy of each page (Content-Security-Policy)
allows its own script and style and nothing else; a report may not use the network at all.

The page's modules are bundled as one script, which fits into a single file and which a browser fetches once. Only
simple ES modules are supported under `static`: one import per line at the top, and exported functions, constants or
classes at the left margin. Each module becomes a function, so names need only be unique within a module.
"""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import orjson

from adaptive_eval.core.sequential import Sequential
from adaptive_eval.report.glossary import GLOSSARY
from adaptive_eval.report.view import RunView
from adaptive_eval.show.markdown import summary
from adaptive_eval.show.page.sent import page_view

STATIC = files("adaptive_eval.show.page") / "static"
ENTRY = "main.js"

_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)


@cache
def script(entry: str = ENTRY, beside: Path | None = None) -> str:
    """All modules that the entry needs, dependencies first, from the page and the folder `beside`."""
    modules: dict[str, str] = {}
    _collect(entry, beside, modules)
    return '"use strict";\n' + "\n".join(modules.values())


@cache
def style() -> str:
    """The style sheet."""
    return (STATIC / "style.css").read_text("utf-8")


@cache
def icon() -> str:
    """The icon of a page, an SVG."""
    return (STATIC / "icon.svg").read_text("utf-8").strip()


def _collect(name: str, beside: Path | None, modules: dict[str, str]) -> None:
    if name in modules:
        return
    file = STATIC / name if beside is None or not (beside / name).is_file() else beside / name
    source = file.read_text("utf-8")
    for _, imported in _IMPORT.findall(source):
        _collect(imported, beside, modules)
    modules[name] = _wrap_module(name, source)


def _wrap_module(name: str, source: str) -> str:
    """Wrap a module as a constant that holds its exports."""
    exported = ", ".join(_EXPORT.findall(source))
    body = _EXPORT.sub("", _IMPORT.sub(lambda match: f"const {{ {match[1]} }} = {_const_name(match[2])};\n", source))
    return f"const {_const_name(name)} = (() => {{\n{body.strip()}\nreturn {{ {exported} }};\n}})();\n"


def _const_name(name: str) -> str:
    return f"$_{name.removesuffix('.js')}"


MONITOR_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Policy header of every page of the monitor. `form-action` still lets dialogs close, as they send nothing."""

_DIRECTIONS = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that change the direction of writing."""
_HARMLESS = {code: f"\\u{code:04x}" for code in (*map(ord, "<>&\u2028\u2029"), *_DIRECTIONS)}
_NO_SCRIPT = "<p>This page is drawn by its script, and needs JavaScript.</p>"


def assets() -> dict[str, tuple[str, str]]:
    """Type and text of each file under assets/ of the monitor's pages, by name."""
    return {
        "app.js": ("text/javascript; charset=utf-8", script()),
        "style.css": ("text/css; charset=utf-8", style()),
        "icon.svg": ("image/svg+xml", icon()),
    }


def monitor_page(name: str) -> str:
    """The page of a run."""
    return fetching_page(f"{name} · adaptive-eval")


def report_page(view: RunView) -> str:
    """The report: one file with everything about a run except the models' texts, without server and network."""
    code, css = script(), style()
    tail = f'<script id="view" type="application/json">{_to_json(page_view(view))}</script>\n<script>{code}</script>\n'
    without_script = f"{_NO_SCRIPT}\n<p>The findings, without the script:</p>\n<pre>{escape(summary(view))}</pre>"
    return _document(f"{view.name} · adaptive-eval", _file_head(css, code), tail, without_script)


def demo_page() -> str:
    """The demonstration: one file, without server and network."""
    code, css = script("demo.js"), style() + (STATIC / "demo.css").read_text("utf-8")
    rule = Sequential()
    boundary = {"c": rule.critical, "kappa": rule.kappa, "start": rule.start}
    tail = f'<script id="rule" type="application/json">{_to_json(boundary)}</script>\n<script>{code}</script>\n'
    return _document("Ranking models by sampling · adaptive-eval", _file_head(css, code), tail)


def _file_head(css: str, code: str) -> str:
    """Head of a file that may run its own script and request nothing."""
    policy = f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(css)}'; img-src data:"
    return (
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}; base-uri 'none'; form-action 'none'\">\n"
        f'<link rel="icon" href="data:image/svg+xml,{quote(icon())}">\n<style>{css}</style>\n'
    )


def fetching_page(title: str) -> str:
    """A page whose script fetches its data."""
    head = (
        '<link rel="icon" href="assets/icon.svg">\n'
        '<link rel="stylesheet" href="assets/style.css">\n'
        '<script defer src="assets/app.js"></script>\n'
    )
    return _document(title, head, "")


def _document(title: str, head: str, tail: str, without_script: str = _NO_SCRIPT) -> str:
    body = (
        f'<noscript>{without_script}</noscript>\n<div id="page"></div>\n'
        f'<script id="glossary" type="application/json">{_to_json(dict(GLOSSARY))}</script>\n{tail}'
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{head}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


def _to_json(value: object) -> str:
    """Serialize to JSON that can neither end a script element nor begin a comment in it, nor show its source in another
    order."""
    return orjson.dumps(value).decode().translate(_HARMLESS)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
