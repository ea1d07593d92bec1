"""`--dry-run` and `validate` say what a run would do, and do nothing of it; so does the forecast."""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import typed
from live_runs import ENDED, MODELS, RunOutcome, Site, judge_at, models_at, small_world, trials_in

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.endpoints.types import TEMPLATE_TOKENS
from adaptive_eval.graders.types import Grade
from adaptive_eval.report.dry_run import DRY_RUN
from adaptive_eval.running import rehearsal
from adaptive_eval.simulate.faults import Faults
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency, binary, with_mean
from adaptive_eval.store.errors import DATABASE_FILE


def test_a_dry_run_says_what_would_run_and_its_worst_cost(site: Site) -> None:
    config = site.write(budget={"tokens": 100_000}, stopping={"delta": 0.02})
    result = site.run(config, "--dry-run", code=ExitCode.REACHED)
    assert "at confidence 0.95, delta 2 points\n" in result.stdout
    for name in MODELS:
        assert f"ok    {name}" in result.stdout
    assert "3 models, 8 questions, objective ranking, " in result.stdout
    assert "at most   720 trials, 100k tokens" in result.stdout
    worst = "worst case: every answer at max_tokens, one token per byte of the prompt"
    assert f"{worst}, and {TEMPLATE_TOKENS} more)" in result.stdout
    assert f"forecast  adaptive-eval plan {config}\n" in result.stdout
    assert f"directory {site.directory()} (a new run)" in result.stdout
    assert "saved     6 answers; the run and `plan` use them" in result.stdout
    assert result.stdout.splitlines()[-1] == f"Next: adaptive-eval run {config} --run-dir {site.directory()}"
    assert [path.name for path in site.directory().iterdir()] == [DRY_RUN], "no run was begun"


def test_a_run_begins_with_the_answers_of_its_dry_run(site: Site) -> None:
    trials = {"min": 4, "max": 4}
    with_dry_run, without = SimulatedServer(small_world()), SimulatedServer(small_world())
    with serving(with_dry_run) as url:
        config = site.at(url).write(trials=trials)
        site.run(config, "--dry-run")
        before = with_dry_run.counts["answered"]
        assert "begins with 6 answers of the dry run" in site.run(config, code=ENDED).stderr
        assert with_dry_run.counts["answered"] - before == 3 * 8 * 4 - 6
    assert not (site.directory() / DRY_RUN).exists()
    with serving(without) as url:
        assert RunOutcome.of(site.directory()) == site.at(url).finished("plain", trials=trials)


@pytest.mark.slow
def test_answers_of_a_dry_run_with_other_settings_are_not_used(site: Site) -> None:
    config = site.write(trials={"min": 2, "max": 2})
    site.run(config, "--dry-run", "--set", "sampling.temperature=0.2")
    site.run(config, "--dry-run")  # in place of the first
    result = site.run(config, "--set", "sampling.temperature=0.1")
    assert result.exit_code in ENDED and "not used, since it had other settings" in result.stderr
    assert "sampling.temperature: 0.6 → 0.1" in result.stderr
    assert trials_in(site.directory()) == 3 * 8 * 2
    elsewhere = ("--run-dir", site.folder / "b")
    assert site.run(config, "--dry-run", *elsewhere).exit_code == ExitCode.REACHED
    raised = site.run(config, *elsewhere, "--set", "trials.max=3")
    assert "begins with 6 answers" in raised.stderr, "what a trial means is the same"


@pytest.mark.slow
def test_a_plan_takes_tokens_and_times_of_the_dry_run_and_then_of_the_run(site: Site) -> None:
    """Answers have 200 words where max_tokens lets one guess 5,000."""
    config = site.write(sampling={"temperature": 0.6, "max_tokens": 20_000}, store=str(site.directory().parent))

    def tokens() -> tuple[float, str]:
        result = typed("plan", config, "--simulations", "10", "--json", site.folder / "plan.json")
        assert result.exit_code == ExitCode.REACHED, result.output
        plan = json.loads((site.folder / "plan.json").read_bytes())
        return plan["need"]["costs"]["tokens"]["median"] / plan["need"]["costs"]["trials"]["median"], result.stdout

    guessed, before = tokens()
    site.run(config, "--dry-run")
    measured, after = tokens()
    assert guessed > 3000 and 100 < measured < 1000
    assert "the dry run" not in before and "tokens and times are those of 6 answers of the dry run" in after
    assert site.run(config).exit_code in ENDED
    measured, after = tokens()
    assert 100 < measured < 1000 and "from the posterior of the run so far: " in after


def test_the_most_tokens_are_those_of_the_trials_that_are_allowed(site: Site) -> None:
    limits = zip(MODELS, (2000, 1000), strict=False)
    models = [{"name": name, "base_url": site.base_url, "sampling": {"max_tokens": limit}} for name, limit in limits]
    pattern = re.compile(r"^at most   (\d+) trials, (\d+)k tokens", re.MULTILINE)
    for cap, tokens in ((300, 240 * 2 + 60), (None, 240 * 3)):
        output = site.run(site.write(models=models, budget={} if cap is None else {"trials": cap}), "--dry-run").stdout
        match = pattern.search(output)
        assert match is not None and int(match[1]) == (cap or 480)
        assert tokens <= int(match[2]) <= 1.5 * tokens


@pytest.mark.slow
def test_a_dry_run_says_if_a_run_cannot_resume_or_begin(site: Site) -> None:
    config = site.write(trials={"min": 2, "max": 2})
    site.run(config)
    stored = (site.directory() / DATABASE_FILE).read_bytes()
    assert f"directory {site.directory()} (resumes with 48 trials)" in site.run(config, "--dry-run").stdout
    result = site.run(config, "--dry-run", "--set", "sampling.temperature=0.1")
    assert result.exit_code == ExitCode.CONFIGURATION and "has a run with other settings" in result.stderr
    result = site.run(config, "--dry-run", "--set", "prior.run=elsewhere")
    assert result.exit_code == ExitCode.CONFIGURATION and "elsewhere" in result.stderr
    assert (site.directory() / DATABASE_FILE).read_bytes() == stored


def test_a_dry_run_names_every_server(site: Site) -> None:
    models = models_at(site.base_url, "ada", "bob")
    models[0]["base_url"] = [site.base_url, "http://127.0.0.1:9/v1"]
    result = site.run(site.write(models=models), "--dry-run", code=ExitCode.ENDPOINTS)
    states = [line.split()[:2] for line in result.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]
    assert states == [["ok", "ada"], ["FAIL", "ada"], ["ok", "bob"]]
    assert result.stdout.splitlines()[-1].startswith("Next: fix")
    assert site.run(site.write(), "--dry-run").exit_code == ExitCode.REACHED


def test_servers_are_started_for_a_dry_run_on_this_machine_alone(site: Site) -> None:
    for options in (("--start-servers",), ("--dry-run", "--start-servers", "--ray", "auto")):
        assert "--start-servers needs --dry-run" in site.run(site.write(), *options, code=ExitCode.CONFIGURATION).stderr
    assert not site.directory().exists()


@pytest.mark.parametrize("server", [{}, {"batch": "openai"}], ids=["asked directly", "else asked in batches"])
def test_a_dry_run_shows_two_graded_answers_of_each_model(site: Site, server: dict[str, str]) -> None:
    result = site.run(site.write(models=models_at(site.base_url, **server)), "--dry-run")
    lines = result.stdout.splitlines()
    for name in MODELS:
        assert [line.split()[2] for line in lines if line.startswith(f"answer  {name}")] == ["q0", "q1"]
    assert sum("response" in line and "tokens" in line for line in lines) == 6
    parsed = [line for line in lines if line.startswith("        parsed ")]
    assert len(parsed) == 6
    assert all(any(word in line for word in ("correct (1)", "incorrect (0)", "wrong (0)")) for line in parsed)
    assert "keys      the grader accepts all 8 answer keys" in result.stdout


@pytest.mark.slow
def test_a_grader_that_cannot_work_is_found_before_anything_is_asked(site: Site) -> None:
    (site.folder / "backwards.py").write_text("def grade(question, text):\n    return question.answer in text\n")
    for function, kind, problem in (
        ("nomod:grade", "the grader python cannot start", "module nomod could not be imported"),
        ("backwards:grade", "rejects the answer keys", "no attribute"),
    ):
        config = site.write(grader={"kind": "python", "function": function}, grading={"workers": 1})
        results = [typed("validate", config), site.run(config)]
        results += [site.run(config, "--dry-run")] if function.startswith("nomod") else []
        for result in results:
            assert result.exit_code == ExitCode.CONFIGURATION, result.stdout
            assert kind in result.stderr and problem in result.stderr
            assert "ok  " not in result.stdout
    assert not site.directory().exists()


@pytest.mark.usefixtures("short_pauses")
def test_a_dry_run_asks_the_servers_of_judges_too(site: Site) -> None:
    away = {"base_url": "http://127.0.0.1:9/v1", "model": "judge"}
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge())) as url:
        reachable = {"base_url": url, "model": "judge"}
        for other, code in ((reachable, ExitCode.REACHED), (away, ExitCode.ENDPOINTS)):
            grader = {"kind": "judge", "server": [reachable, other]}
            result = site.run(site.at(url).write(grader=grader, concurrency={"retry_for": 0}), "--dry-run", code=code)
            assert "ok    the judge 1" in result.output
            assert ("FAIL  the judge 2  http://127.0.0.1:9/v1" in result.output) == (code is ExitCode.ENDPOINTS)


def test_a_dry_run_in_which_nothing_is_graded_says_so(site: Site) -> None:
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge(mute=1.0))) as url:
        result = site.run(site.at(url).write(grader=judge_at(url)), "--dry-run")
    assert result.stdout.count("no grade: the judge gave no verdict") == 6
    assert "warn  the grader fails on all of these answers" in result.stdout and "fix what failed" in result.stdout
    unread = site.run(site.write(grader={"kind": "json", "field": "answer"}), "--dry-run")
    assert "warn  the grader finds nothing in any of these answers" in unread.stdout
    wrong = site.run(site.write(grader="exact"), "--dry-run")
    assert "warn  all of these answers are in the worst category" in wrong.stdout, "their numbers are boxed"
    assert "these answers" not in site.run(site.write(), "--dry-run").stdout


@pytest.mark.patient
async def test_a_dry_run_waits_for_nothing_that_never_comes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> Grade:
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(rehearsal, "MAX_WAIT_SECONDS", 6.0)
    monkeypatch.setattr(rehearsal, "grade_answer", never)
    for hang, when in ((1.0, "ada has not answered"), (0.0, "its grade has not come")):
        async with SimulatedServer(small_world(), faults=Faults(hang=hang)) as server:
            models = models_at(server.base_url)
            tried = await rehearsal.try_answers(prepare(load_config(site.write(models=models))), {"ada"})
        told = [str(attempt.grade or attempt.answer) for attempt in tried]
        assert len(told) == 2 and all(text.startswith(f"{when} within 0.1 minutes") for text in told), told


MARGIN = 0.2
"""Of the run: three runs and ten simulated ones each have a spread of some percent; a third of what `time` asks here is
asked ahead."""
GUESSED: tuple[dict[str, object], ...] = ({"temperature": 0.6}, {"temperature": 0.6, "max_tokens": 2000})
"""Without a length the times of answers are not known: what is asked ahead is the same."""


def forecast_trials(site: Site, **changes: object) -> float:
    """The median of the forecast."""
    path = site.folder / "forecast.json"
    typed("plan", site.write(**changes), "--simulations", "10", "--json", path, code=0)
    return float(json.loads(path.read_text())["need"]["costs"]["trials"]["median"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimize", "seconds"), [("cost", 0.004), pytest.param("time", 0.1, marks=pytest.mark.release)]
)
def test_the_forecast_counts_every_answer_that_the_run_asks(
    optimize: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the world of the servers, and in no other: worlds differ by far more than this. Wrong answers take twice as
    long, as the forecast says that it assumes."""
    p = binary(np.array([with_mean(np.linspace(0.02, 0.98, 8), mean) for mean in (0.85, 0.5, 0.15)]))
    world = replace(small_world(), p=p, latency=Latency(median=seconds))
    monkeypatch.chdir(tmp_path)  # a plan goes by the run and the dry run that are there
    monkeypatch.setattr("adaptive_eval.study.forecast.prior_chances", lambda *_: iter([world.p] * 10))
    pace = {"trials": {"min": 4, "max": 80, "optimize": optimize}, "concurrency": 16}
    with serving(SimulatedServer(world)) as url:
        site, asked = Site.make(tmp_path, url), list[int]()
        for seed in range(3):
            site.finished(f"run-{seed}", **pace, seed=seed)
            asked.append(site.results(f"run-{seed}")["cost"]["trials"])
        forecasts = [forecast_trials(site, **pace, sampling=sampling) for sampling in GUESSED]
    assert forecasts == pytest.approx([np.mean(asked)] * len(GUESSED), rel=MARGIN)
