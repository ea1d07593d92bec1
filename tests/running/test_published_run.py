"""The rule `published` from the configuration to the report, through a kill, a resume and a raised horizon."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from live_runs import Site
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.core.judge import DecidingLooks
from adaptive_eval.report.view import read_view
from adaptive_eval.show.markdown import markdown

TRIALS = {"policy": "unresolved_pairs", "optimize": "cost"}
PUBLISHED: dict[str, Any] = {"stopping": {"rule": "published"}, "trials": TRIALS, "seed": 4}


def published(**trials: int) -> dict[str, Any]:
    """The settings of the paper with this many trials."""
    return PUBLISHED | {"trials": TRIALS | trials}


NONE = "promise: none for repeated looks"


def latest(site: Site) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((site.directory() / "results.json").read_text())
    return document


def test_the_published_rule_says_throughout_that_it_promises_nothing(site: Site) -> None:
    config = site.write(**PUBLISHED)
    checked = CliRunner().invoke(app, ["validate", str(config)])
    assert NONE in checked.stdout
    done = site.run(config)
    assert f"run: running\n{NONE}" in done.stdout
    assert "promise   none for repeated looks" in done.stdout
    assert [warning["kind"] for warning in latest(site)["warnings"]].count("peeking") == 1
    view = read_view(site.directory())
    text = markdown(view)
    assert "As published with Bayes@N" in view.words.rule and "Models are compared and ranked by Bayes@N" in text
    assert "Decisions use Bayes@N." in text and "use avg@N" not in text
    assert latest(site)["decisions"]["stopping"]["rule"] == "published"


@pytest.mark.slow
def test_the_default_rule_says_what_it_promises(site: Site) -> None:
    config = site.write()
    checked = CliRunner().invoke(app, ["validate", str(config)])
    assert "promise: per pair, at most 5% risk of a wrong order" in checked.stdout
    assert "Decisions use avg@N." in markdown(read_view(site.directory())) if site.run(config) else False


def test_a_call_is_reported_with_the_look_since_which_it_holds() -> None:
    """A rule that judges again withdraws a call; a later call is reported with its own look."""
    rule, decided = SimpleNamespace(boundary=lambda evidence: np.array([1.645])), DecidingLooks.blank(1)
    calls = []
    for look, call in enumerate((1, 0, 1, 1), 1):
        memory = SimpleNamespace(call=np.array([call]), tie=np.zeros(1, np.int8))
        evidence = SimpleNamespace(z=np.array([-float(look)]))
        decided = decided.with_look(look, memory, evidence, rule)  # type: ignore[arg-type]
        calls.append((int(decided.latched[0]), int(decided.look[0]), float(decided.z[0]), float(decided.boundary[0])))
    assert calls[1][0] == 0, "it was taken back"
    assert calls[3] == calls[2] == (1, 3, 3.0, 1.645)


@pytest.mark.slow
def test_a_run_that_is_resumed_with_the_published_rule_says_so(site: Site) -> None:
    site.run(site.write(seed=4, trials={"min": 2, "max": 4}))
    site.run(site.write(**published(min=2, max=4)))
    texts = [warning["text"] for warning in latest(site)["warnings"] if warning["kind"] == "redecided"]
    assert len(texts) == 1 and "stopping.rule: optimal → published" in texts[0]
