"""The machine uses no clock, no task, no file and no randomness."""

import ast
from pathlib import Path

import pytest

MACHINE = Path(__file__).parents[2] / "adaptive_eval" / "machine"
PURE = (
    *("trial", "records", "charges", "events", "follow_up", "machine", "logged_core", "caps", "replay"),
    *("table", "derived", "first_grades", "facts", "usage", "repeats", "alarms"),
)
ALLOWED = {"bisect", "collections", "dataclasses", "enum", "hashlib", "json", "math", "numpy", "operator", "scipy"}
ALLOWED |= {"functools", "typing", "zlib"}
OWN = ("adaptive_eval.core.", "adaptive_eval.machine.", "adaptive_eval.endpoints.types", "adaptive_eval.graders.types")
VALUES_ONLY = {"Answer", "Sampling", "SignalValue"}
"""What it takes from rooms that do I/O: types of values."""


@pytest.mark.parametrize("name", PURE)
def test_the_machine_imports_nothing_that_does_io(name: str) -> None:
    for node in ast.walk(ast.parse((MACHINE / f"{name}.py").read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= ALLOWED
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            assert module.split(".")[0] in ALLOWED or module.startswith(OWN), module
            names = {alias.name for alias in node.names}
            assert not module.startswith(OWN[2:]) or names <= VALUES_ONLY
            name_in_package = module.removeprefix("adaptive_eval.machine.")
            assert name_in_package == module or name_in_package in PURE, "it knows the driver"
