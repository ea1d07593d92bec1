"""The rule `published` from the configuration to the report, through a kill, a resume and a raised horizon."""

from typing import Any

from live_runs import Site
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.report.view import read_view
from adaptive_eval.show.markdown import markdown

TRIALS = {"policy": "unresolved_pairs", "optimize": "cost"}
PUBLISHED: dict[str, Any] = {"stopping": {"rule": "published"}, "trials": TRIALS, "seed": 4}


NONE = "promise: none for repeated looks"


def latest(site: Site) -> dict[str, Any]:
    document: dict[str, Any] = site.results()
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
