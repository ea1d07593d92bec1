"""Whatever servers say of their usage, and whenever a run is killed, it generates no more than its caps allow."""

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from lives import QUESTIONS, SKILLS, Fate, Start, World, server_answer

from adaptive_eval.config.load import load_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.endpoints.answers import Arrival, Reader
from adaptive_eval.endpoints.types import Answer, EndpointConfig, EndpointStats, Health, Prompt
from adaptive_eval.running.serving import Serving
from adaptive_eval.store import AnswersLost, ModelSetAside, RunReader
from adaptive_eval.store.events import only

MAX_TOKENS = 2000
"""Answers nearly as long: what is reserved is little more than what is generated."""
TRUE, MISSING, ABSURD, LOW, BEYOND = "true", "missing", "absurd", "low", "beyond"
SLOTS = 4
TIMES_BEYOND = 3


@dataclass
class Spender(World):
    """A server that generates what it generates, and says of it what it likes."""

    says: str = TRUE
    generated: dict[str, int] = field(default_factory=dict)
    """Tokens of prompts and answers, by model."""

    @asynccontextmanager
    async def _opened(self, config: RunConfig, logs: Path) -> AsyncIterator[Serving]:
        yield Serving([_Spending(self, model.name) for model in config.models])


class _Spending:
    """One model of it; a word of four letters is a token."""

    def __init__(self, world: Spender, model: str) -> None:
        self._world, self._model = world, model
        config = EndpointConfig(base_url="http://127.0.0.1:9/v1", model=model)
        self._reader = Reader(config, (), MAX_TOKENS)

    async def sample(self, prompt: Prompt, seeds: range) -> list[Answer]:
        world = self._world
        world.start.moment()
        assert prompt.messages is not None
        (question,) = (key for key in QUESTIONS if f"ask {key}" in prompt.messages[-1].content)
        answers = []
        for one in seeds:
            tokens = (TIMES_BEYOND if world.says == BEYOND else 1) * (MAX_TOKENS - one % 50)
            world.generated[self._model] = world.generated.get(self._model, 0) + tokens + 2
            text = "abc " * (tokens - 1) + server_answer(self._model, question, one)
            answers.append((one, text, tokens))
        world.start.moment()
        return [
            self._reader.answers(
                {
                    "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
                    **({} if world.says == MISSING else {"usage": self._usage(tokens)}),
                },
                prompt,
                range(one, one + 1),
                Arrival("here", 0.1, None, 1),
            )[0]
            for one, text, tokens in answers
        ]

    def _usage(self, tokens: int) -> dict[str, int]:
        said = {ABSURD: 2_000_000_000, LOW: 1}.get(self._world.says, tokens)
        return {"prompt_tokens": said if self._world.says == ABSURD else 2, "completion_tokens": said}

    async def check(self) -> Health:
        return Health(())

    async def close(self) -> None:
        return None

    @property
    def stats(self) -> EndpointStats:
        return EndpointStats()


def config_of(folder: Path, cap: int, samples: int, slots: int) -> RunConfig:
    rows = ({"id": key, "prompt": f"ask {key}", "answer": "right"} for key in QUESTIONS)
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    document: dict[str, Any] = {
        "questions": "questions.jsonl",
        "models": [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in SKILLS],
        "sampling": {"temperature": 0.6, "max_tokens": MAX_TOKENS},
        "grader": {"kind": "regex", "pattern": "(right|wrong)$"},
        "stop_on_alarm": "never",
        "trials": {"min": 1, "max": 8},
        "budget": {"tokens": cap},
        "concurrency": {"concurrency": slots, "samples_per_request": samples},
    }
    (folder / "run.yaml").write_text(json.dumps(document))
    return load_config(folder / "run.yaml")


def lead(cap: int, says: str, samples: int, slots: int, kills: list[int]) -> tuple[Spender, list[AnswersLost], bool]:
    """A run that is killed so often, and then left alone."""
    place = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder, world = Path(name), Spender(says=says)
        config = config_of(folder, cap, samples, slots)
        for moment in kills:
            world.run(config, folder / "run", Start(Fate.KILL, moment))
        world.run(config, folder / "run", Start())
        reader = RunReader.open(folder / "run")
        try:
            events = reader.events()
            return world, list(only(events, AnswersLost)), any(True for _ in only(events, ModelSetAside))
        finally:
            reader.close()


BUDGETS = {
    "cap": st.integers(20_000, 300_000),
    "says": st.sampled_from([TRUE, MISSING, ABSURD, LOW, BEYOND]),
    "samples": st.sampled_from([1, 1, 3]),
    "slots": st.sampled_from([1, SLOTS]),
    "kills": st.lists(st.integers(2, 120), max_size=3),
}


def holds(cap: int, says: str, samples: int, slots: int, kills: list[int]) -> None:
    """No more is generated than the cap; beyond `max_tokens` no more than what was asked before it was noticed."""
    world, _, _ = lead(cap, says, samples, slots, kills)
    over = len(SKILLS) * (1 + len(kills)) * slots * samples * TIMES_BEYOND * MAX_TOKENS if says == BEYOND else 0
    assert sum(world.generated.values()) <= cap + over


@seed(1)
@settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(**BUDGETS)
def test_some_budgets_hold(cap: int, says: str, samples: int, slots: int, kills: list[int]) -> None:
    holds(cap, says, samples, slots, kills)


@pytest.mark.slow
@seed(2)
@settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(**BUDGETS)
def test_five_hundred_budgets_hold(cap: int, says: str, samples: int, slots: int, kills: list[int]) -> None:
    holds(cap, says, samples, slots, kills)


def test_what_was_in_flight_at_a_kill_counts_as_spent_at_its_worst() -> None:
    world, lost, _ = lead(300_000, TRUE, 1, SLOTS, [40])
    assert lost
    assert all(event.killed and event.tokens >= event.answers * MAX_TOKENS for event in lost)
    assert sum(world.generated.values()) <= 300_000


def test_a_run_without_kills_loses_nothing() -> None:
    _, lost, set_aside = lead(300_000, TRUE, 3, SLOTS, [])
    assert (lost, set_aside) == ([], False)


def test_a_model_that_goes_beyond_what_was_reserved_is_set_aside() -> None:
    _, _, set_aside = lead(300_000, BEYOND, 1, 1, [])
    assert set_aside
