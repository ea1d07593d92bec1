"""`adaptive-eval plan`, from the command line to its output."""

import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from planned import (
    HORIZON,
    LATENCY,
    MODELS,
    PROMPT_TOKENS,
    RIGHT_TOKENS,
    WORLD,
    WRONG_TOKENS,
    outcome_of,
    prepared_from,
    store_run,
    write_config,
)
from stored_runs import store_records

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.machine.clocks import HeldTime
from adaptive_eval.notes import ServerLaunched
from adaptive_eval.study.types import FORMAT


@pytest.fixture(autouse=True)
def _work_in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


planned = partial(typed, "plan")


IN_STEP = ("--set", "trials.optimize=cost")
"""A run that is not timed, which takes much less time."""


def forecast(*arguments: str, worlds: int = 10, timed: bool = False) -> dict[str, Any]:
    """The written forecast, with the shown text under `shown`."""
    pace = () if timed else IN_STEP
    done = planned(*arguments, *pace, "--simulations", str(worlds), "--json", "forecast.json", code=ExitCode.REACHED)
    content: dict[str, Any] = json.loads(Path("forecast.json").read_text())
    return content | {"shown": done.stdout}


def test_without_a_pilot_the_prior_is_stated_and_costs_are_ordered() -> None:
    path = write_config(Path())
    result = forecast(str(path))
    assert result["format"] == FORMAT and result["name"] == "small" and result["pilot"] is None
    assert "true scores are drawn from a wide prior" in result["basis"][0]
    assert "quarter of sampling.max_tokens" in result["basis"][1]
    costs = result["need"]["costs"]
    for name in ("trials", "tokens", "usd", "gpu_hours", "seconds"):
        assert 0 < costs[name]["low"] <= costs[name]["median"] <= costs[name]["high"]
    fixed = result["fixed"]
    assert fixed["trials"] == 3 * 8 * HORIZON
    prompt = len("What is q0?") / 4
    completion = fixed["gpu_hours"] * 3600 / (2 / 8) * 40 / fixed["trials"]
    assert 500 / 1.5 < completion < 1000 / 1.5, "right answers have half of what wrong ones have, and both together 500"
    assert fixed["tokens"] == pytest.approx(fixed["trials"] * (prompt + completion), rel=2e-3), "whole tokens an answer"
    assert fixed["usd"] == pytest.approx(fixed["trials"] * (prompt * 1 + completion * 4) / 1e6, rel=2e-3)
    assert costs["trials"]["high"] <= fixed["trials"]
    assert result["capped"] is None and result["spent"] is None and result["equal"] is None
    chance = f"{result['need']['reached']:.0%}"
    assert "% of the fixed design's" in result["shown"] and "the worst case" in result["shown"]
    assert "\nwithout a limit " in result["shown"] and f"all are decided: {chance}" in result["shown"]
    assert "\n  GPU hours  " in result["shown"]
    first, *_, last = result["shown"].splitlines()
    share = f"{costs['usd']['median'] / fixed['usd']:.0%}"
    assert first.startswith("What will the run cost and decide? Median: $")
    assert f", {share} of the cost of {HORIZON} answers per question from each model" in first
    assert first.endswith(f"of 2 comparisons decided. Chance that all are decided: {chance}")
    assert last == f"Next: adaptive-eval run {path} {' '.join(IN_STEP)}"


@pytest.mark.slow
def test_a_pilot_tells_what_answers_use() -> None:
    store_run(prepared_from(write_config(Path(), "pilot"), "trials.max=8"), Path("runs/pilot"))
    result = forecast(str(write_config(Path())), "--pilot", "runs/pilot")
    assert result["pilot"] == "pilot" and result["spent"] is None
    scores = dict(zip(result["models"], result["scores"], strict=True))
    assert scores["ada"]["low"] > scores["cyd"]["high"]
    costs, trials = result["need"]["costs"], result["need"]["costs"]["trials"]["median"]
    tokens_per_answer = costs["tokens"]["median"] / trials
    assert PROMPT_TOKENS + RIGHT_TOKENS < tokens_per_answer < PROMPT_TOKENS + WRONG_TOKENS
    assert LATENCY < 3600 * costs["gpu_hours"]["median"] / trials * 8 / 2 < 2 * LATENCY


@pytest.mark.slow
def test_a_finished_run_needs_nothing_more() -> None:
    """Its trials are fixed, so that every simulated world gives the same run."""
    path = write_config(Path(), trials={"min": 4, "max": HORIZON, "optimize": "cost"})
    trials = store_run(prepared_from(path), Path("runs/small"))
    result = forecast(str(path), "--pilot", "runs/small")
    assert result["spent"]["trials"] == trials and result["spent"]["seconds"] == 60.0
    assert result["need"]["costs"]["trials"] == {"median": trials, "low": trials, "high": trials}
    assert result["need"]["costs"]["seconds"]["high"] == 60.0
    assert result["need"]["costs"]["usd"]["median"] == pytest.approx(result["spent"]["usd"])
    assert f"the run has {trials} trials already; still to come: 0 (0 .. 0) trials" in result["shown"]
    assert result["shown"].endswith("\nNext: adaptive-eval report runs/small\n")


@pytest.mark.slow
def test_a_run_goes_on_from_what_it_has() -> None:
    path = write_config(Path())
    trials = store_run(prepared_from(path), Path("runs/small"), rounds=3)
    result = forecast(str(path))
    assert result["spent"]["trials"] == trials
    assert result["need"]["costs"]["trials"]["low"] >= trials
    assert result["basis"][0].startswith(f"true scores are drawn from the posterior of the run so far: {trials} trials")
    assert result == forecast(str(path), "--pilot", "runs/small"), "the same seed"
    assert result["need"] != forecast(str(path), "--seed", "1")["need"]
    assert f" (${result['spent']['usd']:.2f} so far), " in result["shown"].splitlines()[0]
    refused = forecast(str(path), "--set", "sampling.max_tokens=1000")
    assert refused["spent"] is None and "warning   `run` will not start" in refused["shown"]
    moved = Path("elsewhere")
    Path("runs/small").rename(moved)
    other = forecast(str(path), "--pilot", str(moved))
    assert other["spent"] is None and "posterior of the pilot small" in other["basis"][0]


@pytest.mark.slow
def test_a_budget_has_paid_for_the_answers_of_removed_models() -> None:
    alike = WORLD[[1, 1, 1]]
    trials = store_run(prepared_from(write_config(Path())), Path("runs/small"), alike, rounds=1)
    path = write_config(Path(), models=MODELS[:2])
    result = forecast(str(path), "--set", "budget.trials=180", "--set", "stopping.options.worth=50")
    of_removed = trials - result["spent"]["trials"]
    assert of_removed == trials / 3 and result["capped"]["costs"]["trials"]["high"] <= 180 - of_removed


@pytest.mark.slow
@pytest.mark.parametrize("cap", [400, 416])
def test_a_budget_holds_if_a_model_joins_a_run(cap: int) -> None:
    """Also for answers that no simulated look of the new run would have come to; the first round has 32."""
    prepared = prepared_from(write_config(Path(), models=MODELS[:2]), "trials.max=60")
    cells = ((model, question, trial) for model in range(2) for question in range(8) for trial in range(24))
    trials = [outcome_of(prepared, *cell, int(cell[2] % 2)) for cell in cells]
    store_records(Path("runs/small"), prepared.header, trials, elapsed=60.0)
    result = forecast(str(write_config(Path())), "--set", "trials.max=60", "--set", f"budget.trials={cap}")
    trials = 384 if cap == 400 else 416
    assert result["capped"]["costs"]["trials"] == {"median": trials, "low": trials, "high": trials}


@pytest.mark.slow
def test_a_budget_is_forecast_beside_the_need() -> None:
    result = forecast(str(write_config(Path())), "--set", "budget.trials=200", worlds=12)
    assert result["capped"]["costs"]["trials"]["high"] <= 200 <= result["need"]["costs"]["trials"]["high"]
    assert result["capped"]["reached"] <= result["need"]["reached"]
    assert "\nif no limit is reached " in result["shown"] and "\nwith the limit " in result["shown"]
    assert "without a limit" not in result["shown"], "where answers are capped, what was begun is asked to its end"


@pytest.mark.slow
@pytest.mark.parametrize("timed", [False, True])
def test_a_budget_below_the_first_round_has_no_ranking_and_no_forecast_beyond_it(timed: bool) -> None:
    result = forecast(str(write_config(Path())), "--set", "budget.tokens=5000", timed=timed)
    capped, shown = result["capped"], result["shown"]
    assert capped["costs"]["tokens"]["high"] <= 5000 and capped["costs"]["trials"]["high"] < 96
    assert shown.count("he budget does not cover the first round: no ranking") == 2
    if timed:
        pace = result["decisions"]["trials"]["optimize"]
        assert f"optimize  {pace}" in shown and f": {result['why_optimized']}" in shown
    assert "0 of 0" not in shown and "of its trials" not in shown and result["as_many"] is None


@pytest.mark.parametrize(
    "objective",
    [
        "best",
        pytest.param("{kind: threshold, value: 0.5}", marks=pytest.mark.slow),
        "{kind: precision, half_width: 5%}",
    ],
)
def test_every_kind_of_objective(objective: str) -> None:
    result = forecast(str(write_config(Path())), "--set", f"objective={objective}")
    assert result["need"]["comparisons"] == (2 if objective == "best" else 3)
    if "precision" in objective:
        assert result["limits"] == {"gap": None, "largest": None, "delta": None}
        assert all(pair["gap"] is None for pair in result["undecided"])


REFUSED = {
    "no such run": (["--pilot", "absent"], "absent"),
    "no trial": (["--pilot", "runs/empty"], "has no graded trial"),
    "other models": (["--pilot", "runs/others"], "has no model of the configuration, but eve, fay"),
    "another rubric": (["--pilot", "runs/graded"], "was graded with another rubric"),
    "a wrong setting": (["--set", "trials.maxx=3"], "trials.maxx is not a known key"),
    "no place": (
        ["--json", "no/such/place.json"],
        "--json must be a file in an existing folder, but got no/such/place.json",
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without trials, a run of other models, and a run graded with another rubric."""
    folder = tmp_path_factory.mktemp("stored")
    store_run(prepared_from(write_config(folder, "empty")), folder / "runs/empty", rounds=0)
    others = write_config(folder, "others", ["eve", "fay"])
    store_run(prepared_from(others), folder / "runs/others", WORLD[:2], rounds=1)
    graded = "rubric={categories: [{name: yes, weight: 1, when: {is_correct: true}}, {name: no, weight: 0}]}"
    store_run(prepared_from(write_config(folder, "graded"), graded), folder / "runs/graded", rounds=1)
    return folder / "runs"


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_planned_is_refused(runs: Path, arguments: list[str], message: str) -> None:
    shutil.copytree(runs, "runs")
    done = planned(str(write_config(Path())), "--simulations", "10", *arguments)
    assert done.exit_code in (ExitCode.CONFIGURATION, ExitCode.FAILED)
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert not list(Path().rglob("*.tmp"))


def test_an_unknown_time_relative_to_the_fixed_design_is_stated_in_words() -> None:
    path = write_config(Path())
    done = planned(str(path), "--simulations", "10", *IN_STEP, "--set", "sampling={temperature: 0.6}")
    assert "tokens are unknown: give a pilot, or sampling.max_tokens for a guess" in done.stdout
    assert "simulated runs" in done.stderr and "\x1b" not in done.stderr and done.stdout.count("\n") < 40


@pytest.mark.slow
@pytest.mark.parametrize("pace", ["cost", "time"])
def test_a_slow_plan_recommends_the_faster_pace(pace: str) -> None:
    """Unless it is already the pace of the run."""
    words = (str(write_config(Path())), "--set", "concurrency=256", "--set", f"trials.optimize={pace}")
    result = forecast(*words, "--set", "stopping.options.worth=50", timed=True)
    assert result["times_as_long"] > 1.0 and result["why_optimized"] is None
    assert f"optimize  {pace}" in result["shown"]
    assert ("trials.optimize: time keeps those of the run busy, too" in result["shown"]) == (pace == "cost")


@pytest.mark.slow
def test_the_forecast_of_a_gate_says_how_often_it_passes_and_what_it_takes() -> None:
    path = write_config(Path())
    baseline, *_ = prepared_from(path).models
    change = ["--set", f"objective={{kind: baseline, baseline: {baseline}, gate: true}}", "--set"]
    narrow, broad = (forecast(str(path), *change, f"stopping.delta={delta}") for delta in (0, 0.5))
    strict, wide = narrow["need"], broad["need"]
    for need in (strict, wide):
        assert sum(need["gate"].values()) == pytest.approx(1.0)
    assert wide["gate"]["PASS"] > strict["gate"]["PASS"]
    assert wide["costs"]["trials"]["median"] <= strict["costs"]["trials"]["median"]
    assert narrow["equal"]["gate"]["PASS"] < 0.3
    assert broad["equal"]["gate"] == {"PASS": 1.0, "FAIL": 0.0, "UNDECIDED": 0.0}
    lead = broad["shown"].index("a build exactly as good as the baseline: PASS 100%, FAIL 0%, UNDECIDED 0%")
    cost, fixed = broad["equal"]["costs"]["usd"]["median"], broad["fixed"]["usd"]
    assert f", {cost / fixed:.0%} of the cost of " in broad["shown"].splitlines()[0], "of the builds it speaks of"
    assert lead < broad["shown"].index("true scores of neighbours differ") < broad["shown"].index("gate: PASS ")
    assert re.search(r"^(gap|delta) ", broad["shown"], re.MULTILINE) is None, "a gate decides no difference"
    assert re.search(
        r"^assumed: true scores of neighbours differ by [\d.]+ points .* [\d.]+ points to [\d.]+ points\)$",
        broad["shown"],
        re.MULTILINE,
    )


@pytest.mark.slow
def test_the_forecast_of_a_gate_on_a_value_counts_models_below_it_as_failed() -> None:
    path = write_config(Path())
    outcomes = {}
    for value in (0.01, 0.99):
        change = ["--set", f"objective={{kind: threshold, value: {value}, gate: true}}", "--set", "stopping.delta=0.1"]
        result = forecast(str(path), *change)
        outcomes[value] = result["need"]["gate"]
        assert result["equal"] is None
    assert outcomes[0.01]["PASS"] == 1.0
    assert outcomes[0.99]["FAIL"] > 0.8 and outcomes[0.99]["PASS"] < 0.2


@pytest.mark.slow
def test_batches_are_waited_for_and_priced_as_such() -> None:
    """Each round takes as long as a batch, so that the pace with the fewest looks is fastest by far."""
    path = write_config(Path())
    direct, batched = (
        forecast(str(path), "--set", f"models={json.dumps(models)}", "--set", "trials.max=40", *more, timed=every)
        for models, more, every in ((batch_models({}), (), False), (batch_models({"batch": "openai"}), (), True))
    )
    assert any("a batch is guessed to be answered in 1 h, whatever its size" in line for line in batched["basis"])
    assert batched["fixed"]["seconds"] == pytest.approx(3600.0)
    assert batched["fixed"]["usd"] == pytest.approx(direct["fixed"]["usd"] / 2)
    assert "a batch is" not in " ".join(direct["basis"])


def batch_models(changes: dict[str, object]) -> list[dict[str, object]]:
    shared = {"base_url": "http://127.0.0.1:9/v1", "price": {"input": 1, "output": 4}}
    return [{"name": name, **shared, **changes} for name in ("ada", "bob", "cyd")]


@pytest.mark.slow
def test_a_cap_on_gpu_hours_counts_the_time_of_started_servers() -> None:
    """Without a pilot, a start time is a guess; with the run itself as pilot, the time already held counts."""
    launched = [{"name": name, "gpus": 2, "launch": {"command": "serve --port {port}"}} for name in MODELS]
    path, models = write_config(Path()), f"models={json.dumps(launched)}"
    guessed = forecast(str(path), "--set", models)
    starts = 3 * 2 * 120.0 / 3600.0
    assert "a server that the run starts takes 120 s (a guess)" in guessed["basis"]
    assert starts < guessed["need"]["costs"]["gpu_hours"]["low"] < guessed["fixed"]["gpu_hours"]
    prepared = prepared_from(path, models)
    store_run(prepared, Path("runs/small"), rounds=2)
    events = [ServerLaunched(name, seconds=seconds) for name in MODELS for seconds in (80.0, 20.0)]
    store_records(
        Path("runs/small"), prepared.header, events=events, held={MODELS[0]: HeldTime(1800.0, 3600.0)._asdict()}
    )
    result = forecast(str(path), "--set", models, "--pilot", "runs/small", "--set", "budget.gpu_hours=1.2")
    assert "a server that the run starts takes 80 s, as in the pilot" in result["basis"]
    assert result["spent"]["gpu_hours"] == 1.0
    within, need = result["capped"]["costs"]["gpu_hours"], result["need"]["costs"]["gpu_hours"]
    assert 1.0 <= within["low"] <= within["high"] <= 1.2 < need["high"]


@pytest.mark.slow
def test_models_that_share_a_pool_take_turns_as_in_a_run() -> None:
    path = write_config(Path())

    def planned_on(places: int, **launch: bool) -> dict[str, Any]:
        serving = {"command": "python serve.py --port {port}", **launch}
        models = json.dumps([{"name": name, "launch": serving} for name in MODELS])
        pool = json.dumps(list(range(places)))
        return forecast(str(path), "--set", f"models={models}", "--set", f"pool={pool}", "--set", "trials.max=40")

    def seconds(result: dict[str, Any]) -> float:
        return float(result["need"]["costs"]["seconds"]["median"])

    single, double, asleep = planned_on(1), planned_on(2), planned_on(1, sleep=True)
    assert seconds(double) < seconds(single) and seconds(asleep) < seconds(single)
    note = "a server that the run starts takes 120 s (a guess)"
    assert note in single["basis"] and f"{note}, and 5 s to wake (a guess)" in asleep["basis"]
    assert (
        "a pool with a place for each model is simulated with one server per model: the run may end sooner"
        in (planned_on(3)["basis"])
    )


@pytest.mark.slow
def test_drawing_questions_is_proposed_for_very_many_questions() -> None:
    def proposed(questions: int) -> bool:
        models = "\n".join(f"- {{name: model-0{number}, simulate: true}}" for number in (1, 2))
        world = f"questions: {{world: many_questions, limit: {questions}}}"
        Path("many.yaml").write_text(f"{world}\nmodels:\n{models}\ngrader: numeric\ntrials: {{min: 4, max: 8}}\n")
        done = planned("many.yaml", *IN_STEP, "--simulations", "10", code=ExitCode.REACHED)
        return "hint      the first look needs 16,000 trials; with `trials: {min: 1, max: 1, draw: 200}` only 400" in (
            done.stdout
        )

    assert proposed(2000) and not proposed(1999)
