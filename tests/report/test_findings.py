"""What a run has found is one value, and every display draws all of it."""

import re

import pytest
from page_views import simulated, world

from adaptive_eval.report.findings import find, findings_of_view
from adaptive_eval.report.next_steps import Advice
from adaptive_eval.report.records import Spending
from adaptive_eval.report.used import Used
from adaptive_eval.show.markdown import markdown, pull_request, summary
from adaptive_eval.show.page.sent import page_view


@pytest.mark.parametrize("objective", ["ranking", "best", {"kind": "baseline", "baseline": "b"}])
def test_every_display_draws_the_same_findings(objective: object) -> None:
    view = simulated(world("abcd", 6), objective=objective, trials={"min": 4, "max": 8})
    found = findings_of_view(view)
    assert page_view(view).findings == found and found.headline and found.ended and found.promise
    for text in (markdown(view), pull_request(view), summary(view)):
        plain = re.sub(r"\\([^a-zA-Z0-9\s])", r"\1", text)
        for sentence in (*found.headline, found.ended, found.cost, found.promise):
            assert sentence in plain, sentence


def test_a_gate_that_has_said_its_end_says_it_once() -> None:
    gate = {"kind": "baseline", "baseline": "b", "gate": True}
    view = simulated(world("ab", 8), objective=gate, stopping={"delta": "4%"})
    found = findings_of_view(view)
    assert found.ended is None and found.state in ("PASS", "FAIL") and found.headline[0].startswith(found.state)
    assert summary(view).count(found.headline[0]) == 1


def test_before_the_first_look_there_is_the_end_what_was_used_and_what_to_do() -> None:
    step = Advice("raise the budget")
    used = Used(Spending(0.0, 5, 150, 0.5, 0.0), ungraded=1, elapsed=3.0)
    found = find(None, used, "Killed: the process died.", [step])
    graded = ("There is no look yet: 4 trials are graded.", "1 more answer has no grade.")
    assert (found.state, found.headline) == ("killed", graded)
    assert found.cost == "5 trials, 150 tokens, $0.50, 3s" and found.steps == (step,)
    assert find(None, Used()).state == "running" and not find(None, Used()).cost
