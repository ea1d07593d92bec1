"""Servers that count what they generate, and a judge's among them: see `spending`."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lives import Killed, Start, share_of
from spending import Attempt, Spender, SpendingWire

from adaptive_eval.config.run import RunConfig
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.types import EndpointConfig, Limits, Sampling
from adaptive_eval.running.regrade import regrade

JUDGE = "judge"
REPLY_TOKENS = 1000
"""The most tokens that a judge may use; it uses nearly as many."""
_SHOWN = re.compile(r"<(reference|answer|first|second)-[0-9a-f]{16}>\n(.*?)\n</", re.DOTALL)
_LINE = re.compile(r"^([A-Z]+-[0-9a-f]{16}): <verdict>", re.MULTILINE)


@dataclass
class JudgedSpender(Spender):
    """The same servers, and one more that is asked about each answer."""

    judge_usage: str = ""
    """What the judge's server reports of its usage."""
    judge_faults: Mapping[str, float] = field(default_factory=dict)
    judge_excess: int = 1
    """How many times its limit of tokens it generates."""
    mute: float = 0.0
    """A share of its replies that have no verdict."""

    @contextmanager
    def _in_place_of_the_world(self, start: Start) -> Iterator[None]:
        def opened(
            config: EndpointConfig, sampling: Sampling, limits: Limits, *, keys: object, folder: Path
        ) -> ModelEndpoint:
            return ModelEndpoint(config, sampling, limits, _JudgeWire(self))

        place = "adaptive_eval.graders.asking.open_endpoint"
        with super()._in_place_of_the_world(start), patch(place, opened):
            yield

    def judge_anew(self, config: RunConfig, directory: Path, start: Start) -> None:
        """`adaptive-eval regrade --config`: every verdict is asked for once more."""
        with self._in_place_of_the_world(start), suppress(Killed):
            self._carried_out(regrade(directory, config))

    @property
    def judged(self) -> list[Attempt]:
        """What the judge's server has done."""
        return [attempt for attempt in self.attempts if attempt.model == JUDGE]


class _JudgeWire(SpendingWire):
    """The judge's: it knows what is right by the reference, and says so in the form that it is asked for."""

    longest = REPLY_TOKENS

    def __init__(self, world: JudgedSpender) -> None:
        super().__init__(world, JUDGE, world.judge_usage or world.usage, world.judge_faults)
        self._mute, self._excess = world.mute, world.judge_excess

    def _tokens(self, seed: int) -> int:
        return self._excess * super()._tokens(seed)

    def _text(self, body: Mapping[str, Any], seed: int) -> str:
        content = "\n".join(message["content"] for message in body["messages"])
        shown, line = dict(_SHOWN.findall(content)), _LINE.search(content)
        if not shown:
            return "OK."  # a tiny request shows no answer
        if share_of("mute", seed, shown.get("answer", shown.get("first"))) < self._mute:
            return "I cannot say."
        verdict = _said_of(shown)
        if "response_format" in body:
            return json.dumps({"reasoning": "As they are.", "verdict": verdict})
        assert line is not None
        return f"As they are.\n{line[1]}: {verdict}"


def _said_of(shown: Mapping[str, str]) -> str:
    """Of one answer whether it is right, of two which of them is."""
    right = {name: text == shown["reference"] for name, text in shown.items()}
    if "answer" in right:
        return "correct" if right["answer"] else "wrong"
    return "tie" if right["first"] == right["second"] else "first" if right["first"] else "second"
