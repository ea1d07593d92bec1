"""Judges that score by criteria or compare answers, labels of their runs, and configurations that are refused."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from command_line import typed
from live_runs import Site, judge_at, models_at, small_world, stored
from stored_runs import events_in, stored_results

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.asked import GraderServer
from adaptive_eval.graders.asking import AskingPool, VerifierPool
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.judge_forms import ComparisonForm
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.graders.verifier import Verifier
from adaptive_eval.labels.session import LabelSession
from adaptive_eval.notes import ServersNoticed
from adaptive_eval.questions.types import Question
from adaptive_eval.report.label_file import LABELS_FILE
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.simulate.answering import question_rows, right_answer
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving

CRITERIA = [
    {"name": "sound", "meaning": "it says what the reference says", "weight": 0.7},
    {"name": "form", "meaning": "its answer stands in a box", "weight": 0.3},
]
SCORES = {"scores": CRITERIA}
AGAINST = {"compare_to": "other"}


def scored(site: Site, url: str, grader: dict[str, object], **changes: object) -> dict[str, object]:
    """A run whose judge is at `url`; the questions have another answer, which is right to half of them."""
    rows = list(question_rows(small_world()))
    others = [row["answer"] if at % 2 else "1000" for at, row in enumerate(rows)]
    lines = (json.dumps(row | {"other": f"\\boxed{{{other}}}"}) for row, other in zip(rows, others, strict=True))
    (site.folder / "with_others.jsonl").write_text("\n".join(lines))
    questions = {"path": "with_others.jsonl", "fields": {"metadata": ["other"]}}
    graded = {"models": models_at(url), "grader": judge_at(url, **grader)}
    return {"questions": questions, "trials": {"min": 2, "max": 4}} | graded | changes


def is_right(trial: TrialRecord) -> bool:
    return trial.answer.text.rstrip(".").endswith(f"{right_answer(trial.question)}}}")


@pytest.mark.slow
def test_a_server_that_refuses_the_schema_is_asked_line_by_line_and_noted_once(site: Site, fair_url: str) -> None:
    judge = SimulatedServer(small_world(), judge=SimulatedJudge(structured=False))
    with serving(judge) as url:
        outcome = site.finished("plain", **scored(site, url, SCORES))
    refused = judge.counts["rejected"]
    notices = [event for event in events_in(site.directory("plain"), ServersNoticed) if not event.model]
    assert [event.notice for event in notices] == ["judge_unstructured"] and 0 < refused <= 3 * 16
    assert outcome == site.finished(**scored(site, fair_url, SCORES))


@pytest.mark.slow
def test_a_schema_is_not_asked_for_beside_a_format_of_the_user(site: Site) -> None:
    server = SimulatedServer(small_world(), judge=SimulatedJudge(structured=False))
    with serving(server) as url:
        grader = {**SCORES, "sampling": {"extra_body": {"response_format": {"type": "text"}}}}
        outcome = site.finished(**scored(site, url, grader, trials={"min": 2, "max": 2}))
    assert server.counts["rejected"] == 0 and None not in outcome.outcomes.values()


@pytest.mark.slow
@pytest.mark.parametrize(("bias", "expected"), [(0.3, {"better", "tie", "worse"}), (1.0, {"tie"})])
def test_a_judge_with_position_bias_is_reported_and_moves_no_score(site: Site, bias: float, expected: set[str]) -> None:
    """A judge that always prefers the first calls every comparison a tie, and the report gives its bias."""
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge(position_bias=bias))) as url:
        site.finished(**scored(site, url, AGAINST, trials={"min": 4, "max": 4}))
    trials = stored(site)
    assert {trial.signals["verdict"] for trial in trials} == expected
    depend = [float(trial.signals["order_dependent"]) for trial in trials]
    match = re.search(r"([\d.]+)% depend on the order .*, by ([\d.]+)% in favour of the first", site.report())
    assert match is not None and float(match[1]) == pytest.approx(100 * sum(depend) / len(depend), abs=0.06)
    assert float(match[2]) > 10
    # what both orders say is never the verdict of a place: a wrong answer never beats a right one
    right_others = {f"q{at}" for at in range(8) if at % 2}
    for trial in trials:
        worst = "better" if not is_right(trial) else "worse"
        assert trial.signals["verdict"] != worst or is_right(trial) != (trial.question in right_others)
    shown = LabelSession(site.directory(), 4).current  # who labels a comparison sees both answers
    assert shown is not None and shown.texts["compared with"].startswith("\\boxed{") and shown.texts["answer"]


def test_questions_without_an_answer_to_compare_with_are_refused_before_any_request(site: Site, fair_url: str) -> None:
    config = site.write(**scored(site, fair_url, AGAINST))
    with (site.folder / "with_others.jsonl").open("a") as file:
        file.write("\n" + json.dumps({"id": "q1000", "prompt": "Which?", "answer": "7", "other": " "}))
    refused = site.run(config, code=ExitCode.CONFIGURATION)
    assert "has no answer in other to compare with; see grader.compare_to" in refused.output
    assert not site.directory().exists()


def test_equal_and_empty_answers_are_decided_without_a_judge() -> None:
    form = ComparisonForm(compare_to="other")

    def decided(answer: str, other: str) -> tuple[str, ...] | None:
        return form.decided(Question("q", "Which?", "7", metadata={"other": other}), answer, 1024)

    assert decided("It is 7.", "It is 7.\n") == ("tie",) and decided(" ", "") == ("tie",)
    assert decided("It is 7.", "") == ("better",) and decided("", "It is 7.") == ()
    assert decided("It is 7.", "It is 8.") is None
    asked = Question("q", "Which?", "7", metadata={"other": "b"})
    assert Counter(texts["first"] for texts in form.shown(asked, "mine")) == {"mine": 1, "b": 1}


@pytest.mark.slow
def test_labels_of_several_criteria_are_asked_one_by_one(site: Site, fair_url: str) -> None:
    site.finished(**scored(site, fair_url, SCORES, trials={"min": 4, "max": 4}))
    session = LabelSession(site.directory(), 3)
    now, levels = session.current, ("not met", "met")
    assert now is not None
    assert [(field.name, field.levels) for field in now.fields] == [("sound", levels), ("form", levels)]
    assert session.label("not met, met")
    session.skip()
    assert session.label("met, met") and not session.label("met")
    lines = [json.loads(line) for line in (site.directory() / LABELS_FILE).read_text().splitlines()]
    assert [line["label"] for line in lines] == ["not met, met", "met, met"]
    labels = ["model,question,trial,label"]
    for trial in stored(site):
        labels.append(f'{trial.model},{trial.question},{trial.trial},"{"met" if is_right(trial) else "not met"}, met"')
    (site.folder / "labels.csv").write_text("\n".join(labels))
    typed("label", site.directory(), "--from", site.folder / "labels.csv", code=0)
    labelled = stored_results(site.directory()).labelled
    assert labelled is not None and labelled.levels == ("met, met", "not met, met")
    assert all(model.corrected == pytest.approx(model.score) and not model.disagreements for model in labelled.models)
    (site.folder / "bad.csv").write_text('model,question,trial,label\nada,q0,0,"met"')
    refused = typed("label", site.directory(), "--from", site.folder / "bad.csv")
    assert refused.exit_code == ExitCode.CONFIGURATION and "one of not met | met" in " ".join(refused.output.split())


SERVER = {"base_url": "http://127.0.0.1:9/v1", "model": "grader"}
UNPRICED = {"server": {**SERVER, "api_key_env": "KEY"}}
TWO_TOKENS = {"sampling": {"extra_body": {"top_logprobs": 2}}}
GOOD_OR_BAD = [{"name": "good"}, {"name": "bad"}]
MANY = [{"name": f"sound{at}", "weight": 2.0**at} for at in range(7)]
MISSPELT = {"categories": [{"name": "a", "weight": 1, "when": {"sond0": "met"}}, {"name": "b", "weight": 0}]}


@pytest.mark.parametrize(
    ("kind", "grader", "changes", "error"),
    [
        ("judge", {"votes": 0}, {}, "grader.votes"),
        ("judge", {"votes": 2}, {}, "has an even number of votes, 2"),
        ("judge", {"template": "Grade it: {question}"}, {}, "must have {answer} once"),
        ("judge", {"verdicts": [{"name": "good"}, {"name": "Good"}]}, {}, "must have different names"),
        ("judge", {"verdicts": [{"name": "good", "correct": True}, {"name": "bad"}]}, {}, "either all or none"),
        ("judge", {"verdicts": GOOD_OR_BAD}, {}, "needs the signal is_correct"),
        ("judge", UNPRICED, {"budget": {"usd": 1.0}}, "needs price of the judge"),
        ("judge", {"compare_to": "nothing"}, {}, "must be a field of the questions that is kept"),
        ("judge", {"scores": MANY}, {}, "more than 64 different sums"),
        ("judge", {"scores": MANY[:2]}, {"rubric": MISSPELT}, "did you mean `sound0`?"),
        ("judge", {"server": [SERVER, {**SERVER, "votes": 3}]}, {}, "grader.server[1].votes is not a known key"),
        ("judge", {"sampling": {"temprature": 1}}, {}, "did you mean `temperature`?"),
        ("verifier", TWO_TOKENS, {}, "must request at least three tokens"),
        ("verifier", {"sampling": {"logprobs": False}}, {}, "grader.sampling.logprobs"),
        ("verifier", {"key_grader": "judge"}, {}, "grader.key_grader"),
        ("verifier", {"server": [SERVER, SERVER]}, {}, "must be a single server"),
        ("verifier", {"template": "Grade it: {question}"}, {}, "must have {answer} once"),
        ("verifier", UNPRICED, {"budget": {"usd": 1.0}}, "needs price of the verifier"),
        ("verifier", {}, {"rubric": "format_aware"}, "needs the signal has_box"),
    ],
)
def test_configurations_that_cannot_grade_are_refused_before_anything_is_asked(
    site: Site, kind: str, grader: dict[str, object], changes: dict[str, object], error: str
) -> None:
    graded = {"kind": kind, "server": SERVER, **grader}
    refused = typed("validate", site.write(grader=graded, trials={"min": 2, "max": 4}, **changes))
    assert refused.exit_code == ExitCode.CONFIGURATION and error in re.sub(r"\s+", " ", refused.output)


NOBODY = GraderServer(base_url="http://127.0.0.1:1/v1", model="grader")


@pytest.mark.parametrize("kind", ["judge", "verifier"])
async def test_an_empty_answer_is_sent_to_nobody(tmp_path: Path, kind: str) -> None:
    rubric = open_rubric(RubricConfig())
    pool: AskingPool | VerifierPool = (
        AskingPool(Judge(server=NOBODY), rubric, folder=tmp_path, keys={})
        if kind == "judge"
        else VerifierPool(Verifier(server=NOBODY), rubric, folder=tmp_path, keys={})
    )
    answer = Answer(text=" \n", finish_reason="stop", seed=1, replica="r", latency=1.0)
    signals = (await pool.grade(answer, Question("q", "?", "1"))).signals
    await pool.close()
    if kind == "judge":
        assert signals["verdict"] == ""
    else:
        assert [signals[f"verifier_{label}"] for label in "abc"] == [0.0, 0.0, 1.0]
        assert signals["verdict"] == "invalid"
