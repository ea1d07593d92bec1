"""The page with every key of the configuration, generated from the JSON schema."""

import json
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from adaptive_eval.config.json_schema import json_schema

Schema = dict[str, Any]
HEAD = """# Configuration

All keys of the YAML file, with type and default. `adaptive-eval schema` prints them as a JSON schema for your editor,
and `adaptive-eval validate` lists all mistakes in a file with their lines. Dots separate nested keys, as in `--set
trials.max=40` on the command line."""
TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def reference() -> str:
    """The page: the keys of the file, then those of each section in order."""
    schema = json_schema()
    page = _Page(schema["$defs"])
    page.name_sections(schema)
    keys, tables = list(schema["properties"]), [page.table(schema)]
    for name, path in sorted(page.paths.items(), key=lambda item: keys.index(re.split("[.:]", item[1])[0])):
        section = schema["$defs"][name]
        tables.append(f"## `{path}`\n\n{_paragraphs(section.get('description', ''))}\n\n{page.table(section)}")
    return "\n\n".join([HEAD, *tables])


class _Page:
    """Tables of keys, with links between sections."""

    def __init__(self, sections: dict[str, Schema]) -> None:
        self._sections = sections
        self.paths: dict[str, str] = {}
        """The key of each section, at its first occurrence."""

    def name_sections(self, file: Schema) -> None:
        """Name the sections of the file, breadth first."""
        pending = deque([("", file)])
        while pending:
            path, schema = pending.popleft()
            for key, value in schema["properties"].items():
                for name in _references(value):
                    section = self._sections[name]
                    if name not in self.paths and section["properties"]:
                        self.paths[name] = self._unused(f"{path}{key}", section)
                        pending.append((f"{path}{key}.", section))

    def _unused(self, path: str, section: Schema) -> str:
        """The path, with the kind of the section or another feature if several sections share it."""
        distinguishing = [value["const"] for value in section["properties"].values() if "const" in value]
        if path in self.paths.values():
            distinguishing += [*section.get("required", ()), section["title"]]
        return f"{path}: {distinguishing[0]}" if distinguishing else path

    def table(self, section: Schema) -> str:
        """One row for each key."""
        required = section.get("required", ())
        rows = ["| key | value | meaning |", "|-----|-------|---------|"]
        for key, value in section["properties"].items():
            cells = (f"`{key}`", self._value(value) + _default(value, key in required), value.get("description", ""))
            rows.append(f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in cells)} |")
        return "\n".join(rows)

    def _value(self, schema: Schema) -> str:
        if "$ref" in schema:
            path = self.paths.get(schema["$ref"].rpartition("/")[2])
            anchor = re.sub(r"[^\w -]", "", path or "").replace(" ", "-").lower()
            return "no options" if path is None else f"[{path}](#{anchor})"
        if choices := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
            values = [self._value(choice) for choice in choices if choice != {"type": "null"}]
            return " or ".join(dict.fromkeys(values))
        if words := schema.get("enum", [schema["const"]] if "const" in schema else []):
            return ", ".join(f"`{word}`" for word in words)
        if schema.get("type") == "array":
            return f"list: {self._value(schema['items'])}" if schema.get("items") else "list"
        if isinstance(inner := schema.get("additionalProperties"), dict) and inner:
            return f"mapping to {self._value(inner)}"
        if schema.get("pattern", "").endswith(r":[A-Za-z_]\w*$"):
            return "`package.module:attribute`"
        kind = "path" if schema.get("format") == "path" else TYPES.get(schema.get("type", ""), "any value")
        limits = ", ".join(f"{sign} {schema[bound]:.15g}" for bound, sign in BOUNDS.items() if bound in schema)
        return f"{kind} {limits}".rstrip()


def _references(schema: object) -> Iterator[str]:
    """The sections that a value may be."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for key, inner in schema.items():
            if key != "discriminator":
                yield from _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)


def _default(value: Schema, required: bool) -> str:
    default = value.get("default")
    if required:
        return "; required"
    return "" if default in (None, [], {}) or isinstance(default, dict) else f"; default `{json.dumps(default)}`"


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
