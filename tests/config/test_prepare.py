"""What is known of a run before it begins."""

import json
from pathlib import Path

import pytest
from checked_text import check_text

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.config import prepare as prepare_module
from adaptive_eval.config.prepare import prepare, run_header, stored_config
from adaptive_eval.config.run import ModelConfig, RunConfig
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
    config = check_text(CONFIG, Path("run.yaml"), (), {}).config
    assert config is not None
    return config


def test_the_worst_trial_has_the_longest_prompt_and_the_longest_answer(config: RunConfig) -> None:
    prepared = prepare(config)
    longest = max(len(question.prompt.encode()) for question in prepared.questions) + TEMPLATE_TOKENS
    first, second, third = prepared.plan.bench.worst_cost
    assert first == Cost(longest + 100, pytest.approx((longest + 200) / 1e6))
    assert second.tokens == first.tokens + len(" Think.")
    assert third.tokens == first.tokens


def test_models_that_are_asked_alike_have_their_prompts_rendered_once(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[object] = []
    render = prepare_module.render
    monkeypatch.setattr(prepare_module, "render", lambda *given: rendered.append(given) or render(*given))
    prepared = prepare(config)
    assert len(rendered) == 2 * len(prepared.questions)
    assert prepared.prompts[0] is prepared.prompts[2] is not prepared.prompts[1]


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
    stored["rubric"] = {
        "name": "x",
        "categories": [
            {"name": "right", "weight": weight, "when": {"is_correct": True}},
            {"name": "wrong", "weight": 0},
        ],
    }
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
