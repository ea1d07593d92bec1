"""The classes that an embedder of the core builds have docstring examples that run."""

import doctest
import inspect

import pytest

from adaptive_eval import core

BUILT = (
    core.Baseline, core.Bench, core.Best, core.Budget, core.Controller, core.Judging, core.Optimal, core.Outcome,
    core.Pairs, core.Plan, core.Ranking, core.Threshold, core.TopK, core.Trials,
)  # fmt: skip


@pytest.mark.parametrize("built", BUILT, ids=lambda built: built.__name__)
def test_the_embedding_api_has_working_examples(built: type) -> None:
    docstring = inspect.getdoc(built) or ""
    test = doctest.DocTestParser().get_doctest(docstring, {}, built.__name__, None, 0)
    assert "Examples:" in docstring and test.examples
    output: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=output.append)
    assert "".join(output) == ""
