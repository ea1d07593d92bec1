"""`logprobs: tokens`: every token with its log-probability, stored and exported with its answer."""

import json
import math
from collections.abc import Iterator

import pytest
from live_runs import ENDED, MODELS, RunOutcome, Site, small_world, stored
from typer.testing import CliRunner

from adaptive_eval.base.errors import StoreError
from adaptive_eval.cli import app
from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.simulate.answering import split_tokens
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.store.packing import pack_json, pack_logprobs, unpack_logprobs
from adaptive_eval.store.verify import Integrity

KEPT = {"temperature": 0.6, "max_tokens": 2000, "logprobs": "tokens"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SimulatedServer(small_world())) as url:
        yield url


def settings(url: str, **changes: object) -> dict[str, object]:
    models = [{"name": name, "base_url": url} for name in MODELS[:2]]
    return {"models": models, "sampling": KEPT, "trials": {"min": 2, "max": 3}, "concurrency": 64} | changes


def logprobs_of(trial: TrialRecord) -> AnswerLogprobs:
    assert trial.answer.token_logprobs is not None
    return trial.answer.token_logprobs


def bits(values: list[float]) -> float:
    return -sum(values) / len(values) / math.log(2.0)


def require_whole(trials: list[TrialRecord]) -> None:
    """The tokens are those of the text, their mean is the one that is stored."""
    assert trials
    for trial in trials:
        tokens, values = logprobs_of(trial)
        assert list(tokens) == split_tokens(trial.answer.text)
        numbers = [value for value in values if value is not None]
        assert len(numbers) == len(tokens) and trial.answer.completion_bpt is not None
        assert bits(numbers) == pytest.approx(trial.answer.completion_bpt, abs=1e-4)


@pytest.mark.slow
def test_every_token_is_kept_and_exported(site: Site, url: str) -> None:
    assert site.run(site.write(**settings(url))).exit_code in ENDED
    trials = stored(site)
    require_whole(trials)
    assert Integrity.check(site.directory()).damages == ()
    plain = site.write("plain", **settings(url, sampling={**KEPT, "logprobs": True}))
    assert site.run(plain, "--run-dir", str(site.directory("plain"))).exit_code in ENDED
    assert RunOutcome.of(site.directory("plain")) == RunOutcome.of(site.directory())
    assert all(trial.answer.token_logprobs is None for trial in stored(site, "plain"))
    place = site.folder / "rows.jsonl"
    done = CliRunner().invoke(app, ["export", str(site.directory()), "--format", "jsonl", "--output", str(place)])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in place.read_text().splitlines()]
    assert [row["token_logprobs"]["tokens"] for row in rows] == [list(logprobs_of(trial).tokens) for trial in trials]


@pytest.mark.parametrize(
    "stored",
    [b"", b"no zlib", "text", *map(pack_json, ([], [["a"], []], [[1], [1]], {"a": 1}, [["a"], ["b"]], 7))],
)
def test_corrupt_token_logprobs_are_refused(stored: object) -> None:
    with pytest.raises(StoreError):
        unpack_logprobs(stored)


def test_log_probabilities_keep_four_decimals_and_may_be_unknown() -> None:
    given = AnswerLogprobs(("\ud800", "b", "c"), (-0.123456, None, -9999.0))
    assert unpack_logprobs(pack_logprobs(given)) == AnswerLogprobs(given.tokens, (-0.1235, None, -9999.0))
