"""Whole runs of tasks of Inspect: every kind of task, faults, kills, caps, and what is left of a run to be read."""

import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from command_line import typed
from document_blocks import ROOT, blocks_of
from gated import GatedServer
from inspect_logs import read_log
from live_runs import ENDED, MODELS, RunOutcome, Site, kill, small_world, stored, trials_in, wait_for_trials, wait_until
from patient_time import HANGS
from stored_runs import events_in, stored_header
from task_runs import SKILLS, done, run, scripted, write
from thoroughness import sizes
from typer.testing import Result

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.base.seeds import hashed_base, trial_seed
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.types import DEFAULT_KEY
from adaptive_eval.inspect.process import InspectProcess
from adaptive_eval.machine import troubles
from adaptive_eval.notes import ModelSetAside, OnlyFailures, SettingsChanged
from adaptive_eval.questions.benchmark import ADAPTIVE, INSPECT_LOGS
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.faults import Faults
from adaptive_eval.simulate.server import serving

pytestmark = pytest.mark.usefixtures("task_file")


def expected(record: TrialRecord) -> int:
    """The category of a scripted model's trial, which follows from its seed."""
    seed = trial_seed(hashed_base(0, record.model, record.question), record.trial)
    assert record.answer.seed == seed
    return int(random.Random(seed).random() < int(record.model[1:]) / 100.0)


KINDS = {
    "exactly": {},
    "choices": {},
    "judged": {"roles": {"grader": "scripted/judge"}},
    "agent": {},
    "turns": {"roles": {"user": "scripted/user"}},
    "sandboxed": {},
    "images": {},
}
SOONER = ("exactly", "judged", "sandboxed")
"""The others are asked before a release."""
CALLS = {"judged": 2, "agent": 2, "turns": 3}
"""Calls of models in a sample, of all together."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in SOONER else pytest.mark.release) for kind in KINDS]
)
def test_a_task_of_each_kind_is_asked_and_graded_by_inspect(site: Site, kind: str) -> None:
    ended = done(site, write(site, kind, benchmark=KINDS[kind]))
    assert f"inspect view --log-dir {site.directory() / INSPECT_LOGS}" in ended.stdout
    report = site.report()
    assert "## Transcripts" in report and f"`inspect view --log-dir {INSPECT_LOGS}`" in report
    records = stored(site)
    assert len(records) >= 2 * 2 * (1 if kind == "images" else 2)
    for record in records:
        assert record.category == expected(record), record
        calls = CALLS.get(kind, 1)
        assert (record.answer.prompt_tokens, record.answer.completion_tokens) == (7 * calls, 3 * calls)
        assert (site.directory() / record.answer.replica).is_file(), "the log of the sample"
    assert {record.answer.text[-1] for record in records} <= {"1", "2", "A", "B"}
    prompt = next(iter(stored_header(site.directory()).questions.values()))["prompt"]
    assert ("[image]" in prompt.lower()) is (kind == "images")
    logs, imported = site.directory() / INSPECT_LOGS, site.directory("imported")
    spec = read_log(next(logs.glob("*.eval")), header_only=True).eval
    assert spec.tags == [ADAPTIVE] and "not those of the run" in str((spec.metadata or {})[ADAPTIVE])
    asked = spec.model_generate_config
    assert (asked.adaptive_connections, asked.max_connections) == (64, None), "Inspect heeds what limits its requests"
    typed("import", logs, "--to", imported, "--repeats-are-samples", code=0)
    assert RunOutcome.of(imported).outcomes == RunOutcome.of(site.directory()).outcomes


@pytest.mark.slow
def test_looks_are_those_of_the_run_that_asks_the_same_servers_itself(site: Site) -> None:
    trials = {"min": 4, "max": 6, "optimize": "cost"}
    done(site, site.write("own", trials=trials))
    models = [{"name": name, "inspect": {"model": f"openai-api/sim/{name}", "temperature": 0.6}} for name in MODELS]
    done(site, write(site, "small", "inspect", models=models, trials=trials))
    by_inspect = RunOutcome.of(site.directory("inspect"))
    assert by_inspect == RunOutcome.of(site.directory("own"))
    assert len(by_inspect.outcomes) >= 3 * 8 * 4 and len(by_inspect.looks) > 1


@pytest.mark.slow
def test_the_example_of_a_command_runs_the_sample_that_it_is_asked(site: Site) -> None:
    rows = list(question_rows(small_world()))
    (site.folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder := site.folder / "new").mkdir()
    task = str(site.folder / "tasks.py@small")  # as the run gives it
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "command_inspect.py"), task, f"openai-api/sim/{MODELS[0]}"],
        input=json.dumps(rows[1] | {"trial": 0, "seed": 7}),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout.splitlines()[-1])
    assert result["score"] in (0, 1) and result["tokens"] > 0
    (sample,) = read_log(folder / result["transcript"]).samples or ()
    assert sample.id == rows[1]["id"]


@pytest.mark.slow
def test_empty_answers_of_a_task_are_an_alarm_unless_tools_were_used(site: Site) -> None:
    ended = run(site, write(site, "exactly", models=scripted("p95", "mute"), stopping={}))
    assert ended.exit_code == ExitCode.SPENT, ended.output
    assert "Stopped by an alarm: mute: 4 of its 4 answers (100%) are empty" in ended.output
    done(site, write(site, "wordless", "wordless", models=scripted("mute-too", "mute")))
    records = [record for record in stored(site, "wordless") if record.model == "mute"]
    assert records and all(not record.answer.text and not record.answer.signals for record in records)


@pytest.mark.slow
def test_a_model_whose_samples_end_in_errors_is_set_aside(site: Site, set_attempts: Callable[[int], None]) -> None:
    set_attempts(3)
    config = write(site, "faults", benchmark={"args": {"first": 3}})
    ended = run(site, config)
    assert ended.exit_code == ExitCode.ENDPOINTS, ended.output
    lost = {event.model: event.reason for event in events_in(site.directory(), ModelSetAside)}
    assert lost.keys() == set(SKILLS)
    assert all("failed 3 times; the last error: ConnectionResetError" in reason for reason in lost.values())
    assert not stored(site)
    set_attempts(4)
    done(site, config)
    assert {record.answer.attempts for record in stored(site)} == {4}
    assert all(record.category == expected(record) for record in stored(site)), "never graded wrong"
    set_attempts(5)
    beside = run(site, write_two(site, inspect="tasks.py@faults", args={"first": 99}))
    assert beside.exit_code == ExitCode.ENDPOINTS, beside.output
    message = "p95 is set aside: no sample of benchmark code is answered: sample code/"
    assert message in beside.output and "failed 5 times" in beside.output
    assert {record.question.partition("/")[0] for record in stored(site, "two")} == {"sums"}, "what others bought stays"


@pytest.mark.slow
def test_a_sample_that_always_fails_has_no_answer_and_its_model_goes_on(site: Site) -> None:
    done(site, write(site, "faults", benchmark={"args": {"first": 99, "only": "1#0"}}, trials={"max": 8}))
    failed = [record for record in stored(site) if record.answer.signals]
    assert {(record.model, record.question, record.trial) for record in failed} == {(model, "1", 0) for model in SKILLS}
    for record in failed:
        assert record.category is None and record.answer.signals == {"unanswered"}
        assert "failed 5 times; the last error: ConnectionResetError" in (record.grader_error or "")
    assert all(record.category == expected(record) for record in stored(site) if record not in failed)


@pytest.mark.slow
def test_a_sample_that_always_fails_costs_no_model_at_a_later_start_where_it_is_asked_alone(site: Site) -> None:
    faults: dict[str, object] = {"benchmark": {"args": {"first": 99, "only": "1#2"}}, "questions": {"limit": 1}}
    for cap in (4, 40):
        ended = run(site, write(site, "faults", **faults, concurrency=1, budget={"trials": cap}, trials={"max": 8}))
    assert ended.exit_code in ENDED, ended.output
    failed = {(record.model, record.trial) for record in stored(site) if record.answer.signals}
    assert failed == {(model, 2) for model in SKILLS}


@pytest.mark.slow
def test_unreachable_providers_are_told_while_inspect_repeats(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inspect repeats them for hours, and a run said nothing."""

    def told(*what: object) -> OnlyFailures:
        (site.folder / "back").touch()
        return OnlyFailures(*what)  # type: ignore[arg-type]

    monkeypatch.setattr(troubles, "RETRYING_SECONDS", 0.0)
    monkeypatch.setattr(troubles, "OnlyFailures", told)
    ended = done(site, write(site, "exactly", models=scripted("late-p95", "late-p10")))
    assert "(errors so far: request error " in ended.output
    assert re.search(r"the last one: late-p(95|10): ConnectionResetError\)", ended.output)  # whichever is told first


@pytest.mark.slow
def test_one_of_several_scores_counts_by_its_name_and_a_missing_one_is_no_trial(site: Site) -> None:
    some = {"name": "some", "weight": 0.25, "when": {"score": {"at_least": 0.01}}}
    half = [{"name": "right", "weight": 1.0, "when": {"score": 1.0}}, some, {"name": "none", "weight": 0.0}]
    unnamed = run(site, write(site, "partial"))
    assert unnamed.exit_code == ExitCode.CONFIGURATION
    assert "benchmark.scorer must name one of the task's scorers: exact, of_attempt" in unnamed.output
    named = {"scorer": "of_attempt.whole"}
    done(site, write(site, "partial", benchmark=named, rubric={"categories": half}))
    assert {record.answer.attempts for record in stored(site)} == {2}
    assert all(record.category == (0 if expected(record) else 1) for record in stored(site))
    refused = run(site, write(site, "partial", "binary", benchmark=named, models=scripted("p1", "p2")))
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert "gave 0.25, but the rubric only has right and wrong" in refused.output


@pytest.mark.slow
def test_one_of_several_values_is_named_before_any_request_and_logs_are_imported_with_it(site: Site) -> None:
    for scorer, message in (
        (None, "benchmark.scorer must name one"),
        ("twofold", "twofold is not a scorer of the task"),
    ):
        refused = run(site, write(site, "doubly", benchmark={"scorer": scorer}))
        assert refused.exit_code == ExitCode.CONFIGURATION and message in refused.output, refused.output
        assert "twofold.strict, twofold.loose" in refused.output and not site.directory().exists()
    config, imported = write(site, "doubly", benchmark={"scorer": "twofold.strict"}), site.directory("imported")
    ended = done(site, config)
    assert all(record.category == expected(record) for record in stored(site))
    typed("import", site.directory() / INSPECT_LOGS, "--to", imported, "--config", config, code=0)
    assert RunOutcome.of(imported) == RunOutcome.of(site.directory()), "grades, looks and verdicts"
    assert all(record.category == expected(record) for record in stored(site, "imported")), "by their seeds"
    assert run(site, config, "--run-dir", imported).exit_code == ended.exit_code
    assert not events_in(imported, SettingsChanged)


@pytest.mark.slow
def test_an_exported_run_goes_on_elsewhere_with_the_scores_that_inspect_gave(site: Site) -> None:
    """Inspect scores an answer only while it runs the sample: what it gave then is stored, and exported."""
    config = write(site, "exactly", objective={"kind": "precision", "half_width": 0.3})
    assert run(site, config).exit_code == ExitCode.SPENT
    file, moved = site.folder / "moved.jsonl", site.directory("moved")
    typed("export", site.directory(), "--format", "jsonl", "-o", file, code=0)
    typed("import", file, "--to", moved, "--config", config, code=0)
    before = RunOutcome.of(moved).outcomes
    assert before == RunOutcome.of(site.directory()).outcomes
    done(site, config, "--run-dir", moved, "--set", "trials.max=40")
    assert before.items() < RunOutcome.of(moved).outcomes.items()
    assert all(record.category == expected(record) for record in stored(site, "moved"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reducer", "message"),
    [
        ("max", "the task scores a sample by max over 3 epochs, which is ignored: scores are means over single trials"),
        ("mean", "the task's 3 epochs are ignored: the run decides how often a sample is asked"),
    ],
)
def test_unused_epochs_of_a_task_are_reported_before_any_request(site: Site, reducer: str, message: str) -> None:
    config = write(site, "thrice", benchmark={"args": {"reducer": reducer}})
    with pytest.warns(UserWarning, match=f"benchmark.inspect: {message}"):
        typed("validate", config, code=0)


@pytest.mark.slow
def test_a_limit_is_an_answer(site: Site) -> None:
    limited = {"limits": {"message_limit": 6}, "roles": {"user": "scripted/user"}}
    done(site, write(site, "endless", benchmark=limited))
    assert {record.answer.finish_reason for record in stored(site)} == {"length"}
    assert all(record.category == expected(record) for record in stored(site))


@pytest.mark.slow
def test_a_process_that_dies_loses_no_answer_and_sets_models_aside(site: Site) -> None:
    ended = run(site, write(site, "killed"))
    assert ended.exit_code == ExitCode.ENDPOINTS, ended.output
    lost = events_in(site.directory(), ModelSetAside)
    assert lost and all("the process of Inspect ended with 9" in event.reason for event in lost)


async def test_a_process_that_has_ended_is_sent_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That would take its exit code from who waits for it."""
    (errors := tmp_path / "errors").touch()
    process = InspectProcess({}, [], tmp_path, {}, tmp_path, errors, None, Redactor())
    monkeypatch.setattr(Process, "terminate", lambda _: pytest.fail("it was sent one"))
    await process._read(await create_subprocess_exec("true", stdout=PIPE))


@pytest.mark.slow
async def test_requests_to_a_task_that_has_just_failed_do_not_end_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was on its way when the task said so."""
    from adaptive_eval.inspect import worker

    sent: list[Mapping[str, object]] = []
    monkeypatch.setattr(worker, "send_line", sent.append)
    model: Any = SimpleNamespace(api=None)
    source = worker.RequestedSamples(("", 0), model, {"s": worker.Sample(input="?")})
    waiting = asyncio.create_task(source.next_samples())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    source.ask({"benchmark": "", "model": 0, "sample": "s", "prompt": [], "id": "s#0", "seed": 1})
    assert sent == [{"benchmark": "", "model": 0, "ended": "its task ended"}]


@pytest.mark.slow
def test_caps_count_the_tokens_of_all_models_of_a_sample(site: Site) -> None:
    benchmark = {"roles": {"grader": "scripted/judge"}, "prices": {"scripted/judge": {"input": 1e6, "output": 0}}}
    prices = {"input": 1.0, "output": 1.0}
    models = [{**model, "price": prices} for model in scripted(*SKILLS)]
    capped = {"models": models, "sampling": {"max_tokens": 50}, "budget": {"tokens": 1000}}
    done(site, write(site, "judged", benchmark=benchmark, **capped))
    assert sum(record.cost.tokens for record in stored(site)) == 20 * len(stored(site)) <= 1000
    assert {round(record.cost.usd, 4) for record in stored(site)} == {7.0}
    capped["sampling"] = {}  # nothing bounds a sample: 30 tokens and 10.5 USD are reserved, once one of each has come
    for name, caps, trials in (("by-tokens", {"tokens": 140}, 6), ("by-usd", {"usd": 43.0}, 4)):
        ended = run(site, write(site, "judged", name, benchmark=benchmark, **(capped | {"budget": caps})))
        assert ended.exit_code == ExitCode.SPENT and "nothing bounds the cost of an answer of p95, p10," in ended.output
        assert len(stored(site, name)) == trials
    del benchmark["prices"]
    unpriced = run(site, write(site, "judged", "usd", benchmark=benchmark, **(capped | {"budget": {"usd": 100}})))
    assert unpriced.exit_code == ExitCode.CONFIGURATION
    assert "a sample called scripted/judge, whose price is unknown; add it to benchmark.prices" in unpriced.output


@pytest.mark.slow
def test_cached_tokens_have_their_price_in_samples_of_inspect(site: Site) -> None:
    prices = {"input": 1e6, "cached_input": 0.5e6, "output": 1e6}
    models = [{**model, "price": prices} for model in scripted("caching-p95", "boasting-p10")]
    done(site, write(site, "exactly", models=models))
    cached = {(record.model, record.answer.cached_tokens, record.cost.usd) for record in stored(site)}
    assert cached == {("caching-p95", 4, 8.0), ("boasting-p10", 7, 6.5)}


@pytest.mark.slow
def test_where_a_provider_says_no_usage_a_cap_counts_the_texts_of_all_models(site: Site) -> None:
    """Counted as 0, such a cap bore anything with `max_tokens`, and without it no second round."""
    roles, models = {"roles": {"grader": "scripted/silent-judge"}}, scripted("silent-p95", "silent-p10")
    ended = run(site, write(site, "judged", models=models, benchmark=roles, budget={"tokens": 1600}))
    assert "silent-p95: its server reports no token counts: they are estimated" in ended.output
    assert all(100 < record.cost.tokens < 1000 for record in stored(site)), "the judge's long prompt is in it"
    assert 2 < len(stored(site)) < 8


def asked_of_servers(site: Site, name: str, min_trials: int = 6) -> Path:
    """A configuration of a task whose models are on the server of the tests."""
    trials = {"min": min_trials, "max": min_trials + 4, "optimize": "cost"}
    return write(site, "small", name, models=OF_SERVER, trials=trials, concurrency=SLOTS)


OF_SERVER = [{"name": model, "inspect": f"openai-api/sim/{model}"} for model in MODELS]
SLOTS = 4
FAILING = Faults(server_error=0.05)


def run_through_kills(site: Site, config: Path, gated: GatedServer, kills: int) -> Result:
    """The end of a run that is killed so often, each time when twelve further trials are stored."""
    for _ in range(kills):
        before = trials_in(site.directory())
        process = site.start(config)
        assert wait_for_trials(site.directory(), before + 12, process)
        kill(process)
        gated.open(36)
    gated.open()
    return run(site, config)


@pytest.mark.parametrize("kills", sizes(2, 10))
def test_kills_and_failures_change_and_lose_nothing(site: Site, monkeypatch: pytest.MonkeyPatch, kills: int) -> None:
    min_trials = 2 * kills  # 48 trials or more for each kill, while 36 answers are given
    with serving(gated := GatedServer(small_world(), 36, faults=FAILING)) as url:
        monkeypatch.setenv("SIM_BASE_URL", url)
        config = asked_of_servers(site, "run", min_trials)
        assert run_through_kills(site, config, gated, kills).exit_code in ENDED
        failed = gated.counts["server_error"]
    monkeypatch.setenv("SIM_BASE_URL", site.base_url)
    done(site, asked_of_servers(site, "whole", min_trials))
    assert RunOutcome.of(site.directory()) == RunOutcome.of(site.directory("whole"))
    assert failed > 0, "some calls did fail"
    log_folder, imported = site.directory() / INSPECT_LOGS, site.directory("imported")
    logs = list(log_folder.glob("*.eval"))
    assert len(logs) == (kills + 1) * len(MODELS)
    deadline = time.monotonic() + HANGS
    while any(read_log(log, header_only=True).status == "started" for log in logs):
        assert time.monotonic() < deadline, "a killed run has left an evaluation behind"
        time.sleep(0.05)
    result = typed("import", log_folder, "--to", imported, "--config", config, code=0)
    assert "are no trials" not in result.output, result.output
    outcomes = RunOutcome.of(site.directory()).outcomes
    assert RunOutcome.of(imported).outcomes == outcomes, "one of each that two starts have"
    done(site, config, "--run-dir", imported)


def write_benchmarks(site: Site, name: str, *, by_inspect: bool, gate: str | None = None, **more: object) -> Path:
    """Two benchmarks, the first with three times the weight: a task of Inspect and a file, or two files; `gate` is that
    of the first."""
    rows = list(question_rows(small_world()))
    for part, part_rows in (("easy", rows[5:]), ("hard", rows[:5])):
        (site.folder / f"{part}.jsonl").write_text("\n".join(map(json.dumps, part_rows)))
    easy: dict[str, object] = {"questions": "easy.jsonl"}
    if by_inspect:
        easy = {"benchmark": {"inspect": "tasks.py@small", "args": {"file": "easy.jsonl"}}}
        more = {"models": OF_SERVER, "sampling": {}, "concurrency": SLOTS, **more}
    benchmarks = [{"name": "easy", "weight": 3, "gate": gate, **easy}, {"name": "hard", "questions": "hard.jsonl"}]
    more = {"trials": {"min": 4, "max": 40}, "stopping": {"on_alarm": "never"}, **more}
    settings = site.config(benchmarks=benchmarks, **more)
    del settings["questions"]
    path = site.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.mark.slow
def test_a_task_and_a_file_in_one_run_are_looked_at_as_two_files_are(site: Site) -> None:
    for name, by_inspect in (("own", False), ("both", True)):
        done(site, write_benchmarks(site, name, by_inspect=by_inspect))
    assert RunOutcome.of(site.directory("both")) == RunOutcome.of(site.directory("own"))
    groups = site.results("both")["groups"]
    assert groups == site.results("own")["groups"] and {row["group"] for row in groups} == {"easy", "hard"}
    both, imported, config = site.directory("both"), site.directory("imported"), site.folder / "both.yaml"
    before = RunOutcome.of(both).outcomes
    typed("regrade", both, "--config", config, code=0)
    assert RunOutcome.of(both).outcomes == before
    typed("import", both / INSPECT_LOGS, "--to", imported, "--config", config, code=0)
    after = RunOutcome.of(imported).outcomes
    assert {key for key in after if key[1].startswith("easy/")} == {key for key in before if key[1].startswith("easy/")}


@pytest.mark.slow
def test_benchmarks_of_a_run_have_settings_of_their_own(site: Site) -> None:
    judged = {"inspect": "tasks.py@judged", "roles": {"grader": "scripted/judge"}, "limits": {"time_limit": 600}}
    benchmarks = [
        {"name": "boxed", "benchmark": {"inspect": "tasks.py@sandboxed"}},
        {"name": "judged", "benchmark": judged},
        {"name": "turns", "benchmark": {"inspect": "tasks.py@turns", "roles": {"user": "scripted/user"}}},
    ]
    config = write(site, None, benchmarks=benchmarks)
    done(site, config)
    records = stored(site)
    calls = {"boxed": 1, "judged": 2, "turns": 3}
    assert {record.question.partition("/")[0] for record in records} == set(calls)
    for record in records:
        assert record.category == expected(record), record
        assert record.answer.prompt_tokens == 7 * calls[record.question.partition("/")[0]]
    changed = run(site, config, "--set", "benchmarks.1.benchmark.limits.time_limit=60")
    assert changed.exit_code == ExitCode.CONFIGURATION and "benchmarks.judged" in changed.output, changed.output


def write_two(site: Site, **code: object) -> Path:
    """A configuration of two tasks, of which the second has these settings."""
    benchmarks = [
        {"name": "sums", "benchmark": {"inspect": "tasks.py@exactly"}},
        {"name": "code", "benchmark": {"inspect": "tasks.py@sandboxed", **code}},
    ]
    return write(site, None, "two", benchmarks=benchmarks)


@pytest.mark.slow
def test_a_sandbox_that_does_not_start_is_reported_by_a_dry_run(site: Site) -> None:
    config = write_two(site, sandbox="unstartable")
    ended = run(site, config)
    assert ended.exit_code == ExitCode.ENDPOINTS, ended.output
    assert ended.output.count("RuntimeError: the daemon of the sandbox is not running") >= len(SKILLS), ended.output
    result = run(site, config, "--dry-run")
    assert result.exit_code == ExitCode.ENDPOINTS, result.output
    for skill in SKILLS:
        asked = re.findall(rf"^answer  {skill}  (\S+)  .*\n +(response|no answer)", result.output, re.MULTILINE)
        expected = [("sums/1", "response"), ("sums/2", "response"), ("code/1", "no answer"), ("code/2", "no answer")]
        assert asked == expected, result.output
    lost = "benchmark code: RuntimeError: the daemon of the sandbox is not running; Inspect's log has more"
    assert f"no answer: {lost}" in result.output
    assert "prompt    0: what is 6 * 7?" in result.output


@pytest.mark.slow
def test_a_rehearsal_does_not_wait_for_retries_of_inspect(site: Site) -> None:
    models = scripted("p95", "away")
    result = run(site, write(site, "exactly", models=models, sampling={"max_tokens": 50}), "--dry-run")
    assert result.exit_code == ExitCode.ENDPOINTS, result.output
    assert re.search(r"answer  away .*\n +no answer: .* the last error: .*reset by peer", result.output), result.output
    assert "answer  p95" in result.output
    assert "for models asked by Inspect the worst case: 2 times max_tokens)" in result.output
    assert "one token per byte" not in result.output, "no prompt is reserved"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ({"sandbox": "podmn"}, "type 'podmn' not recognized; available are "),
        ({"sandbox": "dokcer:compose.yaml"}, "type 'dokcer' not recognized; available are broken, docker, local"),
    ],
)
def test_what_a_task_lacks_is_reported_with_its_benchmark(site: Site, code: dict[str, object], message: str) -> None:
    refused = typed("validate", write_two(site, **code), code=ExitCode.CONFIGURATION)
    assert "benchmarks.code.inspect: tasks.py@" in refused.output and message in refused.output, refused.output


@pytest.mark.slow
def test_the_next_start_clears_away_sandboxes_of_a_killed_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (place := site.folder / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    config, pid_file = write(site, "lingers"), site.folder / "program"
    process = site.start(config)
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), process)
    program = int(pid_file.read_text())
    (folder,) = place.glob("adaptive-eval-inspect-*")
    process.send_signal(signal.SIGSTOP)  # it would clear away itself when it hears of its process
    os.kill(int(Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    kill(process)
    assert Path(f"/proc/{program}").exists() and any(folder.glob("tmp*")), "both are left behind"
    done(site, config)
    assert has_ended(program)
    assert not list(place.glob("adaptive-eval-inspect-*"))


@pytest.mark.slow
def test_signals_wait_for_samples_in_flight_up_to_their_time_limit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_eval.config.run.ModelConfig.longest_answer", 1.0)
    config, pid_file = write(site, "lingers"), site.folder / "program"

    def interrupt() -> None:
        while not (pid_file.exists() and pid_file.read_text().strip()):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=interrupt, daemon=True).start()
    stopped = run(site, config)
    assert stopped.exit_code == ExitCode.STOPPED and "stopping: waiting for" in stopped.output, stopped.output
    assert has_ended(int(pid_file.read_text()))


def has_ended(process: int) -> bool:
    """Whether a process comes to its end, which perhaps nobody takes note of."""
    deadline = time.monotonic() + HANGS
    with suppress(OSError):  # it is gone
        while Path(f"/proc/{process}/environ").read_bytes():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    return True


@pytest.mark.slow
def test_a_run_goes_on_with_its_own_task_alone_and_is_read_without_it_and_without_inspect(site: Site) -> None:
    config = write(site, "exactly")
    done(site, config)
    with (site.folder / "tasks.py").open("a") as file:
        file.write("\n# changed\n")
    changed = run(site, config)
    assert changed.exit_code == ExitCode.CONFIGURATION
    assert "\n  benchmark.inspect: tasks.py was edited after the start of the run\n" in changed.output, changed.output
    assert "--fresh" in changed.output and "digest" not in changed.output
    (site.folder / "tasks.py").write_text("raise SystemExit('the task was imported')")
    blocked = "import sys; sys.modules['inspect_ai'] = None; sys.modules['inspect_evals'] = None; "
    read = f"{blocked}from adaptive_eval.cli import app; app({['report', str(site.directory()), '--format', 'md']})"
    shown = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, cwd=site.folder, check=False)
    written = "".join(path.read_text() for path in site.directory().glob("*.md"))
    assert shown.returncode == 0 and "p95" in shown.stdout + written, shown.stderr


@pytest.mark.slow
def test_another_rubric_takes_the_scores_that_came_with_the_samples(site: Site) -> None:
    def configured(least: float) -> Path:
        some = {"name": "some", "weight": 0.25, "when": {"score": {"at_least": least}}}
        every = {"name": "all", "weight": 1.0, "when": {"score": 1.0}}
        rubric = {"categories": [every, some, {"name": "none", "weight": 0.0}]}
        return write(site, "partial", benchmark={"scorer": "of_attempt.whole"}, rubric=rubric)

    done(site, configured(0.51))
    before = RunOutcome.of(site.directory()).outcomes
    typed("regrade", site.directory(), "--config", configured(0.21), code=0)
    after = RunOutcome.of(site.directory()).outcomes
    assert after == {key: min(category, 1) for key, category in before.items() if category is not None}
    assert after != before
    other = write(site, "partial", benchmark={"scorer": "exact"})
    refused = typed("regrade", site.directory(), "--config", other, code=ExitCode.CONFIGURATION)
    assert "benchmark.scorer" in refused.output, refused.output


@pytest.mark.slow
def test_one_command_ranks_models_on_a_task(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site.folder)
    words = ["run", "tasks.py@exactly", "--model", "best=scripted/p95", "--model", "scripted/p10", "-T", "number=3"]
    words += ["--max-trials", "6", "--budget", "1usd", "--display", "plain", "--price", "scripted/p95=1/2"]
    assert "scripted/p10 has none; add it (" in typed(*words, code=ExitCode.CONFIGURATION).output
    typed(*words, "--price", "scripted/p10=0/0.5", "--price", "a/judge=3/4", code=ENDED)
    results = site.results("exactly")
    assert [row["name"] for row in results["models"]] == ["best", "scripted/p10"]
    assert 0 < results["cost"]["usd"] <= 1


@pytest.mark.slow
def test_a_task_of_an_installed_package_is_found_by_name_and_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    place = site.folder / "site-packages"
    for folder in (package := place / "own_evals", metadata := place / "own_evals-1.0.dist-info"):
        folder.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copy(site.folder / "tasks.py", package / "_registry.py")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own_evals\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[inspect_ai]\nown_evals = own_evals._registry\n")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.chdir(site.folder)
    config = write(site, "exactly", benchmark={"inspect": "own_evals/exactly"})
    assert "2 models, 2 questions" in typed("validate", config, code=0).output
    done(site, config)
    words = ("run", "own_evals/exactely", "--model", "scripted/p1", "--model", "scripted/p2")
    misspelt = typed(*words, code=ExitCode.CONFIGURATION)
    assert "`inspect list tasks FOLDER` lists the tasks of a folder" in misspelt.output, misspelt.output


@pytest.mark.slow
def test_the_task_and_the_configuration_of_the_guide_run(site: Site) -> None:
    guide = list(blocks_of(ROOT / "docs" / "guide" / "inspect-tasks.md"))
    (task,) = (block.text for block in guide if block.language == "python")
    shown, beside, *_ = (yaml.safe_load(block.text) for block in guide if block.language == "yaml")
    (site.folder / "my_task.py").write_text(f"{task}\nimport tasks\n")
    changes = {"sandbox": "local", "roles": {"grader": "scripted/judge"}}
    for model, skill in zip(shown["models"], ("p95", "p80"), strict=True):
        model["inspect"] = f"scripted/{skill}"
    path = site.folder / "guide.yaml"
    path.write_text(yaml.safe_dump(shown | {"benchmark": shown["benchmark"] | changes, "trials": {"min": 2, "max": 2}}))
    done(site, path, "--set", "stopping.on_alarm=never")
    graded = {(record.question, record.answer.text, record.category) for record in stored(site, "guide")}
    assert graded <= {("sum-0", "42", 0), ("sum-0", "41", 0), ("sum-1", "42", 1), ("sum-1", "41", 0)}
    assert ("sum-1", "42", 1) in graded
    (site.folder / "facts.jsonl").write_text('{"id": "sky", "prompt": "What colour is the sky?", "answer": "blue"}')
    (together := site.folder / "beside.yaml").write_text(yaml.safe_dump(beside))
    assert "2 models, 3 questions" in typed("validate", together, code=0).output


GRADED = {"right": 1, "writes outside": 1}
"""What runs through and passes its tests; whatever else a program does is a wrong answer."""


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["local", "broken"])
def test_hostile_programs_are_wrong_and_a_sandbox_that_fails_is_no_answer(site: Site, sandbox: str) -> None:
    (task,) = (block.text for block in blocks_of(ROOT / "docs" / "guide" / "code.md") if block.language == "python")
    seconds = f"timeout={PROGRAM_SECONDS}"
    (site.folder / "code_task.py").write_text(f"{task.replace('timeout=30', seconds)}\nimport tasks\n")
    cap = len(PROGRAMS) if sandbox == "local" else 2
    benchmark = {"inspect": "code_task.py@double", "sandbox": sandbox, "solver": "tasks.py@hostile"}
    config = write(site, "unused", benchmark=benchmark, trials={"min": cap, "max": cap, "optimize": "cost"})
    done(site, config)
    records = {(record.model, record.trial): record for record in stored(site)}
    assert set(records) == {(model, trial) for model in SKILLS for trial in range(cap)}
    for (model, trial), record in records.items():
        if sandbox == "broken" and trial == 0:
            assert record.category is None and record.answer.signals == {"unanswered"}
            assert "the container is gone" in (record.grader_error or "")
        else:
            program = PROGRAMS[trial if model == SKILLS[0] else trial % 2]
            assert record.category == GRADED.get(program, 0), program
    assert (site.folder / "outside").exists() is (sandbox == "local"), "local protects nothing, as the guide says"


PROGRAM_SECONDS = 15
PROGRAMS = ("right", "wrong", "ends early", "ends at once", "sleeps", "floods", "forks", "writes outside")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tasks.py@exactly"], "name the models to rank: --model openai/gpt-x --model ..."),
        *(
            pytest.param([task, "--model", "scripted/p1", "--model", "scripted/p2"], message, marks=pytest.mark.slow)
            for task, message in (
                (
                    "tasks.py@fetched",
                    "'port'; give `--task-arg port=VALUE`, or in a configuration `args: {port: VALUE}`",
                ),
                ("tasks.py@nothing", "tasks.py@nothing cannot be loaded: PrerequisiteError: Task named 'nothing' not"),
                ("task.py@exactly", "cannot be loaded: ValueError: there is no file task.py in "),
            )
        ),
        (["inspect_evals/gpqa", "--model", "a/a", "--model", "b/b"], "pip install inspect_evals"),
        pytest.param(
            ["tasks.py@exactly", "--model", "openai/a", "--model", "openai/b"],
            "the task cannot be run: PrerequisiteError: ERROR: ",
            marks=pytest.mark.slow,
        ),
        (["run.yaml", "--model", "a/a"], "is for files of questions and tasks of Inspect, but run.yaml is"),
        (["tasks.py@exactly", "--model", "a/a", "--budget", "20"], "must be a number with a unit, as in 20usd"),
    ],
)
def test_mistakes_say_what_to_do(site: Site, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    monkeypatch.chdir(site.folder)
    monkeypatch.delenv(DEFAULT_KEY, raising=False)
    write(site, "exactly")
    refused = typed("run", *words, "--display", "plain", code=ExitCode.CONFIGURATION)
    assert message in refused.output and "[/" not in refused.output


def test_what_does_not_go_with_a_task_is_refused(site: Site) -> None:
    wrong = {
        "grader": "exact",
        "sampling": {"temperature": 0.5},
        "models": [
            {"name": "a", "base_url": "http://localhost:1/v1"},
            {"name": "b", "inspect": "b/b", "batch": "openai"},
            {"name": "c", "inspect": "c/c"},
        ],
    }
    output = run(site, write(site, "exactly", **wrong)).output
    assert "has no effect: the task's own scorer grades" in output
    assert "may only have max_tokens" in output
    assert "must be set: the benchmark is an Inspect task" in output
    alone = site.write("alone", models=[{"name": "a", "inspect": "a/a"}, {"name": "b", "inspect": "b/b"}])
    assert "is for Inspect tasks, but there is no benchmark" in run(site, alone).output
