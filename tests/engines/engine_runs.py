"""Whole runs of `adaptive-eval run` against real servers, and what they left behind."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arithmetic import answer_tokens, prompt_tokens, questions
from family import weights
from live_runs import wait_for_trials
from llama import Chance, Weights, chance, token_log_probabilities

from adaptive_eval.endpoints.answers import mean_bits
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import TrialRecord

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 8}
"""What the exact probabilities are of: the model's own distribution, whatever a server's defaults are."""
RUN_SECONDS = 600.0
BITS = 1e-3
"""A token, within which measured and exact bits agree."""

Key = tuple[str, str, int]


@dataclass(frozen=True)
class Finished:
    """A run that has ended."""

    code: int
    results: Mapping[str, Any]
    records: Sequence[TrialRecord]
    looks: Sequence[object]
    events: Sequence[str]
    meaning: Mapping[str, Any]
    """What the store says that each model's trials depend on."""

    @property
    def outcomes(self) -> dict[Key, tuple[int, str, str, int | None]]:
        """What must not depend on how the run went: of each trial the seed, the text, its end and its category."""
        return {
            (record.model, record.question, record.trial): (
                record.answer.seed,
                record.answer.text,
                record.answer.finish_reason,
                record.category,
            )
            for record in self.records
        }

    @property
    def order(self) -> list[str]:
        """The models, best first."""
        return [row["name"] for row in self.results["models"]]

    @property
    def tiers(self) -> list[int]:
        return [row["tier"] for row in self.results["models"]]

    def tokens(self) -> tuple[int, int]:
        """Of all prompts and of all answers."""
        answers = [record.answer for record in self.records]
        return sum(answer.prompt_tokens for answer in answers), sum(answer.completion_tokens for answer in answers)


@dataclass(frozen=True)
class Workplace:
    """A folder with the thirty questions, where configurations and runs lie."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> "Workplace":
        rows = [{"id": problem.prompt, "prompt": problem.prompt, "answer": problem.answer} for problem in questions()]
        (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        return cls(folder)

    def configure(self, name: str, models: Sequence[Mapping[str, object]], **changes: object) -> Path:
        """A configuration file; `changes` replaces whole sections."""
        settings: dict[str, object] = {
            "name": name,
            "seed": 2026,
            "questions": "questions.jsonl",
            "prompt": "{prompt}",
            "sampling": SAMPLING,
            "models": list(models),
            "grader": "exact",
            "trials": {"min": 4, "max": 80},
            "concurrency": 32,
            "store": str(self.folder / "runs"),
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(settings | changes))
        return path

    def start(self, config: Path, *options: str) -> "subprocess.Popen[str]":
        """`adaptive-eval run` in a process of its own."""
        command = [sys.executable, "-m", "adaptive_eval", "run", str(config), "--display", "plain", *options]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self, config: Path, process: "subprocess.Popen[str]", accepted: Sequence[int] = (0,)) -> Finished:
        """Wait for the end of a run and read it."""
        try:
            output, _ = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            raise AssertionError(f"the run took longer than {RUN_SECONDS:g} s:\n{output[-2000:]}") from None
        assert process.returncode in accepted, output[-4000:]
        return read(self.directory(config), process.returncode)

    def run(self, config: Path, *options: str, accepted: Sequence[int] = (0,)) -> Finished:
        """A whole run."""
        return self.finish(config, self.start(config, *options), accepted)

    def directory(self, config: Path) -> Path:
        return self.folder / "runs" / config.stem

    def await_trials(self, config: Path, number: int, process: "subprocess.Popen[str]") -> None:
        """Return when the run has stored so many trials."""
        reached = wait_for_trials(self.directory(config), number, process, RUN_SECONDS)
        assert reached, f"the run ended before it had {number} trials"


def read(directory: Path, code: int) -> Finished:
    with closing(RunReader.open(directory)) as reader:
        return Finished(
            code=code,
            results=json.loads((directory / "results.json").read_text()),
            records=list(reader.trials()),
            looks=[(look.number, look.body) for look in reader.log.looks()],
            events=[event.kind for event in reader.events()],
            meaning=reader.header().models,
        )


# -- the truth ---------------------------------------------------------------------------------------------------------


def true_score(model: Weights, temperature: float = 1.0) -> Chance:
    """The mean chance of a right answer over the thirty questions."""
    chances = [
        chance(model, prompt_tokens(problem.prompt), answer_tokens(problem.answer), temperature)
        for problem in questions()
    ]
    return Chance(
        sum(result.exact for result in chances) / len(chances), sum(result.slack for result in chances) / len(chances)
    )


def require_exact_ranking(run: Finished, truth: Mapping[str, Chance]) -> None:
    """The run's order is that of the true scores, no two models share a tier, and no score is four sigma off."""
    assert run.order == sorted(truth, key=lambda name: -truth[name].exact)
    assert run.tiers == list(range(1, len(truth) + 1))
    for row in run.results["models"]:
        exact, slack = truth[row["name"]]
        assert exact - 4 * row["sigma"] <= row["score"] <= exact + slack + 4 * row["sigma"], row


def require_exact_bits(run: Finished) -> None:
    """The bits per token of every answer are those of the weights.

    All but a few: an answer with a token that its text does not show cannot be read back from the text.
    """
    compared = 0
    for record in run.records:
        prompt, answer = prompt_tokens(record.question), answer_tokens(record.answer.text)
        if record.answer.finish_reason == "stop" and len(answer) == record.answer.completion_tokens:
            log_probabilities = token_log_probabilities(weights(record.model), [*prompt, *answer])[-len(answer) :]
            expected = mean_bits(list(log_probabilities))
            assert record.answer.completion_bpt is not None and expected is not None
            assert abs(record.answer.completion_bpt - expected) < BITS, record
            compared += 1
    assert compared > 0.98 * len(run.records)
