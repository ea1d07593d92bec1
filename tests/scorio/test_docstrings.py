"""The public docstrings of scorio: every argument, the result, and an example that runs."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import scorio

MODULES = ["scorio", *(module.name for module in pkgutil.walk_packages(scorio.__path__, "scorio."))]
PACKAGES = [scorio.categorical, scorio.convergence, scorio.eval, scorio.rank, scorio.sinf]
BUILT = (classmethod, staticmethod)


def offered() -> Iterator[tuple[str, Any]]:
    """Every public function and class by its full name, and the public methods of the classes."""
    for package in (scorio, *PACKAGES):
        for name in package.__all__:
            thing = getattr(package, name)
            if inspect.isfunction(thing) or inspect.isclass(thing):
                yield f"{package.__name__}.{name}", thing
                yield from methods(f"{package.__name__}.{name}", thing)


def methods(owner: str, thing: Any) -> Iterator[tuple[str, Any]]:
    for name, member in vars(thing).items() if inspect.isclass(thing) else ():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, BUILT)):
            yield f"{owner}.{name}", getattr(thing, name)


def sections(docstring: str) -> dict[str, str]:
    """The text below each heading of a docstring."""
    parts = re.split(r"^(Args|Attributes|Returns|Examples):\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described(docstring: str) -> set[str]:
    by_heading = sections(docstring)
    entries = textwrap.dedent(by_heading.get("Args", "") + by_heading.get("Attributes", ""))
    return set(re.findall(r"^\**(\w+): \S", entries, flags=re.MULTILINE))


def parameters(thing: Any) -> set[str]:
    """The argument names; for a class, its fields without a docstring of their own."""
    if not inspect.isclass(thing):
        return set(inspect.signature(thing).parameters) - {"self", "cls"}
    body = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0].body  # type: ignore[attr-defined]
    return {
        node.target.id
        for node, below in zip(body, [*body[1:], None], strict=True)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not says(below)
    }


def says(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_a_public_docstring_names_its_arguments_its_result_and_an_example() -> None:
    for name, thing in offered():
        docstring = thing.__doc__ or ""
        by_heading = sections(docstring)
        assert described(docstring) == parameters(thing), f"{name}: Args are not those of the signature"
        assert inspect.isclass(thing) or by_heading.get("Returns", "").strip(), f"{name} does not say what it returns"
        assert ">>> " in by_heading.get("Examples", ""), f"{name} has no example"


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_are_true(name: str) -> None:
    module: ModuleType = importlib.import_module(name)
    runner = doctest.DocTestRunner(verbose=False)
    output: list[str] = []
    for examples in doctest.DocTestFinder().find(module, globs={}):  # an example imports what it uses
        runner.run(examples, out=output.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(output)
