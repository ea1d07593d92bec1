"""The layers of the design hold: an import only ever points downwards."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from document_blocks import blocks

ROOT = Path(__file__).parents[1]

CLOCKS_AND_CHANCE = {"datetime", "random", "secrets", "time", "uuid"}
IO = {"aiohttp", "asyncio", "httpx2", "io", "logging", "openai", "os", "pathlib", "shutil", "socket", "sqlite3"}
PROCESSES = {"multiprocessing", "signal", "subprocess", "sys", "tempfile", "threading"}
PURE_FORBIDDEN = CLOCKS_AND_CHANCE | IO | PROCESSES
PURE = ["scorio", "adaptive_eval/core"]

# Lowest first, one room a line: a module may import from its own room and from those before it.
LAYERS: list[str] = [
    "scorio",
    "adaptive_eval.base",
    "adaptive_eval.core",
    "adaptive_eval.notes",
    "adaptive_eval.simulate",
    "adaptive_eval.endpoints",
    "adaptive_eval.questions",
    "adaptive_eval.graders",
    "adaptive_eval.inspect",
    "adaptive_eval.lm_eval",
    "adaptive_eval.machine",
    "adaptive_eval.store",
    "adaptive_eval.launch",
    "adaptive_eval.config",
    "adaptive_eval.supplies",
    "adaptive_eval.report",
    "adaptive_eval.running",
    "adaptive_eval.exchange",
    "adaptive_eval.sites",
    "adaptive_eval.study",
    "adaptive_eval.show",
    "adaptive_eval.labels",
    "adaptive_eval.notebook",
    "adaptive_eval.testing",
    "adaptive_eval.cli",
    "adaptive_eval.__main__",
]


@cache
def statements(path: Path) -> list[ast.AST]:
    """Every statement of a file, at whatever depth, read once; most of a file are the expressions in them."""
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    for node in nodes:  # which grows meanwhile
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            nodes += getattr(node, part, ())
    return nodes


@cache
def imports(path: Path) -> set[str]:
    """Absolute names of everything a file imports."""
    names: set[str] = set()
    package = path.relative_to(ROOT).with_suffix("").parts
    for node in statements(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: -node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            names |= {f"{module}.{alias.name}" for alias in node.names} | {module}
    return names


def layer_of(name: str) -> int | None:
    for level, layer in enumerate(LAYERS):
        if name == layer or name.startswith(layer + "."):
            return level
    return None


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_the_pure_layers_import_nothing_that_does_io() -> None:
    for path in sources(*PURE):
        assert not {name.split(".")[0] for name in imports(path)} & PURE_FORBIDDEN, path
        calls = [node.func for node in ast.walk(statements(path)[0]) if isinstance(node, ast.Call)]
        called = {call.id for call in calls if isinstance(call, ast.Name)}
        assert not called & {"open", "print", "input", "exec", "eval"}, path


def test_the_values_of_the_pure_layers_are_frozen() -> None:
    for path in sources(*PURE):
        for node in statements(path):
            for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else []:
                if "dataclass" in ast.unparse(decorator):
                    assert "frozen=True" in ast.unparse(decorator), f"{path}, line {node.lineno}"


def test_imports_point_downwards() -> None:
    above: dict[str, set[str]] = {}
    for path in sources("scorio", "adaptive_eval"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        level = len(LAYERS) if module == "adaptive_eval" else layer_of(module)
        assert level is not None, f"{module} has no layer: give it one in this test"
        above[module] = {name for name in imports(path) if (other := layer_of(name)) is not None and other > level}
    assert not {module: names for module, names in above.items() if names}, "these import from a higher layer"


def rooms_and_imports() -> dict[str, set[str]]:
    """Which rooms each room imports, by their short names."""
    imports_of: dict[str, set[str]] = {}
    for path in sources("scorio", "adaptive_eval"):
        layer = layer_of(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
        if layer is None or LAYERS[layer].endswith("__main__"):
            continue
        room = imports_of.setdefault(short(layer), set())
        room |= {short(other) for name in imports(path) if (other := layer_of(name)) not in (None, layer)}
    return imports_of


def short(level: int | None) -> str:
    assert level is not None
    return LAYERS[level].removeprefix("adaptive_eval.")


def reached(room: str, imported: dict[str, set[str]]) -> set[str]:
    """Every room that one stands on, at whatever distance."""
    return imported[room].union(*(reached(other, imported) for other in imported[room]))


def drawing() -> set[str]:
    """The arrows that do not follow from others."""
    imported = rooms_and_imports()
    return {
        f"{room} --> {other}"
        for room, others in imported.items()
        for other in others
        if not any(other in reached(between, imported) for between in others - {other})
    }


def test_the_drawing_of_the_rooms_is_true() -> None:
    (block,) = blocks("mermaid")
    drawn, true = {line.strip() for line in block.text.splitlines() if "-->" in line}, drawing()
    assert not true - drawn, "ARCHITECTURE.md lacks arrows"
    assert not drawn - true, "ARCHITECTURE.md draws arrows that are not there, or follow from others"


WAY = re.compile(r"^\|[^|]*\| `(?P<type>[a-z][\w.]*\.[A-Z]\w+)`[^|]*\|(?P<files>[^|]*\.py`[^|]*)\|$", re.MULTILINE)
"""A row of the tables of a trial's and of a comparison's way: a type, and where it is made."""


@pytest.mark.parametrize("row", list(WAY.finditer((ROOT / "ARCHITECTURE.md").read_text())), ids=lambda row: row["type"])
def test_each_type_on_the_way_of_a_trial_is_made_where_the_architecture_says(row: re.Match[str]) -> None:
    files = [ROOT / "adaptive_eval" / name for name in re.findall(r"`([\w/]+\.py)`", row["files"])]
    name = row["type"].rpartition(".")[2]
    made = re.compile(rf"(?<!class )\b{name}(\.\w+)?\(|-> [^\n]*\b{name}\b")
    assert any(made.search(path.read_text()) for path in files), f"no {name} is made in {row['files'].strip()}"


ROOMS = [name for name in LAYERS if (ROOT / name.replace(".", "/")).is_dir()]


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_says_in_a_sentence_what_it_is_for(room: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / room.replace(".", "/") / "__init__.py").read_text()))
    assert text is not None and text.partition("\n")[0].endswith((".", ":")), f"{room}/__init__.py"


def test_every_folder_of_the_package_is_a_room() -> None:
    folders = {path.name for path in (ROOT / "adaptive_eval").iterdir() if (path / "__init__.py").exists()}
    assert folders == {name.removeprefix("adaptive_eval.") for name in ROOMS if name != "scorio"}


def test_no_two_classes_share_a_name() -> None:
    """A name that means two things is read as the wrong one, and an import takes the wrong one: `Event`, `Batch`."""
    homes: dict[str, list[str]] = {}
    for path in sources("scorio", "adaptive_eval"):
        for node in statements(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    assert not shared, f"give all but one a name that says what it is: {shared}"


def test_scorio_stands_alone() -> None:
    for path in sources("scorio"):
        outside = {name.split(".")[0] for name in imports(path)} & {"adaptive_eval"}
        assert not outside, path


def test_every_docstring_can_be_written_as_utf_8() -> None:
    """From Python 3.13 on the compiler does so, and half of a surrogate pair keeps a module from being loaded."""
    spelled = [
        path for path in sources("adaptive_eval", "scorio", "tests") if "\\ud" in path.read_text(encoding="utf-8")
    ]
    assert spelled
    for path in spelled:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                (ast.get_docstring(node, clean=False) or "").encode()
