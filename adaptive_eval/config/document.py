"""Parses YAML files to plain values, with the line of every value, and fills in environment variables.

Scalars follow YAML 1.2: `no`, `on` and `12:30` are texts, `1e-3` is a number, a date is a text. Duplicate keys, tags,
recursive anchors and numbers that are not finite are problems.

`${VAR}` and `${VAR:-default}` come from the environment and from `.env` files. They are substituted after parsing, in
each scalar, so that a variable cannot add a key or a line. `$${VAR}` writes `${VAR}`; a dollar sign before anything but
`{NAME` is text.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from dotenv import dotenv_values

from adaptive_eval.config.problems import KeyPath, Problem, shown_value

VARIABLE = re.compile(r"(?P<escaped>\$)?\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}", re.ASCII)


def escape_variables(text: str) -> str:
    """The text as it must be written in a configuration, where `${X}` means a variable and `$${X}` the text `${X}`."""
    return VARIABLE.sub(lambda match: f"${match[0]}", text)


def read_environment(folder: Path) -> Mapping[str, str]:
    """The environment, with defaults from `.env` in the current directory and then from `.env` in `folder`."""
    files = [Path(".env"), folder / ".env"]
    values = [{name: value for name, value in dotenv_values(file).items() if value is not None} for file in files]
    return {**values[1], **values[0], **os.environ}


COLON = re.compile(r":(?:\s|$)")
COMMENT = re.compile(r"(?:^|\s)#.*")
AFTER_A_MISSING_COLON = (
    "mapping values are not allowed here",
    "expected <block end>, but found '<block mapping start>'",
)

MAX_NODES = 100_000
"""Maximum number of values; only nested anchors exceed it."""
MAX_DIGITS = 1000
"""Maximum digits of a whole number; Python refuses to read one of 4300."""

UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd]")
"""Characters that YAML forbids, reads as line breaks, or that JSON would write as halves of a pair."""
HALF_PAIR = re.compile("[\ud800-\udfff]")

NULL, BOOL, INT, FLOAT, STR = (f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str"))
MERGE = "tag:yaml.org,2002:merge"


class ScalarResolver(yaml.resolver.BaseResolver):
    """Types of unquoted scalars by YAML 1.2, with underscores in numbers as in Python."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _tag, _pattern, _first in (
    (NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (BOOL, r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (INT, r"[-+]?[0-9][0-9_]*", list("-+0123456789")),
    (FLOAT, r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?", list("-+0123456789.")),
    (MERGE, r"<<", ["<"]),
):
    ScalarResolver.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), _first)


class _Loader(ScalarResolver, yaml.SafeLoader):
    """Composes nodes."""


@dataclass
class Document:
    """The values of a configuration with their places, and the problems found so far."""

    tree: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, str] = field(default_factory=dict)
    origins: dict[KeyPath, KeyPath] = field(default_factory=dict)
    """The path of the original value, to report problems there, by the path of a copy."""
    raw: dict[KeyPath, str] = field(default_factory=dict)
    """The original texts of values with variables."""
    variables: dict[KeyPath, tuple[str, ...]] = field(default_factory=dict)
    """The names of the variables in values."""
    problems: list[Problem] = field(default_factory=list)

    def refuse(
        self, path: KeyPath, rule: str, hint: str = "", got: str | None = None, place: str | None = None
    ) -> None:
        """Record a problem with the value at `path`, in its line or at another `place`."""
        self.problems.append(Problem(path, rule, hint, got, self.place(path) if place is None else place))

    def origin(self, path: KeyPath) -> KeyPath:
        """The path from which the value at `path` was copied, or `path` itself."""
        for cut in range(len(path), 0, -1):
            if path[:cut] in self.origins:
                return self.origin(self.origins[path[:cut]] + path[cut:])
        return path

    def place(self, path: KeyPath) -> str:
        """The line of a value, or of the closest enclosing value with a known line."""
        path = self.origin(path)
        for cut in range(len(path), -1, -1):
            if path[:cut] in self.places:
                return self.places[path[:cut]]
        return "line 1"

    def got(self, path: KeyPath) -> str:
        """The value for messages, without the values of variables."""
        return repr(self.raw[self.origin(path)]) if self.origin(path) in self.raw else shown_value(self.value(path))

    def value(self, path: KeyPath) -> Any:
        """The value at `path`; None if there is none."""
        value: Any = self.tree
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def entries(self, name: str) -> list[tuple[KeyPath, dict[str, Any]]]:
        """The mappings in a list of the configuration, such as `models`, with their paths."""
        listed = self.tree.get(name)
        numbered = enumerate(listed if isinstance(listed, list) else ())
        return [((name, number), entry) for number, entry in numbered if isinstance(entry, dict)]

    def has(self, path: KeyPath) -> bool:
        """Whether there is a value at `path`, even null."""
        parent = self.value(path[:-1])
        return isinstance(parent, list) or (isinstance(parent, dict) and path[-1] in parent)

    def forget(self, path: KeyPath) -> None:
        """Remove places and variables of the value at `path`, before it is replaced."""
        for records in (self.places, self.origins, self.raw, self.variables):
            for outdated in [key for key in records if key[: len(path)] == path]:
                del records[outdated]


def read_document(text: str, environment: Mapping[str, str]) -> Document:
    """Parse the text of a configuration file."""
    document = Document()
    value = add_yaml(document, text, (), environment, None)
    if isinstance(value, dict):
        document.tree = value
    elif not document.problems:
        document.refuse((), "must be a mapping of sections", got=shown_value(value), place="line 1")
    return document


def add_yaml(document: Document, text: str, path: KeyPath, environment: Mapping[str, str], place: str | None) -> Any:
    """Parse a YAML text and return its value; places and problems are added to the document under `path`."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return _Builder(document, loader, environment, place).build(node, path) if node is not None else None
    except yaml.MarkedYAMLError as error:
        line = f"line {_error_line(error, text)}"
        hint = "" if place is None else "put such a text in its own quotes: key='\"text\"'"
        rule = f"is not YAML: {_clear_message(error, text)}"
        document.refuse(path, rule, hint, place=place or line)
    except yaml.reader.ReaderError as error:
        line = f"line {text.count(chr(10), 0, error.position) + 1}"
        rule = f"has a character that YAML does not allow (U+{ord(text[error.position]):04X})"
        document.refuse(path, rule, place=place or line)
    except (yaml.YAMLError, RecursionError) as error:
        rule = "is nested too deeply" if isinstance(error, RecursionError) else str(error)
        document.refuse(path, rule, place=place or "line 1")
    return None


def json_for_yaml(value: object, default: Callable[[Any], object] | None = None) -> str:
    """The value as JSON that is also valid YAML; for `default` see `json.dumps`."""
    text = json.dumps(value, ensure_ascii=False, default=default)
    return UNPRINTABLE.sub(lambda match: f"\\U{ord(match[0]):08x}", text)


def yaml_value(text: str) -> Any:
    """The value of an unquoted YAML scalar: a text, number, boolean or None."""
    loader = _Loader("")  # of a text with control characters there is none
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return {BOOL: text.lower() == "true", NULL: None}.get(tag, text) if tag not in (INT, FLOAT) else float(text)


CLEAR_MESSAGES = {
    "mapping values are not allowed here": (
        "unexpected key: indent it like the key before it, or put a text with a colon in quotes"
    ),
    "found character '\\t' that cannot start any token": "there is a tab: indent with spaces only",
    "expected ',' or '}'": "a { has no }, or a comma is missing",
    "expected ',' or ']'": "a [ has no ], or a comma is missing",
    "found unexpected end of stream": "a quote is not closed",
}
"""Clearer messages by prefix of the parser's message."""


def _clear_message(error: yaml.MarkedYAMLError, text: str) -> str:
    """A clear message for an error of the YAML parser."""
    message, position, beginning = error.problem or error.context or "", error.problem_mark, error.context_mark
    if message.startswith("expected <block end>") and position is not None and beginning is not None:
        if text.split("\n")[position.line][: position.column].strip(" -"):
            return "there is text after the end of a value: put all of it in quotes"
        if position.column == beginning.column:
            return f"it is indented like the dash in line {beginning.line + 1}: indent the rest of that entry further"
        if text.split("\n")[position.line][position.column :].startswith("-"):
            return "a list begins here, below a key that already has a value"
        return (
            f"it is indented by {position.column}, but the block from line {beginning.line + 1} by {beginning.column}: "
            "indent all keys of a section equally, and nested values further"
        )
    return next((plain for begins, plain in CLEAR_MESSAGES.items() if message.startswith(begins)), message)


def _error_line(error: yaml.MarkedYAMLError, text: str) -> int:
    """The line to correct; for a missing colon, the line before the parser's."""
    mark = error.problem_mark or error.context_mark
    if error.context == "while scanning a simple key" and error.context_mark is not None:
        mark = error.context_mark
    if mark is None:
        return 1
    if error.problem in AFTER_A_MISSING_COLON:
        codes = [COMMENT.sub("", line).rstrip() for line in text.split("\n")[: mark.line + 1]]
        line_text = codes.pop()
        numbered = [(number, code) for number, code in enumerate(codes, start=1) if code]
        for number, code in numbered[-1:]:
            deeper = len(line_text) - len(line_text.lstrip()) > len(code) - len(code.lstrip())
            if not COLON.search(code) and (deeper or not code.lstrip().startswith("-")):  # else an item that has ended
                return number
    return int(mark.line) + 1


class _Builder:
    """Converts nodes to values, and records their places."""

    def __init__(self, document: Document, loader: _Loader, environment: Mapping[str, str], place: str | None) -> None:
        self._document, self._loader, self._environment, self._place = document, loader, environment, place
        self._open: set[int] = set()
        self._nodes = 0

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        """The value of a node."""
        self._document.places.setdefault(path, self._line(node))
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise yaml.YAMLError("has too many values: anchors multiply each other")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            return self._refuse(node, path, "contains itself", "remove the alias inside its own anchor")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            return [self.build(item, (*path, number)) for number, item in enumerate(node.value)]
        finally:
            self._open.remove(id(node))

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        seen: dict[str, str] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
                if key.value in seen:
                    rule = f"is given twice, first in {seen[key.value]}"
                    self._refuse(key, (*path, key.value), rule, "keep one of the two")
                seen.setdefault(key.value, self._line(key))
        self._loader.flatten_mapping(node)  # merged values come first, so that a mapping's own keys override them
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(key, path, "has a key that is not text", "write it as a word, or in quotes")
                continue
            self._document.places[(*path, key.value)] = self._line(key)
            values[key.value] = self.build(value, (*path, key.value))
        return values

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        tag, text, used = node.tag, node.value, list[str]()
        if tag == STR and "${" in text:
            text = VARIABLE.sub(lambda match: self._variable(match, node, path, used), text)
        if used:
            self._document.raw[path], self._document.variables[path] = node.value, tuple(used)
            if node.style is None:
                tag = self._loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        return self._convert_scalar(node, path, tag, text)

    def _variable(self, match: re.Match[str], node: yaml.Node, path: KeyPath, used: list[str]) -> str:
        """The text for a variable; `${VAR:-default}` takes the default also if VAR is empty."""
        if match["escaped"]:
            return match[0][1:]
        name, default = match["name"], match["default"]
        used.append(name)
        if default is None and name not in self._environment:
            hint = f"set it, write ${{{name}:-default}}, or $${{{name}}} for the text itself"
            self._refuse(node, path, f"needs the environment variable {name}, which is not set", hint)
        return self._environment.get(name) or default or ""

    def _convert_scalar(self, node: yaml.Node, path: KeyPath, tag: str, text: str) -> Any:
        if tag == NULL:
            return None
        if tag == BOOL:
            return text.lower() == "true"
        if tag in (INT, FLOAT):
            digits = text.replace("_", "")
            is_whole = tag == INT and len(digits) <= MAX_DIGITS
            if abs(number := int(digits) if is_whole else float(digits)) < (2**63 if tag == INT else math.inf):
                return number
            return self._refuse(node, path, "is too large for a number", "put a text in quotes" if tag == INT else "")
        if tag in (STR, MERGE) and HALF_PAIR.search(text):
            return self._refuse(node, path, "has half of a surrogate pair", "write the character itself")
        if tag in (STR, MERGE):
            return text
        return self._refuse(node, path, f"has the tag {tag}", "tags are not supported: remove it")

    def _refuse(self, node: yaml.Node, path: KeyPath, rule: str, hint: str) -> None:
        self._document.refuse(path, rule, hint, place=self._line(node))

    def _line(self, node: yaml.Node) -> str:
        return self._place or f"line {node.start_mark.line + 1}"
