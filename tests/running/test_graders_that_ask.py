"""What a judge and a verifier have in common: configurations they refuse, and answers they never send."""

import asyncio
import re
from pathlib import Path

import pytest
from live_runs import MODELS, Site
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.asked import GraderServer
from adaptive_eval.graders.asking import AskingPool
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.graders.types import Grade
from adaptive_eval.graders.verifier import Verifier
from adaptive_eval.graders.verifying import VerifierPool
from adaptive_eval.questions.types import Question

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
        ("judge", {"compare_to": {"model": "bob"}}, {}, "must name the run with the model's answers; run that model"),
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
    models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in MODELS]
    graded = {"kind": kind, "server": SERVER, **grader}
    config = site.write(models=models, grader=graded, trials={"min": 2, "max": 4}, **changes)
    refused = CliRunner().invoke(app, ["validate", str(config)])
    assert refused.exit_code == ExitCode.CONFIGURATION and error in re.sub(r"\s+", " ", refused.output)


NOBODY = GraderServer(base_url="http://127.0.0.1:1/v1", model="grader")


@pytest.mark.parametrize("kind", ["judge", "verifier"])
def test_an_empty_answer_is_sent_to_nobody(tmp_path: Path, kind: str) -> None:
    rubric = open_rubric(RubricConfig())

    async def graded() -> Grade:
        if kind == "judge":
            pool = AskingPool(Judge(server=NOBODY), rubric, folder=tmp_path, keys={})
        else:
            pool = VerifierPool(Verifier(server=NOBODY), rubric, folder=tmp_path, keys={})
        answer = Answer(text=" \n", finish_reason="stop", seed=1, replica="r", latency=1.0)
        try:
            return await pool.grade(answer, Question("q", "?", "1"))
        finally:
            await pool.close()

    signals = asyncio.run(graded()).signals
    if kind == "judge":
        assert signals["verdict"] == ""
    else:
        assert [signals[f"verifier_{label}"] for label in "abc"] == [0.0, 0.0, 1.0]
        assert signals["verdict"] == "invalid"
