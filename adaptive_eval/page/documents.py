"""The HTML documents: the monitor's pages, which fetch what they show, and the report, which carries it.

Nothing that a model, a question or a configuration says becomes markup here: the report's data are JSON in which no
character can end the element they stand in, and the script makes nodes and texts of them. The policy of each page
(Content-Security-Policy) allows its own script and style and nothing else; a report may not use the network at all.
"""

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from urllib.parse import quote

import orjson

from adaptive_eval.page.bundle import icon, script, style
from adaptive_eval.reading import RunView

MONITOR_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""The header that the monitor sends with every page. `form-action` allows what is sent nowhere: dialogs close."""

_HARMLESS = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
_NO_SCRIPT = "This page is drawn by its script, and needs JavaScript. The same findings are in results.json."


def assets() -> dict[str, tuple[str, str]]:
    """What the monitor's pages ask for under assets/: the name, the type and the text of each file."""
    return {
        "app.js": ("text/javascript; charset=utf-8", script()),
        "style.css": ("text/css; charset=utf-8", style()),
        "icon.svg": ("image/svg+xml", icon()),
    }


def monitor_page(name: str, root: str = "") -> str:
    """The page of one run; `root` leads from the page's address to the server's, as in "../../"."""
    return _served(f"{name} · adaptive-eval", root, {"api": f"{root}api/run/{quote(name, safe='')}/"})


def runs_page(root: str = "") -> str:
    """The page that compares the runs of a folder."""
    return _served("Runs · adaptive-eval", root, {"runs": root})


def report_page(view: RunView) -> str:
    """One file with everything about a run but the models' texts; it needs no server and no network."""
    code, look = script(), style()
    policy = (
        f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(look)}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<link rel="icon" href="data:image/svg+xml,{quote(icon())}">\n'
        f"<style>{look}</style>\n"
    )
    tail = f'<script id="view" type="application/json">{_as_json(view)}</script>\n<script>{code}</script>\n'
    return _document(f"{view.name} · adaptive-eval", head, tail, {})


def _served(title: str, root: str, data: Mapping[str, str]) -> str:
    at = escape(root)
    head = (
        f'<link rel="icon" href="{at}assets/icon.svg">\n'
        f'<link rel="stylesheet" href="{at}assets/style.css">\n'
        f'<script defer src="{at}assets/app.js"></script>\n'
    )
    return _document(title, head, "", data)


def _document(title: str, head: str, tail: str, data: Mapping[str, str]) -> str:
    attributes = "".join(f' data-{key}="{escape(value)}"' for key, value in data.items())
    return (
        f'<!doctype html>\n<html lang="en"{attributes}>\n<head>\n<meta charset="utf-8">\n{head}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n</head>\n<body>\n"
        f'<noscript><p>{_NO_SCRIPT}</p></noscript>\n<div id="page"></div>\n{tail}</body>\n</html>\n'
    )


def _as_json(view: RunView) -> str:
    """JSON that neither ends a script element nor begins a comment in it."""
    return orjson.dumps(view).decode().translate(_HARMLESS)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
