"""Labels that a configuration names: each start takes over what is new in them."""

from contextlib import closing
from pathlib import Path

import pytest
from live_runs import ENDED, Found, Site
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.errors import ExitCode
from adaptive_eval.record.labels import Labelled, add_labels, read_labels
from adaptive_eval.store import LabelsTaken, RunReader, events_of_kind
from adaptive_eval.store.database import DATABASE_FILE

HEAD = "model,question,trial,label\n"
GIVEN = {"report": {"labels": "given.csv"}, "trials": {"min": 4, "max": 4}}


def give(site: Site, *rows: str) -> None:
    (site.folder / "given.csv").write_text(HEAD + "".join(f"{row}\n" for row in rows))


def test_each_start_takes_what_is_new_and_what_was_said_since_stands(site: Site) -> None:
    give(site, "ada,q0,0,correct", "ada,q1,0,wrong")
    config = site.write(**GIVEN)
    ended = site.run(config)
    assert ended.exit_code in ENDED and "2 labels are taken from given.csv" in ended.stdout
    found = Found.of(site.directory())
    first, second = Labelled("ada", "q0", 0), Labelled("ada", "q1", 0)
    add_labels(site.directory(), {first: "wrong"})
    give(site, "ada,q0,0,correct", "ada,q1,0,correct", "bob,q1,3,wrong")
    assert "2 labels are taken from given.csv" in site.run(config).stdout
    assert read_labels(site.directory()) == {first: "wrong", second: "correct", Labelled("bob", "q1", 3): "wrong"}
    again = site.run(config)
    assert again.exit_code in ENDED and "labels are taken" not in again.stdout
    assert Found.of(site.directory()) == found
    with closing(RunReader.open(site.directory())) as reader:
        assert [(one.labels, one.file) for one in events_of_kind(reader.events(), LabelsTaken)] == [
            (2, "given.csv"),
            (2, "given.csv"),
        ]
    report = CliRunner().invoke(app, ["report", str(site.directory()), "--format", "md", "--output", "-"]).stdout
    assert "## Beside labels" in report and "3 answers have a label" in report


def test_whoever_only_reads_a_run_opens_no_file_that_it_names(site: Site) -> None:
    give(site, "ada,q0,0,correct")
    assert site.run(site.write(**GIVEN)).exit_code in ENDED
    give(site, "ada,q0,0,wrong", "ada,q1,0,wrong")
    told = CliRunner().invoke(app, ["label", str(site.directory()), "--show"])
    assert "1 answer has a label" in told.output
    assert list(read_labels(site.directory()).values()) == ["correct"]


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        (["ada,q0,0,good"], {}, "must be one of correct, wrong, but got 'good'"),
        (["ada,q0,first,correct"], {}, "entry 1: must have model, question, trial, label"),
        (None, {}, "is no file"),
        (["ada,q0,0,correct"], {"rubric": {"categories": [{"name": "no", "weight": 0}, {"name": "short", "weight": 1,
          "when": {"completion_tokens": {"at_most": 100}}}]}}, "goes by completion_tokens, which no label says"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_them_is_told_before_anything_is_asked(
    site: Site, rows: list[str] | None, changes: dict[str, object], message: str
) -> None:
    if rows is not None:
        give(site, *rows)
    config = site.write(**GIVEN, **changes)
    for options in ([], ["--dry-run"]):
        ended = site.run(config, *options)
        assert ended.exit_code == ExitCode.CONFIGURATION and message in ended.stderr
    assert not Path(site.directory() / DATABASE_FILE).exists()


def test_a_dry_run_counts_them(site: Site) -> None:
    give(site, "ada,q0,0,correct", "ada,q1,0,wrong")
    assert "labels    2 in given.csv" in site.run(site.write(**GIVEN), "--dry-run").stdout
