"""Counts the paths of configuration keys, and lists those that no page of the guide shows.

    python documents/keys.py          the number of paths, and the paths without an example in the guide
    python documents/keys.py --all    every path, one per line

A path is a key with its parent keys, such as `models.launch.flags`, without lists and kinds. Paths within `benchmark`
and `benchmarks` are counted separately, since most of them repeat other sections of the file.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adaptive_eval.config.json_schema import json_schema

GUIDE = Path(__file__).parents[1] / "docs" / "guide"
SEPARATE = ("benchmark", "benchmarks")


def key_paths() -> list[str]:
    """The paths of all keys, sorted."""
    schema = json_schema()
    return sorted(set(_paths(schema, "", schema["$defs"], frozenset())))


def _paths(part: Any, path: str, sections: dict[str, Any], outer: frozenset[str]) -> Iterator[str]:
    if isinstance(part, list):
        for inner in part:
            yield from _paths(inner, path, sections, outer)
    elif isinstance(part, dict):
        name = str(part.get("$ref", "")).rpartition("/")[2]
        if name and name not in outer:
            yield from _paths(sections[name], path, sections, outer | {name})
        for key, value in part.get("properties", {}).items():
            inner_path = f"{path}.{key}".lstrip(".")
            yield inner_path
            yield from _paths(value, inner_path, sections, outer)
        for word in ("anyOf", "oneOf", "items", "prefixItems", "additionalProperties"):
            yield from _paths(part.get(word), path, sections, outer)


def shown_keys() -> set[str]:
    """Keys that have a value in the guide's examples."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(GUIDE.glob("*.md")))
    examples = re.findall(r"^```.*?^```|`[^`]+`", text, re.DOTALL | re.MULTILINE)
    return {key for example in examples for key in re.findall(r"([A-Za-z_]\w*)\s*:(?=\s)", example)}


def main() -> None:
    paths = key_paths()
    inside = [path for path in paths if path.split(".")[0] in SEPARATE and "." in path]
    if "--all" in sys.argv:
        print("\n".join(path for path in paths if path not in inside))
        return
    print(f"{len(paths) - len(inside)} paths, and {len(inside)} within {' and '.join(SEPARATE)}")
    shown = shown_keys()
    missing = sorted({path for path in paths if path.rpartition(".")[2] not in shown})
    print(f"without an example in the guide: {', '.join(missing) or 'none'}")


if __name__ == "__main__":
    main()
