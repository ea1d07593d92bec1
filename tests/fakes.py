"""A model server without a network: its answers depend on model, question and seed alone, its faults are on demand."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from adaptive_eval.base.errors import EndpointError, GraderError
from adaptive_eval.core.controller import Controller
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.settings import Bench, Budget, Pace, Trials
from adaptive_eval.core.types import NO_COST, Cost, Look
from adaptive_eval.endpoints.types import Answer, EndpointStats, Health, Prompt, ReplicaStats, RetryGate
from adaptive_eval.graders.types import Grade
from adaptive_eval.machine.usage import TrialUsage
from adaptive_eval.questions.types import Question
from adaptive_eval.report.build import build_results
from adaptive_eval.report.results import Results
from adaptive_eval.report.snapshot import RunSubject, complete, take_state
from adaptive_eval.store.header import RunHeader


def uniform(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big") / 2**64


class WellEndpoint:
    """What an endpoint has besides its answers."""

    in_flight: int = 0

    async def check(self) -> Health:
        return Health(())

    async def unreachable(self) -> str | None:
        return None

    async def close(self) -> None:
        return None

    @property
    def stats(self) -> EndpointStats:
        return EndpointStats(in_flight=self.in_flight)


@dataclass
class FakeEndpoint(WellEndpoint):
    """Right with probability `skill`, by the seed; answers come back in random order."""

    model: str
    skill: float
    delay: float = 0.0
    seconds: float = 0.1
    """What an answer says that it took."""
    samples: list[tuple[str, range]] = field(default_factory=list)
    fail: Callable[[str, range], EndpointError | None] = lambda prompt, seeds: None
    late: Callable[[str, int], bool] = lambda prompt, seed: False
    """Questions and seeds that run out of time."""
    in_flight: int = 0
    most_in_flight: int = 0
    rng: random.Random = field(default_factory=random.Random)
    health: Callable[[], tuple[ReplicaStats, ...]] = tuple

    async def sample(self, prompt: Prompt, seeds: range, again: RetryGate | None = None) -> list[Answer]:
        assert prompt.messages is not None
        question = prompt.messages[0].content
        self.samples.append((question, seeds))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.rng.random() * self.delay)
            if (error := self.fail(question, seeds)) is not None:
                raise error
            return [self._answer(question, seed) for seed in seeds]
        finally:
            self.in_flight -= 1

    def _answer(self, question: str, seed: int) -> Answer:
        if self.late(question, seed):
            return Answer("", "timed_out", seed, "fake", 9.0, signals=frozenset({"timed_out"}))
        right = uniform(self.model, question, seed) < self.skill
        tokens = 10 + seed % 7
        return Answer(
            "right" if right else "wrong", "stop", seed, "fake", self.seconds, prompt_tokens=3, completion_tokens=tokens
        )

    @property
    def stats(self) -> EndpointStats:
        return EndpointStats(in_flight=self.in_flight, replicas=self.health())


class FakeGrading:
    """Right is 1 and wrong is 0, unless `fails` says that the grader fails."""

    lasting = False
    lost = NO_COST
    at_once = 16
    notices = ()
    stats: Mapping[str, EndpointStats] = {}

    def __init__(self, fails: Callable[[Answer, Question], bool] = lambda answer, question: False) -> None:
        self.fails = fails
        self.calls = 0

    def asks(self, question: Question) -> bool:
        return False

    def lost_with(self, answer: str, question: Question) -> Cost:
        return NO_COST

    def lost_vote(self, lost: Cost) -> Cost:
        return NO_COST

    def grade_now(self, answer: Answer, question: Question) -> Grade | None:
        if self.fails(answer, question):
            raise GraderError("the worker was killed after 10 s")
        self.calls += 1
        return Grade(int(answer.text == "right"), {"is_correct": answer.text == "right"}, answer.text)

    async def grade(self, answer: Answer, question: Question, again: object = None) -> Grade:
        self.calls += 1
        if self.fails(answer, question):
            raise GraderError("the worker was killed after 10 s")
        return Grade(int(answer.text == "right"), {"is_correct": answer.text == "right"}, answer.text)


SKILLS = {"ada": 0.85, "bob": 0.5, "cyd": 0.45}
QUESTIONS = tuple(Question(f"q{number}", f"ask {number}", "right") for number in range(6))
TRIALS = Trials(min=3, max=40)


def plan(**changes: object) -> Plan:
    """Three models on six questions, the last two close together."""
    bench = Bench(len(SKILLS), len(QUESTIONS), [0.0, 1.0], (Cost(tokens=20),) * len(SKILLS))  # type: ignore[arg-type]
    settings: dict[str, object] = {"trials": TRIALS, "pace": Pace(lookahead=1), "budget": Budget()}
    return Plan(bench, **(settings | changes))  # type: ignore[arg-type]


def describe_look(look: Look) -> dict[str, object]:
    """The results of a look, without names."""
    pairs = [[pair.first, pair.second, pair.verdict.value, pair.z, pair.boundary] for pair in look.comparisons]
    return {"trials": list(look.trials), "order": list(look.order), "tiers": list(look.tiers), "pairs": pairs}


HEADER = RunHeader(
    name="fake",
    configuration={},
    meaning={"seed": 1},
    models={name: {"skill": skill} for name, skill in SKILLS.items()},
    questions={question.id: {"prompt": question.prompt} for question in QUESTIONS},
)


def results_of(subject: RunSubject, controller: Controller, usages: Sequence[TrialUsage]) -> Results | None:
    """The results as they are now, a minute after the run was begun."""
    if (state := take_state(subject, controller, subject.find_repeats(usages))) is None:
        return None
    usages = [usage.copy() for usage in usages]
    return build_results(complete(subject, state, usages, elapsed=3.0, now=subject.created + 60.0, stopped=False))
