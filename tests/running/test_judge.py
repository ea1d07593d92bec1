"""Runs whose answers are graded by a judge: over HTTP, with kills, caps, errors, and missing verdicts."""

import asyncio
import re
import signal
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from contrary_server import Asked, Reply, listening
from gated import GatedServer
from live_runs import ENDED, MODELS, RunOutcome, Site, kill, small_world, stored, wait_for_trials, wait_until
from scripted_server import scripted_server
from stored_runs import events_in
from typer.testing import CliRunner
from warm_start import WarmProcess

from adaptive_eval.base.errors import ExitCode, JudgeFailed
from adaptive_eval.cli import app
from adaptive_eval.endpoints import connection
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.asked import GraderSampling, GraderServer
from adaptive_eval.graders.asking import AskingPool
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.graders.types import Grade
from adaptive_eval.machine.charges import Charge, ChargeKind
from adaptive_eval.machine.follow_up import FIRST_ANSWERS
from adaptive_eval.machine.trial import UNGRADED, GradeDetails, Trial
from adaptive_eval.notes import AnswersLost, events_of_kind
from adaptive_eval.questions.types import Question
from adaptive_eval.report.costs import further_costs
from adaptive_eval.report.lines import count
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import AWAITS_VERDICT
from adaptive_eval.report.results import GradingCost
from adaptive_eval.report.results_file import read_results
from adaptive_eval.report.stored import open_run
from adaptive_eval.simulate.faults import Faults
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.store.read import LogReader
from adaptive_eval.store.redact import redact_trial


def judged_by(url: str, cost: Mapping[str, object] | None = None, **changes: object) -> dict[str, object]:
    """`cost`: what the server says of its price and GPUs."""
    return {"kind": "judge", "server": {"base_url": url, "model": "judge", **(cost or {})}, **changes}


def settings(url: str, **changes: object) -> dict[str, object]:
    models = [{"name": name, "base_url": url} for name in MODELS]
    return {"models": models, "grader": judged_by(url), "trials": {"min": 2, "max": 4}} | changes


def grading_is_told(site: Site) -> GradingCost:
    """What grades have used: the sum over the stored answers, live and computed again."""
    results = read_results(site.directory())
    assert results is not None and results.cost.grading is not None
    total, trials = results.cost.grading, [trial for trial in stored(site) if trial.category is not None]
    used = [[float(trial.signals[f"judge_{what}"]) for trial in trials] for what in ("usd", "gpu_seconds")]
    tokens = [trial.signals[f"judge_{kind}_tokens"] for trial in trials for kind in ("prompt", "completion")]
    assert (total.answers, total.tokens) == (len(trials), sum(map(float, tokens)))
    assert [total.usd, total.gpu_seconds] == pytest.approx([sum(amounts) for amounts in used])
    gradings = [row.grading for row in results.models if row.grading is not None]
    assert sum(grading.tokens for grading in gradings) == total.tokens
    with open_run(site.directory()) as read:
        anew = read.results(running=False)
    assert anew is not None and anew.cost.grading is not None
    assert anew.cost.grading.tokens == total.tokens and anew.cost.grading.usd == pytest.approx(total.usd)
    return total


def assert_sums_up(site: Site) -> None:
    """A model's answers by themselves, their grades, and verdicts in vain have used all that is counted of it."""
    results, spent = read_results(site.directory()), Counter[str]()
    assert results is not None
    for trial in stored(site):
        spent[trial.model] += trial.answer.prompt_tokens + trial.answer.completion_tokens
    for row in results.models:
        assert row.grading is not None
        more = 0 if row.grading.in_vain is None else row.grading.in_vain.tokens
        assert row.tokens == spent[row.name] + row.grading.tokens + more
    assert results.cost.tokens == sum(row.tokens for row in results.models)


@pytest.mark.slow
def test_a_judge_without_mistakes_grades_as_the_grader_does(site: Site, fair_url: str) -> None:
    priced = judged_by(fair_url, {"price": {"input": 3.0, "output": 4.0}, "gpus": 2})
    ended = site.run(site.write(**settings(fair_url, grader=priced)))
    assert ended.exit_code in ENDED
    used = grading_is_told(site)
    assert (
        f"grading   {dict(further_costs(used, ()))['grading']}" in ended.stdout
        and used.usd > 0.0
        and used.gpu_seconds > 0.0
    )
    results = read_results(site.directory())
    assert results is not None and "judged" in {warning.kind for warning in results.warnings}
    keyed = site.write("keyed", **settings(fair_url, grader="math"))
    assert site.run(keyed, "--run-dir", str(site.directory("keyed"))).exit_code in ENDED
    assert RunOutcome.of(site.directory()) == RunOutcome.of(site.directory("keyed"))
    for trial in stored(site):
        assert trial.signals["verdict"] in ("correct", "wrong") and trial.signals["agreement"] == 1.0
        used = [trial.signals[f"judge_{kind}_tokens"] for kind in ("prompt", "completion")]
        assert trial.cost.tokens == trial.answer.prompt_tokens + trial.answer.completion_tokens + sum(map(float, used))


@pytest.mark.slow
def test_a_missing_verdict_is_no_grade_and_is_requested_again(site: Site, fair_url: str) -> None:
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge(mute=0.02))) as url:
        config = site.write(**settings(fair_url, grader=judged_by(url)))
        assert site.run(config).exit_code in ENDED
        failed = [trial for trial in stored(site) if trial.category is None]
        assert failed and all("gave no verdict" in str(trial.grader_error) for trial in failed)
        # what the judge was paid for it is counted
        assert all(trial.cost.tokens > trial.answer.prompt_tokens + trial.answer.completion_tokens for trial in failed)
        grading = grading_is_told(site)
        in_vain = grading.in_vain
        assert in_vain is not None and in_vain.verdicts == len(failed)
        assert " of it for the grades of " in dict(further_costs(grading, ()))["grading"]
        assert_sums_up(site)
    config = site.write(**settings(fair_url))  # another address of the judge changes no meaning
    assert site.run(config).exit_code in ENDED
    assert all(trial.category is not None for trial in stored(site))
    assert grading_is_told(site).in_vain == in_vain, "it stays spent"
    assert_sums_up(site)
    plain = site.write("plain", **settings(fair_url))
    site.run(plain, "--run-dir", str(site.directory("plain")))
    mended, never = RunOutcome.of(site.directory()).outcomes, RunOutcome.of(site.directory("plain")).outcomes
    common = mended.keys() & never.keys()
    assert common and all(mended[key] == never[key] for key in common)


@pytest.mark.slow
def test_a_judge_without_verdicts_ends_the_run_soon_and_one_that_thinks_first_grades(site: Site, fair_url: str) -> None:
    replies = ["<think>I cannot decide"]
    with scripted_server(("judge",), lambda model, question, seed: replies[seed % len(replies)]) as server:
        grader = judged_by(server.base_url, concurrency={"in_flight": 1})
        both = [{"name": name, "base_url": fair_url} for name in MODELS[:2]]
        config = site.write(**settings(fair_url, grader=grader, models=both))
        for _ in range(2):  # of the second start, these are the ones that the first has stored
            ended = site.run(config)
            output = " ".join(ended.output.split())
            assert ended.exit_code == ExitCode.ENDPOINTS, output
            assert re.search(r"none of the first 1\d answers could be graded.* its reply has only reasoning", output), (
                output
            )
            assert FIRST_ANSWERS <= len(server.requests) < 24
            server.requests.clear()
            assert all(trial.category is None for trial in stored(site))
        said_first = '<think>{"verdict": "neither"}?</think>It is '
        replies[:] = [f'{said_first}{{"verdict": "{verdict}"}}' for verdict in ("correct", "wrong")]
        assert site.run(config).exit_code in ENDED
        assert {trial.signals["verdict"] for trial in stored(site)} == {"correct", "wrong"}
        replies[:] = ["no"]  # one that has given verdicts is not taken to be mute
        site.run(site.write(**settings(fair_url, grader=grader)))  # a model joins
        assert sum(trial.category is None for trial in stored(site)) >= FIRST_ANSWERS


@pytest.mark.slow
def test_a_kill_counts_no_verdict_that_was_not_requested_yet(site: Site, fair_url: str) -> None:
    """Answers come faster than the judge, of which two at a time are asked for: the others wait on this side."""
    with serving(GatedServer(small_world(), 3, judge=SimulatedJudge())) as url:
        slow_judge = judged_by(url, concurrency={"in_flight": 2})
        capped = {"budget": {"tokens": 10_000_000}, "concurrency": 64}
        process = site.start(site.write(**settings(fair_url, grader=slow_judge, **capped)))
        assert wait_for_trials(site.directory(), 20, process)
        kill(process)
    assert sum(trial.grader_error == AWAITS_VERDICT for trial in stored(site)) >= 17
    assert site.run(site.write(**settings(fair_url, **capped))).exit_code in ENDED  # with 16 at a time
    with closing(RunReader.open(site.directory())) as reader:
        losses = [event for event in events_of_kind(reader.events(), AnswersLost) if event.verdicts]
        spent = sum(row.tokens for row in reader.sums())
    assert sum(loss.verdicts for loss in losses) == 2
    used = sum(trial.answer.prompt_tokens + trial.answer.completion_tokens for trial in stored(site))
    assert spent == used + grading_is_told(site).tokens, "nothing stays reserved"


@pytest.mark.slow
@pytest.mark.usefixtures("short_pauses")
def test_a_lost_reply_of_the_judge_counts_at_its_worst_case(
    site: Site, fair_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STALE_SECONDS", 0.0)  # no reset connection counts as closed while idle
    judge = SimulatedServer(small_world(), faults=Faults(reset=0.2), judge=SimulatedJudge())
    with serving(judge) as url:
        capped = {"budget": {"tokens": 100_000_000}, "concurrency": 64, "trials": {"min": 2, "max": 2}}
        grader = judged_by(url, concurrency={"in_flight": 64})
        config = site.write(**settings(fair_url, grader=grader, **capped))
        assert site.run(config).exit_code in ENDED
    losses = events_in(site.directory(), AnswersLost)
    assert sum(loss.verdicts for loss in losses) == judge.counts["reset"] > 0
    assert all(1000 * loss.verdicts < loss.tokens < 10_000 * loss.verdicts and loss.answers == 0 for loss in losses)
    assert judge.counts["answered"] == len(stored(site)) and all(trial.category is not None for trial in stored(site))
    results = read_results(site.directory())
    assert results is not None and {row.what for row in results.cost.beside} == {"lost_verdicts"}


@pytest.mark.slow
def test_judging_again_stays_within_the_caps_or_is_confirmed(site: Site, fair_url: str) -> None:
    """Nothing is sent that might exceed a cap; what was used counts, with replies that were lost."""
    limits = {"sampling": {"max_tokens": 20}, "concurrency": {"in_flight": 64}}
    assert site.run(site.write(**settings(fair_url, grader="math", trials={"min": 2, "max": 2}))).exit_code in ENDED
    before = stored(site)
    faults = Faults(reset=0.1, seed=3)
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge(), faults=faults)) as url:
        grader = judged_by(url, **limits)
        short = site.write("short", **settings(fair_url, grader=grader, budget={"tokens": 20_000}, trials={"min": 2}))
        refused = CliRunner().invoke(app, ["regrade", str(site.directory()), "--config", str(short)])
        assert refused.exit_code == ExitCode.CONFIGURATION
        assert "raise budget.tokens, or add --beyond-limits" in " ".join(refused.stderr.split())
        assert stored(site) == before
        enough = site.write("enough", **settings(fair_url, grader=grader, budget={"tokens": 10**7}, trials={"min": 2}))
        done = CliRunner().invoke(app, ["regrade", str(site.directory()), "--config", str(enough)])
        assert done.exit_code == 0, done.output
        meant = CliRunner().invoke(app, ["regrade", str(site.directory()), "--config", str(short), "--beyond-limits"])
        assert meant.exit_code == 0, meant.output
    after = stored(site)
    assert sum(trial.cost.tokens for trial in after) > sum(trial.cost.tokens for trial in before)
    lost = events_in(site.directory(), AnswersLost)
    assert sum(event.verdicts for event in lost) > 0 and all(event.tokens > 0 for event in lost)


def charged_for_regrades(site: Site) -> list[Charge]:
    with closing(LogReader.open(site.directory())) as reader:
        records = (record for rows in reader.log(in_whole_commits=False) for _, record in rows)
        return [record for record in records if isinstance(record, Charge) and record.kind is ChargeKind.REGRADE]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_regrade_counts_what_it_has_requested(site: Site, fair_url: str, number: signal.Signals) -> None:
    """Its grades are lost, but caps, later regrades, runs and reports count what they have cost."""
    keyed = settings(fair_url, grader="math", trials={"min": 4, "max": 4})
    assert site.run(site.write(**keyed)).exit_code in ENDED
    before = stored(site)
    gated = GatedServer(small_world(), 70, judge=SimulatedJudge())
    limits = {
        "sampling": {"max_tokens": 20},
        "max_answer_bytes": 1024,
        "cost": {"price": {"input": 1.0, "output": 2.0}},
    }
    models = [{"name": name, "base_url": fair_url, "price": {"input": 1.0, "output": 2.0}} for name in MODELS]
    anew = {"models": models, "trials": {"min": 4, "max": 4}, "budget": {"tokens": 10**7, "usd": 50.0}}
    with serving(gated) as url:
        config = site.write(
            "anew", **settings(fair_url, grader=judged_by(url, concurrency={"in_flight": 96}, **limits), **anew)
        )
        process = WarmProcess(["regrade", str(site.directory()), "--config", str(config)], site.folder)
        site.processes.append(process)
        wait_until(lambda: len(charged_for_regrades(site)) == 3, process)  # some were asked for, came, and others were
        process.send_signal(number)
        _, errors = process.communicate()
    assert process.returncode == (ExitCode.STOPPED if number == signal.SIGINT else -number), errors
    first, refund, last = charged_for_regrades(site)
    worst, flying = first.cost.tokens / first.number, last.number
    spent, usd = (sum(getattr(charge.cost, of) for charge in charged_for_regrades(site)) for of in ("tokens", "usd"))
    assert stored(site) == before, "all grades change or none"
    assert first.number + flying == len(before) and refund.cost.tokens < 0 < flying
    assert flying * worst < spent < len(before) * worst, "what has come counts as it was, the rest at its worst"
    config = site.write("anew", **settings(fair_url, grader=judged_by(fair_url, **limits), **anew))
    done = CliRunner().invoke(app, ["regrade", str(site.directory()), "--config", str(config)])
    assert done.exit_code == 0, done.output
    assert sum(charge.cost.tokens for charge in charged_for_regrades(site)) == spent, (
        "the second has taken back all of its own"
    )
    ended = site.run(config)
    assert ended.exit_code in ENDED
    assert f"{count(spent)} tokens, ${usd:.2f} on verdicts of an unfinished regrade" in " ".join(ended.stdout.split())


KEY = "sk-judge-0123456789abcdef"
LINES = GraderSampling(extra_body={"response_format": {"type": "text"}})
"""Replies are not asked for as JSON."""


def graded(judge: Judge, text: str, folder: Path, keys: dict[str, str]) -> Grade:
    """The grade of an answer with that text."""

    async def asked() -> Grade:
        pool = AskingPool(judge, open_rubric(RubricConfig()), folder=folder, keys=keys)
        answer = Answer(text=text, finish_reason="stop", seed=1, replica="r", latency=1.0)
        try:
            return await pool.grade(answer, Question("q", "?", "1"))
        finally:
            await pool.close()

    return asyncio.run(asked())


@pytest.mark.parametrize("structured", [True, False])
def test_a_judge_that_repeats_its_key_has_it_in_no_stored_error(tmp_path: Path, structured: bool) -> None:
    with scripted_server(("judge",), lambda *_: f"I was sent {KEY}, no, {KEY[:12]}") as server:
        asked = GraderServer(base_url=server.base_url, model="judge", api_key_env="JUDGE_KEY")
        with pytest.raises(JudgeFailed, match="'I was sent ") as failed:
            judge = Judge(server=asked) if structured else Judge(server=asked, sampling=LINES)
            graded(judge, "It is 1.", tmp_path, {"JUDGE_KEY": KEY})
    answer = Answer(text="It is 1.", finish_reason="stop", seed=1, replica="r", latency=1.0)
    trial = Trial(0, 0, 0, 0, UNGRADED, answer=answer, grade=GradeDetails(error=str(failed.value)))
    grade = redact_trial(trial, answer, Redactor([KEY])).grade
    assert grade is not None and grade.error is not None
    assert "'I was sent ***, no, ***'" in grade.error and "0123" not in grade.error


def test_a_tiny_request_that_shows_that_the_judge_answers_counts_as_one_lost_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = EndpointSettings(backoff=0.01, longest_backoff=0.01, longest_pause=0.001)
    monkeypatch.setattr("adaptive_eval.endpoints.settings.DEFAULT", short)
    counted: list[int] = []

    def script(asked: Asked) -> Reply | None:
        return Reply(500, {"error": {"message": "no"}}) if "unlucky" in asked.prompt else None

    async def again() -> bool:
        counted.append(len(server.statuses))
        return True

    async def asked_twice(judge: Judge) -> list[str]:
        pool = AskingPool(judge, open_rubric(RubricConfig()), folder=tmp_path, keys={})
        errors = []
        for text in ("It is 1.", "It is unlucky."):
            with pytest.raises(JudgeFailed) as failed:
                answer = Answer(text=text, finish_reason="stop", seed=1, replica="r", latency=1.0)
                await pool.grade(answer, Question("q", "?", "1"), again)
            errors.append(str(failed.value))
        assert pool.stats["ada"].errors["server_error"] == server.statuses.count(500)
        await pool.close()
        return errors

    with listening(script) as server:
        asked = GraderServer(base_url=server.base_url, model="ada")
        errors = asyncio.run(asked_twice(Judge(server=asked, sampling=LINES)))
    assert "gave no verdict" in errors[0] and "fails on this request every time: HTTP 500: no" in errors[1]
    assert len(counted) == 1 and server.statuses[counted[0] :] == [200, 500]
