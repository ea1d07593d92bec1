"""What is known of a run before it begins, how its looks lie, and what keeps it from going on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checked_text import check_text, config_in
from two_by_two import HEADER

from adaptive_eval.base.errors import ConfigError, RunChanged, StoreError
from adaptive_eval.config import prepare as prepare_module
from adaptive_eval.config.fingerprint import require_same_meaning
from adaptive_eval.config.load import load_decisions
from adaptive_eval.config.planning import RunFacts, plan_on
from adaptive_eval.config.prepare import prepare, run_header, stored_config
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.core import Ask, Bench, Controller, Optimal, Outcome, Pace, Plan, Trials
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import TEMPLATE_TOKENS
from adaptive_eval.notes import Json
from adaptive_eval.store.header import RunHeader

CONFIG = """
questions: {world: coins}
grader: math
prompt: "{prompt}"
sampling: {max_tokens: 100}
models:
  - {name: one, model: coin-01, simulate: true, price: {input: 1, output: 2}}
  - {name: two, model: coin-02, simulate: true, prompt: "{prompt} Think." }
  - {name: three, model: coin-03, simulate: true}
"""


@pytest.fixture
def config() -> RunConfig:
    return config_in(CONFIG)


def test_worst_trials_have_the_longest_prompt_rendered_once(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[object] = []
    render = prepare_module.render
    monkeypatch.setattr(prepare_module, "render", lambda *given: rendered.append(given) or render(*given))
    prepared = prepare(config)
    assert len(rendered) == 2 * len(prepared.questions), "two of three models are asked alike"
    assert prepared.prompts[0] is prepared.prompts[2] is not prepared.prompts[1]
    longest = max(len(question.prompt.encode()) for question in prepared.questions) + TEMPLATE_TOKENS
    first, second, third = prepared.plan.bench.worst_cost
    assert first == Cost(longest + 100, pytest.approx((longest + 200) / 1e6))
    assert second.tokens == first.tokens + len(" Think.")
    assert third.tokens == first.tokens


def test_a_future_key_of_a_model_is_part_of_what_its_trials_mean(config: RunConfig) -> None:
    class Later(ModelConfig):
        effort: str = "plain"

    settings = config.models[0].model_dump()
    plain, high = (Later.model_validate({**settings, "effort": effort}) for effort in ("plain", "high"))
    meant = [run_header(config.model_copy(update={"models": (model,)}), ()).models for model in (plain, high)]
    assert meant[0] == {"one": run_header(config, ()).models["one"]}, "a new key changes no run that lacks it"
    assert meant[1]["one"] == {**meant[0]["one"], "effort": "high"}


def test_a_service_tier_changes_no_answer(config: RunConfig) -> None:
    def meaning(**body: object) -> object:
        (model, *_) = config.models
        sampling = model.sampling.model_copy(update={"extra_body": body})
        model = model.model_copy(update={"sampling": sampling})
        return run_header(config.model_copy(update={"models": (model,)}), ()).models

    assert meaning() == meaning(service_tier="flex", priority=1) != meaning(presence_penalty=1)


@pytest.mark.parametrize(
    "damage", [{"models": [{"name": "ada", "base_u2l": "http://127.0.0.1:9/v1"}]}, {"models": 3}, {}]
)
def test_a_stored_configuration_that_is_none_is_named_as_such(damage: dict[str, Json]) -> None:
    with pytest.raises(StoreError, match="stored configuration is damaged.*restore a copy"):
        stored_config(RunHeader("run", damage, {}, {}, {}))


def test_settings_that_somebody_has_changed_so_that_they_do_not_fit_are_told(config: RunConfig) -> None:
    objective = config.objective.model_copy(update={"kind": "top_k", "k": 10**9})
    with pytest.raises(ConfigError, match="settings are incompatible.*TopK"):
        prepare(config.model_copy(update={"objective": objective}))


@pytest.mark.parametrize("weight", [1e308, -1e308])
def test_a_weight_of_which_no_variance_is_a_number_is_refused(config: RunConfig, weight: float) -> None:
    stored = json.loads(config.model_dump_json())
    right = {"name": "right", "weight": weight, "when": {"is_correct": True}}
    stored["rubric"] = {"name": "x", "categories": [right, {"name": "wrong", "weight": 0}]}
    with pytest.raises(StoreError, match="rubric.categories.0.weight"):
        stored_config(RunHeader("run", stored, {}, {}, {}))


def test_answer_keys_that_are_wrong_in_the_same_way_are_reported_once(tmp_path: Path) -> None:
    rows = [{"id": f"q{at}", "prompt": "?", "answer": "B" if at == 3 else f"colour {at}"} for at in range(12)]
    rows.append({"id": "odd", "prompt": "?", "answer": "F", "choices": ["red", "blue"]})
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    text = CONFIG.replace("{world: coins}", json.dumps(str(tmp_path / "questions.jsonl"))).replace("math", "choice")
    text = text.replace("simulate: true", 'base_url: "http://127.0.0.1:9/v1"')
    config = check_text(text, tmp_path / "run.yaml", (), {}).config
    assert config is not None
    with pytest.raises(ConfigError) as refused:
        prepare(config)
    _, first, other = str(refused.value).splitlines()
    assert first.startswith("  question q0: has no choices, and its answer 'colour 0' is not a letter A to E")
    assert first.endswith("(and 10 more)")
    assert other.startswith("  question odd: ")


TASK = {"inspect": "my_task.py@sums", "digest": "0123abcd"}
EDITED = {**TASK, "digest": "4567"}
SOURCES = {"close.py": "0123abcd", "parts/more.py": "4567abcd"}
MEANING = {
    **HEADER.meaning,
    "benchmark": TASK,
    "benchmarks": {"code": {"weight": 2, "benchmark": TASK}},
    "grader": {"kind": "python", "sources": SOURCES},
}


STORED = replace(HEADER, meaning=MEANING)


def refusal(stored: RunHeader, now: RunHeader, **more: bool) -> str:
    with pytest.raises(RunChanged) as changed:
        require_same_meaning(stored, now, "runs/my run", **more)
    return str(changed.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"benchmark": EDITED}, "benchmark.inspect: my_task.py was edited"),
        ({"benchmark": {"inspect": "my_task.py@sums"}}, "benchmark.inspect: my_task.py no longer exists"),
        (
            {"benchmarks": {"code": {"weight": 2, "benchmark": EDITED}}},
            "benchmarks.code.benchmark.inspect: my_task.py was edited",
        ),
        (
            {"grader": {"kind": "python", "sources": {**SOURCES, "parts/more.py": "89"}}},
            "grader: parts/more.py was edited",
        ),
        ({"seed": 8}, "seed: 7 → 8"),
    ],
)
def test_a_changed_file_is_named(change: dict[str, object], expected: str) -> None:
    message = refusal(STORED, replace(STORED, meaning=MEANING | change))
    assert (
        f"\n  {expected.replace('edited', 'edited after the start of the run')}\n" in message
        and "0123abcd" not in message
        and "start a new run: another --run-dir, or --fresh without --run-dir" in message
    )


@pytest.mark.parametrize("is_regradable", [True, False])
def test_a_regrade_is_advised_only_where_all_answers_are_here(is_regradable: bool) -> None:
    """Of R0 and of recorded models there are only grades, so that a regrade refuses such a run."""
    now = replace(STORED, meaning=MEANING | {"grader": {"kind": "math"}})
    message = refusal(STORED, now, is_regradable=is_regradable)
    assert ("adaptive-eval regrade 'runs/my run' --config" in message) == is_regradable


@pytest.mark.parametrize(
    ("change", "helps"),
    [
        ({"models": {**HEADER.models, "small": {"model": "s-2"}}}, True),
        ({"questions": {**HEADER.questions, "q3": {"prompt": "3+3?", "answer": "6"}}}, False),
        ({"questions": {**HEADER.questions, "q1": {"prompt": "1 + 1?", "answer": "2"}}}, False),
        ({"models": {**HEADER.models, "small": {"model": "s-2"}}, "meaning": {**HEADER.meaning, "seed": 8}}, False),
    ],
)
def test_another_name_is_advised_only_where_it_lets_the_run_go_on(change: dict[str, Any], helps: bool) -> None:
    assert ("give a changed model another name" in refusal(HEADER, replace(HEADER, **change))) == helps


OPTIMAL = "stopping.rule=optimal"
BENCH = Bench(2, 10, np.array([0.0, 1.0]))


@pytest.mark.parametrize(
    ("more", "spacing"),
    [
        ("trials.max=50 trials.optimize=cost", (0.0, 0.04, 0.01)),
        ("trials.max=50 trials.optimize=cost budget.usd=5", (0.0, 0.16, 0.01)),
        ("trials.max=50 trials.optimize=cost budget.tokens=500", (0.0, 0.16, 0.01)),
        ("trials.max=50 trials.optimize=time", (0.0, 0.04, 0.01)),
    ],
    ids=["round by round", "by price", "by tokens", "rounds of its own"],
)
def test_looks_are_as_far_apart_as_rounds_are_large(more: str, spacing: tuple[float, ...]) -> None:
    plan = plan_on(BENCH, load_decisions(None, [OPTIMAL, *more.split()], ["a", "b"]), ("a", "b"))
    assert plan.spacing == pytest.approx(spacing)
    rule = plan.deciding_rule
    assert isinstance(rule, Optimal) and rule.spacing == plan.spacing


def test_where_rounds_are_as_large_as_the_need_a_boundary_for_any_looks_decides() -> None:
    decisions = load_decisions(None, [OPTIMAL], ["a", "b"])
    plan = plan_on(BENCH, decisions, ("a", "b"), RunFacts(batched=True))
    assert plan.spacing is None and isinstance(plan.deciding_rule, Sequential)


@pytest.mark.parametrize("pace", [Pace(), Pace(lookahead=3), Pace(lookahead=3, dedicated_servers=True)], ids=str)
def test_no_model_has_more_than_a_round_between_two_looks(pace: Pace) -> None:
    """Whatever comes first: answers of one model are slow, and those that come are of no order."""
    bench, chances = Bench(4, 8, np.array([0.0, 1.0])), np.array([0.8, 0.5, 0.5, 0.2])
    controller = Controller(Plan(bench, trials=Trials(min=4, max=40), pace=pace))
    flight: list[Ask] = []
    held: list[tuple[int, ...]] = []
    rng = np.random.default_rng(4)
    while controller.finished is None:
        flight += controller.ask(1 << 10)
        order = np.argsort(rng.random(len(flight)) * [1.0 + 4.0 * (ask.model == 1) for ask in flight])
        come = set(order[: 1 + rng.integers(24)].tolist())
        outcomes = [Outcome(*flight[at][:3], int(rng.random() < chances[flight[at].model])) for at in come]
        flight = [ask for at, ask in enumerate(flight) if at not in come]
        held += [look.trials for look in controller.tell(outcomes)]
    assert len(held) > 5
    assert np.diff(held, axis=0).max() <= bench.questions
