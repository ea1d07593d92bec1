"""Tasks and providers of Inspect that fail on everything: little is bought, and what it has cost is told."""

import pytest
from contrary_server import Asked, Reply, listening
from live_runs import Site, stored
from stored_runs import events_in
from task_runs import run, scripted, write
from typer.testing import Result

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.endpoints.traffic import FIRST_ATTEMPTS
from adaptive_eval.machine.follow_up import FIRST_IN_FLIGHT
from adaptive_eval.notes import AnswersLost, ModelSetAside
from adaptive_eval.report.results import Results
from adaptive_eval.report.results_file import read_results

EACH = 10
"""Tokens of an answer of a scripted model."""

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_pauses", "task_file")]


def ask(site: Site, task: str, models: list[dict[str, object]], **changes: object) -> Result:
    config = write(site, task, models=models, trials={"min": 4, "max": 8, "optimize": "cost"}, **changes)
    return run(site, config)


def lost(site: Site, model: str) -> tuple[int, int]:
    """The answers of a model that count for nothing, and their tokens."""
    events = [event for event in events_in(site.directory(), AnswersLost) if event.model == model]
    assert not any(event.estimated for event in events), "Inspect says what they used"
    return sum(event.answers for event in events), sum(event.tokens for event in events)


def test_a_scorer_that_always_fails_is_noticed_on_the_first_samples_which_are_in_the_cost(site: Site) -> None:
    ended = ask(site, "unscored", scripted("p95", "p10"))
    assert ended.exit_code == ExitCode.ENDPOINTS, ended.output
    assert f"failed {FIRST_ATTEMPTS} times; the last error: KeyError('verdict')" in ended.output
    assert "Stopped: no usable answer came from any model: " in ended.output, "the models did answer"
    assert not stored(site)
    tokens = 0
    for model in ("p95", "p10"):
        answers, used = lost(site, model)
        assert FIRST_IN_FLIGHT <= answers <= FIRST_IN_FLIGHT * FIRST_ATTEMPTS and used == EACH * answers
        tokens += used
    assert f"{tokens:,} tokens on failed attempts at answers of 2 models" in ended.output
    assert "attempts at an answer failed, and used " in ended.output


def test_a_scorer_that_fails_on_one_model_is_noticed_on_its_first_samples(site: Site) -> None:
    ended = ask(site, "unscored", scripted("p95", "p80", "p10"), benchmark={"args": {"model": "p10"}})
    assert ended.exit_code in (ExitCode.SPENT, ExitCode.ENDPOINTS), ended.output
    assert [event.model for event in events_in(site.directory(), ModelSetAside)] == ["p10"]
    answers, used = lost(site, "p10")
    assert answers <= FIRST_IN_FLIGHT * FIRST_ATTEMPTS and used == EACH * answers
    results = read_results(site.directory())
    assert isinstance(results, Results) and results.cost.tokens == EACH * len(stored(site))
    beside = [(row.what, row.model, row.answers, row.tokens) for row in results.cost.beside]
    assert beside == [("failed", "p10", answers, used)]


def test_known_usage_of_failed_samples_counts_against_a_cap(site: Site) -> None:
    """Each is reserved at 50 tokens, and has used 10."""
    capped = {"sampling": {"max_tokens": 50}, "budget": {"tokens": 3 * 50 + 2 * EACH}}
    ended = ask(site, "unscored", scripted("p95", "p10"), concurrency=1, **capped)
    assert ended.exit_code in (ExitCode.ENDPOINTS, ExitCode.SPENT), ended.output
    answers = [lost(site, model) for model in ("p95", "p10")]
    assert sum(used for _, used in answers) == EACH * sum(number for number, _ in answers) <= 3 * 50 + 2 * EACH


def test_a_provider_that_refuses_requests_ends_the_run_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(asked: Asked) -> Reply | None:
        return Reply(404, {"error": {"message": "Not RunOutcome", "code": 404}})

    monkeypatch.setenv("OPENAI_API_KEY", "key-1234567890")
    with listening(refuse) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        models: list[dict[str, object]] = [{"name": name, "inspect": f"openai/{name}"} for name in ("ada", "bob")]
        ended = ask(site, "exactly", models, benchmark={"args": {"number": 8}})
        # Inspect has a request of its own to each model
        assert len(server.statuses) <= (FIRST_IN_FLIGHT + 1) * len(models)
    assert ended.exit_code == ExitCode.ENDPOINTS, ended.output
    assert ended.output.count("its provider refuses requests: ") == len(models), ended.output
    assert "Error code: 404" in ended.output and "args: {responses_api: false}" in ended.output
    assert "openai-api/SERVICE/ada" in ended.output
    assert not events_in(site.directory(), AnswersLost), "what is refused costs nothing"
