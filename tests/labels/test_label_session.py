"""Labelling answer by answer: what is shown, and what is on disk after every step."""

from pathlib import Path

import pytest
from live_runs import MODELS, EndedRuns, Site

from adaptive_eval.labels.session import LabelSession
from adaptive_eval.report.label_file import read_labels


@pytest.fixture
def run(site: Site, ended_runs: EndedRuns) -> Path:
    return ended_runs.copy(site, trials={"min": 4, "max": 4})


def test_every_label_is_on_disk_before_the_next_answer_is_shown(run: Path) -> None:
    session = LabelSession(run, 3)
    seen = []
    for place in (1, 2, 3):
        now = session.current
        assert now is not None and (now.place, now.number, now.earlier_label) == (place, 3, None)
        assert [(field.name, field.levels) for field in now.fields] == [("verdict", ("correct", "wrong"))]
        assert not [name for name in MODELS if name in "".join(now.texts.values())]
        seen.append(now.texts["answer"])
        assert len(read_labels(run)) == place - 1
        assert not session.label("correct, wrong") and not session.label("good")
        assert session.label("wrong")
    assert session.current is None and len(set(seen)) == 3
    assert [given.label for given in read_labels(run).values()] == ["wrong"] * 3


def test_after_going_back_another_label_may_be_given(run: Path) -> None:
    session = LabelSession(run, 30)
    session.go_back()  # there is nothing before the first
    session.label("correct")
    session.skip()
    session.go_back()
    session.go_back()
    now = session.current
    assert now is not None and (now.place, now.earlier_label) == (1, "correct")
    session.skip()  # leaves what was said
    (given,) = read_labels(run).values()
    assert given.label == "correct"
    session.go_back()
    session.label("wrong")
    assert [given.label for given in read_labels(run).values()] == ["wrong"]
    now = session.current
    assert now is not None and (now.place, now.earlier_label) == (2, "")
    session.label("correct")
    assert len(read_labels(run)) == 2


def test_a_session_ends_with_the_answers(run: Path) -> None:
    first = LabelSession(run, 1000)
    number = 0
    while first.current is not None:
        number += first.label("correct")
    assert number == len(read_labels(run)) == 3 * 8 * 4
    assert LabelSession(run, 5).current is None
