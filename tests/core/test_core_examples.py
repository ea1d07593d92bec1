"""Examples in the docstrings of the core: whoever embeds it builds these, and each says how, and truly."""

import doctest
import inspect

import pytest

from adaptive_eval import core

BUILT = (
    core.Baseline, core.Bench, core.Best, core.Budget, core.Controller, core.Judging, core.Optimal, core.Outcome,
    core.Pairs, core.Plan, core.Ranking, core.Threshold, core.TopK, core.Trials,
)  # fmt: skip


@pytest.mark.parametrize("built", BUILT, ids=lambda built: built.__name__)
def test_what_is_built_to_embed_the_core_has_an_example_that_holds(built: type) -> None:
    docstring = inspect.getdoc(built) or ""
    test = doctest.DocTestParser().get_doctest(docstring, {}, built.__name__, None, 0)
    assert "Examples:" in docstring and test.examples
    output: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=output.append)
    assert "".join(output) == ""
