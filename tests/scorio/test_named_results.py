"""Results are named and unpack as plain tuples, data frames are outcomes, and examples in docstrings run.

pandas is imported by the tests that need it: each process that runs tests imports this module.
"""

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

import numpy as np
import pytest

import scorio
from scorio import Counts

OUTCOMES = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
RAGGED = np.array([[0, 1, 1, -1, -1], [1, 1, 0, 1, 1]])


def test_results_have_names_and_unpack() -> None:
    mu, sigma = estimate = scorio.eval.bayes(OUTCOMES)
    assert (estimate.mu, estimate.sigma) == (mu, sigma) == tuple(estimate) and isinstance(estimate, tuple)
    summary = scorio.eval.pass_at_k_ci(OUTCOMES, 2)
    assert summary.lo < summary.mu < summary.hi and summary == tuple(summary)


@pytest.mark.parametrize("kind", ["float64", "Int64", "object", "boolean"])
def test_a_frame_is_its_trials_and_what_is_missing_is_none(kind: str) -> None:
    from pandas import DataFrame

    frame = DataFrame(RAGGED, index=["q1", "q2"]).where(RAGGED >= 0).astype(kind)
    same = Counts.from_ragged(RAGGED)
    assert np.array_equal(Counts.from_outcomes(frame).n, same.n) and np.array_equal(
        Counts.from_ragged(RAGGED).n, same.n
    )
    assert scorio.eval.bayes(frame) == scorio.eval.bayes(same) and scorio.eval.avg(frame) == scorio.eval.avg(same)
    assert scorio.eval.pass_at_k(frame, 2) == scorio.eval.pass_at_k(same, 2)


def test_a_whole_frame_is_its_matrix_and_a_column_is_one_question() -> None:
    from pandas import DataFrame, Series

    assert scorio.eval.bayes(DataFrame(OUTCOMES)) == scorio.eval.bayes(OUTCOMES)
    assert scorio.eval.bayes(Series([0, 1, None])) == scorio.eval.bayes([0, 1])
    assert scorio.eval.bayes(DataFrame([[0, 2, 1]]), [0.0, 0.5, 1.0]) == scorio.eval.bayes([0, 2, 1], [0.0, 0.5, 1.0])
    by_model = DataFrame([[1, 1, 0], [0, 1, 0]], index=["a", "b"])
    assert np.array_equal(scorio.rank.avg(by_model), scorio.rank.avg(by_model.to_numpy()))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.5, 1.0], "whole numbers"),
        (["right", "wrong"], "whole numbers"),
        ([-1, 1], "a missing trial is NaN"),
        ([2, 1], "w is omitted"),
    ],
)
def test_a_frame_that_holds_something_else_is_refused(row: list[object], message: str) -> None:
    from pandas import DataFrame

    with pytest.raises(ValueError, match=message):
        scorio.eval.bayes(DataFrame([row]))


def test_a_question_without_any_trial_has_no_average() -> None:
    from pandas import DataFrame

    with pytest.raises(ValueError, match="a trial of every question"):
        scorio.eval.avg(DataFrame([[1.0, 0.0], [np.nan, np.nan]]))


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
