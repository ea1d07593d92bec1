"""Labels of runs whose judge compares or scores by criteria, or that a verifier grades."""

import json
import shutil

import pytest
from live_runs import ENDED, Site, stored
from test_compared_with_run import earlier_run
from test_compared_with_run import settings as compared
from test_judge_forms import SCORES, is_right
from test_judge_forms import settings as scored
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.labels.session import LabelSession
from adaptive_eval.report.label_file import LABELS_FILE
from adaptive_eval.report.labelled import LabelledRun
from adaptive_eval.report.stored import open_run


def labelled(site: Site) -> LabelledRun:
    """What the labels of the run say."""
    with open_run(site.directory()) as opened:
        results = opened.results(running=False)
    assert results is not None and results.labelled is not None
    return results.labelled


@pytest.mark.slow
def test_labelling_a_comparison_shows_both_answers_even_without_the_earlier_run(site: Site, fair_url: str) -> None:
    others = earlier_run(site, fair_url)
    assert site.run(site.write(**compared(site, fair_url))).exit_code in ENDED
    shutil.rmtree(site.directory("earlier"))
    shown = LabelSession(site.directory(), 4).current
    assert shown is not None
    assert shown.texts["compared with"] in set(others.values()) and shown.texts["answer"] != ""


@pytest.mark.slow
def test_labels_of_several_criteria_are_asked_one_by_one(site: Site, fair_url: str) -> None:
    config = site.write(**scored(site, fair_url, SCORES, trials={"min": 4, "max": 4}))
    assert site.run(config).exit_code in ENDED
    session = LabelSession(site.directory(), 3)
    now = session.current
    levels = ("not met", "met")
    assert now is not None and [(field.name, field.levels) for field in now.fields] == [
        ("sound", levels),
        ("form", levels),
    ]
    assert session.label("not met, met")
    session.skip()
    assert session.label("met, met") and not session.label("met")
    lines = [json.loads(line) for line in (site.directory() / LABELS_FILE).read_text().splitlines()]
    assert [line["label"] for line in lines] == ["not met, met", "met, met"]
    labels = ["model,question,trial,label"]
    for trial in stored(site):
        labels.append(f'{trial.model},{trial.question},{trial.trial},"{"met" if is_right(trial) else "not met"}, met"')
    (site.folder / "labels.csv").write_text("\n".join(labels))
    result = CliRunner().invoke(app, ["label", str(site.directory()), "--from", str(site.folder / "labels.csv")])
    assert result.exit_code == 0, result.output
    stored_labels = labelled(site)
    assert stored_labels.levels == ("met, met", "not met, met")
    assert all(
        model.corrected == pytest.approx(model.score) and model.disagreements == 0 for model in stored_labels.models
    )
    (site.folder / "bad.csv").write_text('model,question,trial,label\nada,q0,0,"met"')
    refused = CliRunner().invoke(app, ["label", str(site.directory()), "--from", str(site.folder / "bad.csv")])
    assert refused.exit_code == ExitCode.CONFIGURATION and "one of not met | met" in " ".join(refused.output.split())
