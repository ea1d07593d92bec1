"""Runs whose answers judges or a verifier grade, all or some: kills, caps, errors, and missing verdicts."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest
from click.testing import Result
from command_line import typed
from contrary_server import Asked, Reply, listening
from gated import GatedServer
from live_runs import (
    ENDED,
    MODELS,
    RunOutcome,
    Site,
    judge_at,
    kill,
    models_at,
    small_world,
    stored,
    wait_for_trials,
    wait_until,
)
from result_rows import rows_in_file
from scripted_server import scripted_server
from stored_runs import events_in, stored_results
from warm_start import WarmProcess

from adaptive_eval.base.errors import ExitCode, JudgeFailed
from adaptive_eval.config.load import load_config
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints import connection
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.asked import GraderSampling, GraderServer, cost_in_signals
from adaptive_eval.graders.asking import AskingPool
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.machine.charges import Charge, ChargeKind
from adaptive_eval.machine.follow_up import FIRST_ANSWERS
from adaptive_eval.notes import AnswersLost, BaselineAsked, events_of_kind
from adaptive_eval.questions.types import Question
from adaptive_eval.report.costs import further_costs
from adaptive_eval.report.lines import count
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import AWAITS_VERDICT
from adaptive_eval.report.results import GradingCost
from adaptive_eval.report.stored import open_run
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.faults import Faults
from adaptive_eval.simulate.judging import OTHERS_SCORE, SimulatedJudge, SimulatedVerifier
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency
from adaptive_eval.store.read import LogReader


def settings(url: str, **changes: object) -> dict[str, object]:
    return {"models": models_at(url), "grader": judge_at(url), "trials": {"min": 2, "max": 4}} | changes


def grading_is_told(site: Site) -> GradingCost:
    """What grades have used: the sum over the stored answers, live and computed again."""
    results = stored_results(site.directory())
    assert results.cost.grading is not None
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


@pytest.mark.slow
def test_a_missing_verdict_is_no_grade_and_is_requested_again(site: Site, fair_url: str) -> None:
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge(mute=0.02))) as url:
        site.finished(**settings(fair_url, grader=judge_at(url)))
        failed = [trial for trial in stored(site) if trial.category is None]
        assert failed and all("gave no verdict" in str(trial.grader_error) for trial in failed)
        # what the judge was paid for it is counted
        assert all(trial.cost.tokens > trial.answer.prompt_tokens + trial.answer.completion_tokens for trial in failed)
        grading = grading_is_told(site)
        in_vain = grading.in_vain
        assert in_vain is not None and in_vain.verdicts == len(failed)
        assert sum(cost_in_signals(trial.signals, trial.cost).tokens for trial in failed) == in_vain.tokens
        assert " of it for the grades of " in dict(further_costs(grading, ()))["grading"]
    mended = site.finished(**settings(fair_url)).outcomes  # another address of the judge changes no meaning
    assert None not in mended.values()
    assert grading_is_told(site).in_vain == in_vain, "it stays spent"
    never = site.finished("plain", **settings(fair_url)).outcomes
    common = mended.keys() & never.keys()
    assert common and all(mended[key] == never[key] for key in common)


@pytest.mark.slow
def test_a_judge_without_verdicts_ends_the_run_soon_and_one_that_thinks_first_grades(site: Site, fair_url: str) -> None:
    replies = ["<think>I cannot decide"]
    with scripted_server(("judge",), lambda model, question, seed: replies[seed % len(replies)]) as server:
        grader = judge_at(server.base_url, concurrency={"in_flight": 1})
        config = site.write(**settings(fair_url, grader=grader, models=models_at(fair_url, *MODELS[:2])))
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
        slow_judge = judge_at(url, concurrency={"in_flight": 2})
        capped = {"budget": {"tokens": 10_000_000}, "concurrency": 64}
        process = site.start(site.write(**settings(fair_url, grader=slow_judge, **capped)))
        assert wait_for_trials(site.directory(), 20, process)
        kill(process)
    assert sum(trial.grader_error == AWAITS_VERDICT for trial in stored(site)) >= 17
    site.finished(**settings(fair_url, **capped))  # with 16 at a time
    with closing(RunReader.open(site.directory())) as reader:
        losses = [event for event in events_of_kind(reader.events(), AnswersLost) if event.verdicts]
        spent = sum(row.tokens for row in reader.sums())
    assert sum(loss.verdicts for loss in losses) == 2
    used = sum(trial.answer.prompt_tokens + trial.answer.completion_tokens for trial in stored(site))
    assert spent == used + grading_is_told(site).tokens, "nothing stays reserved"


@pytest.mark.slow
@pytest.mark.usefixtures("short_pauses")
def test_a_lost_verdict_counts_at_its_worst_case(site: Site, fair_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALE_SECONDS", 0.0)  # no reset connection counts as closed while idle
    judge = SimulatedServer(small_world(), faults=Faults(reset=0.2), judge=SimulatedJudge())
    with serving(judge) as url:
        capped = {"budget": {"tokens": 100_000_000}, "concurrency": 64, "trials": {"min": 2, "max": 2}}
        site.finished(**settings(fair_url, grader=judge_at(url, concurrency={"in_flight": 64}), **capped))
    losses = events_in(site.directory(), AnswersLost)
    assert sum(loss.verdicts for loss in losses) == judge.counts["reset"] > 0
    assert all(1000 * loss.verdicts < loss.tokens < 10_000 * loss.verdicts and loss.answers == 0 for loss in losses)
    assert judge.counts["answered"] == len(stored(site)) and all(trial.category is not None for trial in stored(site))
    assert {row.what for row in stored_results(site.directory()).cost.beside} == {"lost_verdicts"}


@pytest.mark.slow
def test_judging_again_stays_within_the_caps_or_is_confirmed(site: Site, fair_url: str) -> None:
    """Nothing is sent that might exceed a cap; what was used counts, with replies that were lost."""
    limits = {"sampling": {"max_tokens": 20}, "concurrency": {"in_flight": 64}}
    site.finished(**settings(fair_url, grader="math", trials={"min": 2, "max": 2}))
    before = stored(site)
    faults = Faults(reset=0.1, seed=3)
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge(), faults=faults)) as url:
        grader = judge_at(url, **limits)
        short = site.write("short", **settings(fair_url, grader=grader, budget={"tokens": 20_000}, trials={"min": 2}))
        refused = typed("regrade", site.directory(), "--config", short, code=ExitCode.CONFIGURATION)
        assert "raise budget.tokens, or add --beyond-limits" in " ".join(refused.stderr.split())
        assert stored(site) == before
        enough = site.write("enough", **settings(fair_url, grader=grader, budget={"tokens": 10**7}, trials={"min": 2}))
        typed("regrade", site.directory(), "--config", enough, code=0)
        typed("regrade", site.directory(), "--config", short, "--beyond-limits", code=0)
    after = stored(site)
    assert sum(trial.cost.tokens for trial in after) > sum(trial.cost.tokens for trial in before)
    lost = events_in(site.directory(), AnswersLost)
    assert sum(event.verdicts for event in lost) > 0 and all(event.tokens > 0 for event in lost)


def charges(site: Site, kind: ChargeKind) -> list[Charge]:
    with closing(LogReader.open(site.directory())) as reader:
        records = (record for rows in reader.log(in_whole_commits=False) for _, record in rows)
        return [record for record in records if isinstance(record, Charge) and record.kind is kind]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_regrade_counts_what_it_has_requested(site: Site, fair_url: str, number: signal.Signals) -> None:
    """Its grades are lost, but caps, later regrades, runs and reports count what they have cost."""
    trials, price = {"min": 4, "max": 4}, {"input": 1.0, "output": 2.0}
    site.finished(**settings(fair_url, grader="math", trials=trials))
    before = stored(site)
    gated = GatedServer(small_world(), 70, judge=SimulatedJudge())
    anew = {"models": models_at(fair_url, price=price), "trials": trials, "budget": {"tokens": 10**7, "usd": 50.0}}

    def judged_anew(url: str, **options: object) -> Path:
        limits = {"sampling": {"max_tokens": 20}, "max_answer_bytes": 1024}
        judge = judge_at(url, **limits, **options)
        return site.write("anew", grader=judge | {"server": judge["server"] | {"price": price}}, **anew)

    with serving(gated) as url:
        config = judged_anew(url, concurrency={"in_flight": 96})
        process = WarmProcess(["regrade", str(site.directory()), "--config", str(config)], site.folder)
        site.processes.append(process)
        # some were asked for, came, and others were
        wait_until(lambda: len(charges(site, ChargeKind.REGRADE)) == 3, process)
        process.send_signal(number)
        _, errors = process.communicate()
    assert process.returncode == (ExitCode.STOPPED if number == signal.SIGINT else -number), errors
    first, refund, last = charges(site, ChargeKind.REGRADE)
    worst, flying = first.cost.tokens / first.number, last.number
    spent = reduce(Cost.plus, (charge.cost for charge in charges(site, ChargeKind.REGRADE)))
    assert stored(site) == before, "all grades change or none"
    assert first.number + flying == len(before) and refund.cost.tokens < 0 < flying
    assert flying * worst < spent.tokens < len(before) * worst, "what has come counts as it was, the rest at its worst"
    config = judged_anew(fair_url)
    typed("regrade", site.directory(), "--config", config, code=0)
    again = sum(charge.cost.tokens for charge in charges(site, ChargeKind.REGRADE))
    assert again == spent.tokens, "the second has taken back all of its own"
    ended = site.run(config, code=ENDED)
    told = f"{count(spent.tokens)} tokens, ${spent.usd:.2f} on verdicts of an unfinished regrade"
    assert told in " ".join(ended.stdout.split())


LINES = GraderSampling(extra_body={"response_format": {"type": "text"}})
"""Replies are not asked for as JSON."""


def answer_of(text: str) -> Answer:
    return Answer(text=text, finish_reason="stop", seed=1, replica="r", latency=1.0)


async def test_a_finish_reason_of_a_judge_may_be_declared(tmp_path: Path) -> None:
    async def verdict(server: GraderServer) -> object:
        pool = AskingPool(Judge(server=server), open_rubric(RubricConfig()), folder=tmp_path, keys={})
        try:
            return (await pool.grade(answer_of("It is 1."), Question("q", "?", "1"))).signals["verdict"]
        finally:
            await pool.close()

    with scripted_server(("judge",), lambda *_: '{"reasoning": "", "verdict": "correct"}') as server:
        server.finish_reason = lambda *_: "done"
        asked = GraderServer(base_url=server.base_url, model="judge")
        with pytest.raises(JudgeFailed, match=r"set `finish_reasons: \[done\]`"):
            await verdict(asked)
        assert await verdict(asked.model_copy(update={"finish_reasons": ("done",)})) == "correct"


@pytest.mark.usefixtures("short_pauses")
async def test_a_tiny_request_that_shows_that_the_judge_answers_counts_as_one_lost_verdict(tmp_path: Path) -> None:
    counted: list[int] = []

    def script(asked: Asked) -> Reply | None:
        return Reply(500, {"error": {"message": "no"}}) if "unlucky" in asked.prompt else None

    async def again() -> bool:
        counted.append(len(server.statuses))
        return True

    with listening(script) as server:
        judge = Judge(server=GraderServer(base_url=server.base_url, model="ada"), sampling=LINES)
        pool = AskingPool(judge, open_rubric(RubricConfig()), folder=tmp_path, keys={})
        for text, failure in (
            ("It is 1.", "gave no verdict"), ("It is unlucky.", "fails on this request every time: HTTP 500: no")
        ):  # fmt: skip
            with pytest.raises(JudgeFailed, match=failure):
                await pool.grade(answer_of(text), Question("q", "?", "1"), again)
        assert pool.stats["ada"].errors["server_error"] == server.statuses.count(500)
        await pool.close()
    assert len(counted) == 1 and server.statuses[counted[0] :] == [200, 500]


ALWAYS_WRONG = (0.0, 1.0)
AWAY = "http://127.0.0.1:9/v1"
QUICK = {"in_flight": 4, "retry_for": 0}


@pytest.fixture(scope="module")
def judges() -> Iterator[tuple[str, str, str]]:
    """Servers of the small world: two with a judge that makes no mistakes, one whose judge is always wrong."""
    with ExitStack() as stack:
        kinds = (SimulatedJudge(), SimulatedJudge(), SimulatedJudge(says_right=ALWAYS_WRONG, structured=False))
        first, second, third = (
            stack.enter_context(serving(SimulatedServer(small_world(), judge=judge))) for judge in kinds
        )
        yield first, second, third


def server(url: str, **fields: object) -> dict[str, object]:
    return {"base_url": url, "model": "judge", **fields}


def panel_settings(first: str, *further: str, **changes: object) -> dict[str, object]:
    grader = {"kind": "judge", "concurrency": {"in_flight": 4}, "server": [server(url) for url in (first, *further)]}
    trials = {"min": 3, "max": 6}
    return {"models": models_at(first), "grader": grader | changes, "trials": trials, "concurrency": QUICK}


@pytest.mark.slow
def test_the_majority_of_all_votes_decides(site: Site, judges: tuple[str, str, str]) -> None:
    right, too, wrong = judges
    prices = [{"input": 1.0, "output": 2.0}, {"input": 10.0, "output": 20.0}]
    panel = [server(right, price=prices[0]), server(too, price=prices[1]), server(wrong)]
    outcome = site.finished(**panel_settings(right, server=panel))
    assert outcome == site.finished("keyed", **{**panel_settings(right), "grader": "math"})
    trials = stored(site)
    assert {trial.signals["agreement"] for trial in trials} == {2 / 3}
    site.finished("alone", **panel_settings(right, server=server(right, price=prices[0])))
    singles = {(single.model, single.question, single.trial): single for single in stored(site, "alone")}
    for trial in trials:
        of_one = singles[trial.model, trial.question, trial.trial]
        # the two that are sent the same text cost 1 and 10 times as much; the third has no price
        assert float(trial.signals["judge_usd"]) == pytest.approx(11.0 * float(of_one.signals["judge_usd"]), rel=0.05)
        assert float(trial.signals["judge_prompt_tokens"]) > 2.5 * float(of_one.signals["judge_prompt_tokens"])
    assert {tuple(float(trial.signals[f"agreement_{at}"]) for at in (1, 2, 3)) for trial in trials} == {(1.0, 1.0, 0.0)}
    assert "judge_unstructured" in {warning.kind for warning in stored_results(site.directory()).warnings}


@pytest.mark.slow
def test_answers_without_a_majority_have_no_grade_until_there_is_one(site: Site, judges: tuple[str, str, str]) -> None:
    right, _, wrong = judges
    undecided = site.run(site.write(**panel_settings(right, wrong)))
    assert undecided.exit_code == ExitCode.ENDPOINTS and "judge's votes differ" in undecided.output
    assert {str(trial.grader_error).partition(":")[0] for trial in stored(site)} - {AWAITS_VERDICT} == {
        "the judge's votes differ"
    }
    before = [trial.answer for trial in stored(site)]
    # the address of a judge changes no meaning: the next start asks the one that is there now
    site.finished(**panel_settings(right, right))
    after = stored(site)
    assert [trial.answer for trial in after][: len(before)] == before
    assert all(trial.category is not None for trial in after)


@pytest.mark.slow
def test_one_of_two_judges_that_is_down_is_named_at_the_end(site: Site, judges: tuple[str, str, str]) -> None:
    ended = " ".join(site.run(site.write(**panel_settings(judges[0], AWAY))).output.split())
    assert f"at {AWAY}" in ended and "; without it, the votes have no majority (1 of 2)" in ended


@pytest.mark.slow
def test_one_of_three_judges_may_be_unreachable(site: Site, judges: tuple[str, str, str]) -> None:
    right, too, _ = judges
    site.finished(**panel_settings(right, too, AWAY))
    assert {trial.signals["agreement"] for trial in stored(site)} == {2 / 3}
    failed = [{name: trial.signals.get(f"failed_votes_{name}") for name in (1, 2, 3)} for trial in stored(site)]
    assert failed == [{1: None, 2: None, 3: 1}] * len(failed)


@pytest.mark.slow
def test_caps_reserve_what_every_judge_may_cost(site: Site, judges: tuple[str, str, str]) -> None:
    right, too, wrong = judges
    price = {"input": 1.0, "output": 2.0}
    priced = {"models": models_at(right, price=price), "budget": {"usd": 20.0}}
    first = server(right, price=price)
    paid = [server(url, api_key_env="KEY") for url in (too, wrong)]
    refused = site.run(site.write(**panel_settings(right, server=[first, *paid]) | priced), code=ExitCode.CONFIGURATION)
    assert "add grader.server.1.price" in refused.stderr and "add grader.server.2.price" in refused.stderr
    panel = [first, *(server(url, price={"input": 2.0, "output": 4.0}) for url in (too, wrong))]
    config, alone = (load_config(site.write(**panel_settings(right, server=them) | priced)) for them in (panel, first))
    assert config.grader.worst_cost([]).usd == pytest.approx(5.0 * alone.grader.worst_cost([]).usd)  # type: ignore[union-attr]
    site.finished(**panel_settings(right, server=panel) | priced)
    assert stored_results(site.directory()).cost.in_all("usd") <= 20.0


PRICE = {"input": 3.0, "output": 4.0}


def write(site: Site, url: str, name: str = "run", judge_url: str = "") -> Path:
    """A configuration of two benchmarks, of which a judge grades `open`; without `judge_url` a key grades both."""
    rows = list(question_rows(small_world()))
    for benchmark, chosen in (("exact", rows[::2]), ("open", rows[1::2])):
        (site.folder / f"{benchmark}.jsonl").write_text("\n".join(map(json.dumps, chosen)))
    parts: list[dict[str, object]] = [{"name": name, "questions": f"{name}.jsonl"} for name in ("exact", "open")]
    if judge_url:
        parts[1]["grader"] = {"kind": "judge", "server": server(judge_url, price=PRICE), "max_answer_bytes": 1024}
    config = site.config(benchmarks=parts, models=models_at(url), trials={"min": 2, "max": 6})
    del config["questions"]
    (path := site.folder / f"{name}.yaml").write_text(json.dumps(config))
    return path


@pytest.mark.slow
def test_answers_are_judged_or_parsed_as_their_benchmark_says(site: Site, fair_url: str) -> None:
    config = write(site, fair_url, judge_url=fair_url)
    assert "the judge of open" in site.run(config, "--dry-run").stdout
    site.run(config, code=ENDED)
    keyed = write(site, fair_url, "keyed")
    assert site.run(keyed, "--run-dir", site.directory("keyed")).exit_code in ENDED
    assert RunOutcome.of(site.directory()) == RunOutcome.of(site.directory("keyed"))
    for trial in stored(site):
        assert ("verdict" in trial.signals) == trial.question.startswith("open/")
    results = stored_results(site.directory())
    assert results.cost.grading is not None
    judged = sum(sum(row.trials) for row in rows_in_file(site.directory()) if row.id.startswith("open/"))
    assert results.cost.grading.answers == judged > 0
    assert "judged" in {warning.kind for warning in results.warnings}
    typed("verify", site.directory(), code=0)


LEANING = (0.7, 0.1, -0.9)
SURE = 4.0


@pytest.fixture(scope="module")
def verifier_url() -> Iterator[str]:
    """A server of the small world, and of a verifier that is right, and leans to A without content."""
    with serving(SimulatedServer(small_world(), verifier=SimulatedVerifier(SURE, LEANING))) as url:
        yield url


def verified_by(url: str, **changes: object) -> dict[str, object]:
    return {"kind": "verifier", "server": {"base_url": url, "model": "verifier"}, **changes}


def verified(url: str, **changes: object) -> dict[str, object]:
    return settings(url, grader=verified_by(url)) | changes


@pytest.mark.slow
def test_without_a_key_grader_the_verifier_says_what_is_correct(site: Site, verifier_url: str) -> None:
    outcome = site.finished(**verified(verifier_url))
    assert outcome == site.finished("keyed", **verified(verifier_url, grader="math"))
    # what was graded by a key is verified afterwards, and goes on
    config = site.write("keyed", **verified(verifier_url, rubric="verifier_only"))
    typed("regrade", site.directory("keyed"), "--config", config, code=ExitCode.REACHED)
    for trial in stored(site, "keyed"):
        assert trial.category == (3 if trial.signals["verdict"] == "correct" else 2)
    assert site.run(config, "--run-dir", site.directory("keyed")).exit_code in ENDED


@pytest.mark.slow
def test_a_regrade_needs_room_for_the_request_without_content_too(site: Site, verifier_url: str) -> None:
    site.finished(**verified(verifier_url, grader="math"))

    def regrade(tokens: int) -> Result:
        config = site.write("verified", **verified(verifier_url, budget={"tokens": tokens}))
        return typed("regrade", site.directory(), "--config", config)

    def needed(refused: Result) -> int:
        words = " ".join(refused.stderr.replace(",", "").split())
        assert refused.exit_code == ExitCode.CONFIGURATION and "raise budget.tokens or add --beyond-limits" in words
        return sum(map(int, re.findall(r"up to (\d+) tokens with (\d+) spent", words)[0]))

    limit = needed(regrade(2000))
    assert needed(regrade(limit - 1)) == limit
    assert regrade(limit).exit_code == ExitCode.REACHED


def top_logprobs(number: int) -> dict[str, object]:
    return {"sampling": {"extra_body": {"top_logprobs": number}}}


@pytest.mark.parametrize(
    ("verifier", "grader", "message"),
    [
        (SimulatedVerifier(scored=False), {}, "returns no log-probabilities"),
        (SimulatedVerifier(leaning=(9.0, 9.0, -9.0)), top_logprobs(3), "do not include C"),
        (SimulatedVerifier(leaning=(-20.0,) * 3), top_logprobs(5), "must reply with one of A, B, C"),
    ],
)
def test_a_server_that_cannot_verify_is_reported_before_anything_is_spent(
    site: Site, verifier: SimulatedVerifier, grader: dict[str, object], message: str
) -> None:
    server = SimulatedServer(small_world(), verifier=verifier)
    with serving(server) as url:
        ended = site.run(site.write(**verified(url, grader=verified_by(url, **grader))), code=ExitCode.CONFIGURATION)
    assert message in re.sub(r"\s+", " ", ended.output)
    assert server.counts["answered"] == 1 and not stored(site)


@pytest.mark.slow
def test_a_missing_label_has_a_bound_and_too_wide_a_bound_is_no_grade(site: Site) -> None:
    # of three tokens one is often a word instead of the least likely label
    for name, sure, graded in (("narrow", 9.0, True), ("wide", 0.5, False)):
        verifier = SimulatedVerifier(sure, noise=1.0, talks=-OTHERS_SCORE - 0.3)
        with serving(SimulatedServer(small_world(), verifier=verifier)) as url:
            grader = verified_by(url, **top_logprobs(3))
            config = site.write(name, **verified(url, grader=grader, trials={"min": 2, "max": 2}))
            site.run(config, "--run-dir", site.directory(name))
        for trial in stored(site, name):
            if trial.category is None:
                why = str(trial.grader_error)
                assert why == AWAITS_VERDICT or "so the probabilities are uncertain" in why
            elif is_open := float(trial.signals["verifier_open"]):
                smallest = min(float(trial.signals[f"verifier_{letter}"]) for letter in "abc")
                assert 0.0 < smallest <= is_open + 1e-9 < 0.06
        assert any(trial.category is not None for trial in stored(site, name)) or not graded
        assert all(trial.category is not None for trial in stored(site, name)) == graded


@pytest.mark.slow
def test_a_lost_baseline_request_counts_each_time(site: Site, verifier_url: str) -> None:
    world = replace(small_world(), latency=Latency(median=1.2))
    faulty = SimulatedServer(world, faults=Faults(reset=0.5), verifier=SimulatedVerifier(SURE, LEANING), seed=3)
    with serving(faulty) as url:
        grader = verified_by(url, concurrency={"in_flight": 64})
        capped = {"budget": {"tokens": 100_000_000}, "concurrency": 64, "trials": {"min": 2, "max": 2}}
        site.finished(**verified(verifier_url, grader=grader, **capped))
    assert len(events_in(site.directory(), BaselineAsked)) == 1 and faulty.counts["reset"] > 0
    charged = charges(site, ChargeKind.BASELINE)
    lost = len(charged) - 2  # one request came through, and its charge was corrected
    assert sum(charge.cost.tokens for charge in charged) >= lost * 32768
    assert all(trial.category is not None for trial in stored(site))
