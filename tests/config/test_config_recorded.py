"""Recorded models in a configuration: what goes with them and what does not."""

from pathlib import Path

import pytest

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare

HEAD = "questions: {world: coins}\ngrader: math\n"
RECORDED = "- {name: coin-01, recorded: runs/old}\n"
NEW = "- {name: coin-02, simulate: true}\n"


def write(tmp_path: Path, models: str, more: str = "") -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(f"{HEAD}{more}models:\n{models}")
    return path


def test_a_recorded_model_needs_no_address_price_or_length(tmp_path: Path) -> None:
    priced = "- {name: coin-02, simulate: true, price: {input: 1, output: 1}, sampling: {max_tokens: 9}, gpus: 1}\n"
    caps = "budget: {usd: 5, tokens: 1000, gpu_hours: 2}\nobjective: place\n"
    config = load_config(write(tmp_path, RECORDED + priced, caps))
    assert [model.name for model in config.asked] == ["coin-02"]
    bench = prepare(config).plan.bench
    assert bench.recorded == {0}
    assert bench.worst_cost[0] == (0, 0.0, 0.0)
    assert bench.worst_cost[1].usd > 0.0


@pytest.mark.parametrize(
    ("models", "more", "message"),
    [
        (RECORDED, "", "must include a model to ask, but all are recorded"),
        (NEW + "- {name: coin-03, simulate: true}\n", "objective: place\n", "place needs recorded models"),
        ("- {name: coin-01, recorded: r, base_url: 'http://x/v1'}\n" + NEW, "", "recorded model, which is never asked"),
        ("- {name: coin-01, recorded: r, simulate: true}\n" + NEW, "", "remove simulate, or recorded"),
        ("- {name: coin-01, recorded: r, batch: openai}\n" + NEW, "", "remove batch, or recorded"),
        ("- {name: coin-01, recorded: r, launch: {command: 'v {port}'}}\n" + NEW, "", "remove launch, or recorded"),
        (RECORDED + NEW, "prior: {run: runs/older}\n", "cannot be combined with recorded models"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, models: str, more: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, models, more))
    assert message in str(caught.value)
