"""Size and dependencies of the rooms (packages), at revisions of this repository.

`python documents/rooms.py 7e6abf5 HEAD` compares the time before the rooms were moved with now.
"""

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_LINES = 400
CONDITIONS = (ast.If, ast.IfExp, ast.While)


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def room_of(module: str) -> str | None:
    """The package, or top-level module, to which a module belongs."""
    first, _, inner = module.partition(".")
    if first == "scorio":
        return first
    return inner.partition(".")[0] or None if first == "adaptive_eval" else None


def imported(module: str, text: str) -> Iterator[str]:
    """Absolute names of everything that a module imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module.split(".")[: -node.level]) if node.level else ""
            origin = ".".join(part for part in (base, node.module) if part)
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def count_arguments(class_node: ast.ClassDef) -> int:
    """Number of arguments of the constructor; 0 if it is inherited."""
    methods = [node for node in class_node.body if isinstance(node, ast.FunctionDef)]
    constructors = [method.args for method in methods if method.name == "__init__"]
    return sum(len(arguments.args) + len(arguments.kwonlyargs) - 1 for arguments in constructors)


def count_attributes(class_node: ast.ClassDef) -> int:
    """Number of attributes that the methods set."""
    nodes = [node for node in ast.walk(class_node) if isinstance(node, ast.Attribute)]
    stored = [node for node in nodes if isinstance(node.ctx, ast.Store)]
    return len({node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"})


def count_revision(revision: str) -> dict[str, float]:
    """All figures of one revision."""
    paths = git("ls-tree", "-r", "--name-only", revision, "scorio", "adaptive_eval").splitlines()
    texts = {path: git("show", f"{revision}:{path}") for path in paths if path.endswith(".py")}
    modules = {path.removesuffix(".py").replace("/", "."): text for path, text in texts.items()}
    rooms = {room_of(module) for module in modules} - {None, "__init__", "__main__"}
    packages = {room for room in rooms if room == "scorio" or f"adaptive_eval/{room}/__init__.py" in texts}
    pairs = {(room_of(module), room_of(name)) for module, text in modules.items() for name in imported(module, text)}
    dependencies = {(source, target) for source, target in pairs if source != target and {source, target} <= rooms}
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
        "modules outside packages": len(rooms - packages),
        "lines of a file, median": statistics.median(lengths),
        f"files of more than {MAX_LINES} lines": sum(length > MAX_LINES for length in lengths),
        "dependencies between rooms": len(dependencies),
        "pairs of rooms that import each other": sum(
            (target, source) in dependencies for source, target in dependencies
        )
        / 2,
        "conditions in the scheduler": sum(isinstance(node, CONDITIONS) for tree in loop for node in ast.walk(tree)),
        "maximum arguments of a class there": max(map(count_arguments, classes)),
        "maximum attributes of a class there": max(map(count_attributes, classes)),
    }


def main() -> None:
    columns = [count_revision(revision) for revision in sys.argv[1:] or ["HEAD"]]
    for name in columns[0]:
        print(f"| {name} |", " | ".join(f"{column[name]:g}" for column in columns), "|")


if __name__ == "__main__":
    main()
