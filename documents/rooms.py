"""How large the rooms are and how they hang together, at revisions of this repository.

`python documents/rooms.py 7e6abf5 HEAD` counts what was there before the rooms were moved, and what is there now.
"""

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parents[1]
LONG = 400
CONDITIONS = (ast.If, ast.IfExp, ast.While)


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=True).stdout


def room_of(module: str) -> str | None:
    """The package, or the module that stands alone, to which a module belongs."""
    first, _, rest = module.partition(".")
    if first == "scorio":
        return first
    return rest.partition(".")[0] or None if first == "adaptive_eval" else None


def imported(module: str, text: str) -> Iterator[str]:
    """Absolute names of all that a module imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module.split(".")[: -node.level]) if node.level else ""
            origin = ".".join(part for part in (base, node.module) if part)
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def arguments(one: ast.ClassDef) -> int:
    """How many arguments the class takes where it has a constructor of its own."""
    own = [node.args for node in one.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return sum(len(found.args) + len(found.kwonlyargs) - 1 for found in own)


def attributes(one: ast.ClassDef) -> int:
    """How many attributes its methods set."""
    stored = [node for node in ast.walk(one) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    return len({node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"})


def counted(revision: str) -> dict[str, float]:
    """What can be counted of one revision."""
    paths = git("ls-tree", "-r", "--name-only", revision, "scorio", "adaptive_eval").splitlines()
    texts = {path: git("show", f"{revision}:{path}") for path in paths if path.endswith(".py")}
    modules = {path.removesuffix(".py").replace("/", "."): text for path, text in texts.items()}
    rooms = {room_of(module) for module in modules} - {None, "__init__", "__main__"}
    packages = {room for room in rooms if room == "scorio" or f"adaptive_eval/{room}/__init__.py" in texts}
    pairs = {(room_of(module), room_of(name)) for module, text in modules.items() for name in imported(module, text)}
    arrows = {(one, other) for one, other in pairs if one != other and {one, other} <= rooms}
    lengths = [text.count("\n") for text in texts.values()]
    loop = [ast.parse(text) for path, text in texts.items() if path.startswith("adaptive_eval/scheduler/")]
    classes = [node for tree in loop for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    package = [ast.parse(text) for path, text in texts.items() if path.startswith("adaptive_eval/")]
    nodes = [node for tree in package for node in ast.walk(tree)]
    return {
        "lines of adaptive_eval": sum(
            text.count("\n") for path, text in texts.items() if path.startswith("adaptive_eval/")
        ),
        "functions": sum(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in nodes),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "files": len(texts),
        "packages": len(packages),
        "modules beside them": len(rooms - packages),
        "lines of a file, median": statistics.median(lengths),
        f"files of more than {LONG} lines": sum(length > LONG for length in lengths),
        "arrows between rooms": len(arrows),
        "pairs of rooms that import each other": sum((other, one) in arrows for one, other in arrows) / 2,
        "conditions in the loop's room": sum(isinstance(node, CONDITIONS) for tree in loop for node in ast.walk(tree)),
        "most arguments of a class there": max(map(arguments, classes)),
        "most attributes of a class there": max(map(attributes, classes)),
    }


def main() -> None:
    found = [counted(revision) for revision in sys.argv[1:] or ["HEAD"]]
    for name in found[0]:
        print(f"| {name} |", " | ".join(f"{one[name]:g}" for one in found), "|")


if __name__ == "__main__":
    main()
