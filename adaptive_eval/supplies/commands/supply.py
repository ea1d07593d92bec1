"""Models that are commands: each trial is a process, which is given the question and prints an answer."""

import asyncio
import errno
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from adaptive_eval.base.errors import ConfigError, LaunchFailed, Rejected, RetryNotAllowed, StoreError
from adaptive_eval.config.commands import command_environment, command_line, command_problems
from adaptive_eval.core.objectives import CHEAPEST
from adaptive_eval.endpoints import settings
from adaptive_eval.endpoints.open_files import limits
from adaptive_eval.endpoints.traffic import FIRST_ATTEMPTS, FirstAnswers, Traffic
from adaptive_eval.endpoints.types import Answer, EndpointStats, Notice, RetryGate, Signal
from adaptive_eval.graders.by_benchmark import find_grader, graders_that_ask
from adaptive_eval.graders.reported import Reported
from adaptive_eval.machine.supply import AskedModel, Supply
from adaptive_eval.machine.trial import Request
from adaptive_eval.questions.types import Question
from adaptive_eval.supplies.commands.folders import TrialFolders
from adaptive_eval.supplies.commands.outcome import (
    CommandOutcome,
    answer_cost,
    make_answer,
    question_text,
    read_outcome,
)
from adaptive_eval.supplies.commands.process import CommandLine
from adaptive_eval.supplies.opening import Models, SuppliedModel, SupplyContext, request_limits

MAX_REPLICA_CHARS = 200
UNCOUNTED = 'has no "{0}" in its last line, {1}: print "{0}" (0 if free), or remove the {2}'
UNUSED_SCORE = "its command reports a score, of which the grader {} takes no notice; the grader `reported` takes it"
NO_TRANSCRIPT = "its command reports a transcript that is no file in its folder, or too large to be kept"
NO_FOLDER = (
    "{}: a command cannot have a folder there: {}. Free some space there, or set TMPDIR; the same command goes on"
)
TOO_FEW_FILES = (
    "this process has too few open files ({:,}) to start a command. Raise the limit (`ulimit -n`), or lower "
    "`concurrency`; the same command goes on"
)
UNANSWERED: frozenset[Signal] = frozenset({"unanswered"})


class CommandClient:
    """One model that is a command."""

    def __init__(self, model: SuppliedModel, context: SupplyContext, folders: TrialFolders) -> None:
        assert context.prepared is not None, "commands are not checked without a trial"
        config, run = model.config, context.config
        environment = command_environment(config, context.keys)
        self._line = CommandLine(command_line(config, run.folder), environment, config.timeout)
        self._replica = " ".join(config.command_words)[:MAX_REPLICA_CHARS]
        self._model, self._grader, self._folders = model, run.grader, folders
        self._redactor, self._questions = context.redactor, context.prepared.questions
        self._hides_metadata = bool(run.grader.functions or graders_that_ask(run.grader))
        self._attempts = settings.DEFAULT.attempts if context.patient else 1
        self._counted: dict[str, tuple[str, str]] = {}
        """What each answer must report, with what counts it, and its name."""
        if run.objective.kind == CHEAPEST.name:
            self._counted["usd"] = "by which the cheapest is chosen", "objective"
        for name, cap in (("tokens", run.budget.tokens), ("usd", run.budget.usd)):
            if cap is not None:
                self._counted[name] = f"which budget.{name} counts", "limit"
        self._traffic = Traffic(has_answered=config.name in context.answered)
        self._first = FirstAnswers(self._traffic)
        self._notices: dict[str, Notice] = {}

    @property
    def stats(self) -> EndpointStats:
        """The processes so far."""
        return replace(self._traffic.stats(), notices=tuple(self._notices.values()))

    async def ask(self, request: Request, retry_gate: RetryGate | None) -> Sequence[Answer]:
        """Run the command for each trial."""
        return [await self._answer(request.question, number, retry_gate) for number in request.numbers]

    async def _answer(self, question: int, trial: int, retry_gate: RetryGate | None) -> Answer:
        """The answer of a trial. If all attempts fail, it gets none if others have one; else the command is wrong."""
        with self._first.trial():
            answered = await self._try(question, trial, retry_gate)
        if isinstance(answered, Answer):
            self._first.answered = True
            self._traffic.completion_tokens += answered.completion_tokens
            return answered
        if await self._first.is_any_answered():
            seed = self._model.seed(question, trial)
            return Answer("", f"its command {answered}", seed, self._replica, 0.0, signals=UNANSWERED)
        raise Rejected(f"its command fails: on {self._questions[question].id}#{trial} it {answered}")

    async def _try(self, question: int, trial: int, retry_gate: RetryGate | None) -> Answer | str:
        """Run the command until it answers; returns the last problem if it never does."""
        problem = ""
        for attempt in range(1, self._attempts + 1):
            if attempt > 1 and retry_gate is not None and not await retry_gate():
                raise RetryNotAllowed("its command failed, and the budget does not allow another attempt")
            self._traffic.requests += 1
            try:
                outcome = await self._run(question, trial, attempt)
            except LaunchFailed as error:
                return str(error)
            seed = self._model.seed(question, trial)
            if outcome.problem is None:
                self._require_usage(outcome)
                return make_answer(outcome, seed, self._replica, attempt, is_graded=self._takes_score(question))
            problem = outcome.problem
            self._count_lost(outcome, seed)
            if attempt >= FIRST_ATTEMPTS and not self._first.is_known_to_answer:
                break
        return problem

    async def _run(self, question: int, trial: int, attempt: int) -> CommandOutcome:
        """Run the command once, in a new folder."""
        asked, config = self._questions[question], self._model.config
        seed = self._model.seed(question, trial)
        text = question_text(asked, self._model.prompt(question), trial, seed, self._field_names(asked))
        name = f"{config.name} {asked.id} {trial}" + (f" attempt {attempt}" if attempt > 1 else "")
        async with _errors_of_machine(), self._folders.folder() as folder:
            ended = await self._line.run(text, folder, self._folders.holds)
            needs_score = self._takes_score(question)
            outcome = read_outcome(ended, self._redactor, needs_score=needs_score)
            result = outcome.result
            if outcome.problem is None:
                if result.score is not None and not needs_score:
                    kind = getattr(find_grader(self._grader, asked), "kind", "")
                    self._notices["score"] = Notice("unused_score", UNUSED_SCORE.format(kind))
                kept = await self._keep_transcript(folder, result.transcript, name)
                outcome = outcome._replace(result=result._replace(transcript=kept))
            return outcome

    async def _keep_transcript(self, folder: Path, path: str | None, name: str) -> str | None:
        """Keep a trial's transcript, if there is one; returns where it is."""
        if path is None:
            return None
        kept = await asyncio.to_thread(self._folders.keep_transcript, folder, path, name)
        if kept is None and self._folders.keeps:
            self._notices["transcript"] = Notice("no_transcript", NO_TRANSCRIPT)
        return kept

    def _field_names(self, question: Question) -> Sequence[str]:
        """The fields that the command gets besides id and prompt; graders may read an answer key in the others."""
        chosen = self._model.config.question_fields
        if chosen is not None:
            return chosen
        return ("choices", "cluster", *(() if self._hides_metadata else question.metadata))

    def _takes_score(self, question: int) -> bool:
        return isinstance(find_grader(self._grader, self._questions[question]), Reported)

    def _require_usage(self, outcome: CommandOutcome) -> None:
        """Raise `Rejected` if a cap or the objective counts what the command does not report."""
        for name, why in self._counted.items():
            if getattr(outcome.result, name) is None:
                self._traffic.lost += 1
                raise Rejected(f"its command {UNCOUNTED.format(name, *why)}")

    def _count_lost(self, outcome: CommandOutcome, seed: int) -> None:
        """Count a failed attempt, which may have cost something."""
        problem = outcome.problem or ""
        self._traffic.retries += 1
        self._traffic.on_failure("command_failed", problem)
        self._traffic.lost += 1
        used = outcome.result
        needed = list(self._counted) or [name for name in ("tokens", "usd") if getattr(used, name) is not None]
        if needed and all(getattr(used, name) is not None for name in needed):
            self._traffic.in_vain.append(Answer("", problem, seed, self._replica, outcome.seconds, reasoning=used.line))


@asynccontextmanager
async def _errors_of_machine() -> AsyncIterator[None]:
    """Raise `StoreError`, which ends the run, for what this machine lacks: no command is to blame for it."""
    try:
        yield
    except (OSError, LaunchFailed) as error:
        cause = error.__cause__ if isinstance(error, LaunchFailed) else error
        if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
            raise StoreError(TOO_FEW_FILES.format(limits()[0])) from error
        if isinstance(error, LaunchFailed):
            raise
        raise StoreError(NO_FOLDER.format(tempfile.gettempdir(), error.strerror or error)) from error


def open_supply(context: SupplyContext, models: Models) -> Mapping[int, Supply]:
    """Open these models."""
    problems = [
        f"{model.name}: {problem}"
        for model in models.values()
        for problem in command_problems(model.config, context.keys, context.config.folder)
    ]
    if problems:
        raise ConfigError("\n".join(problems))
    folders = TrialFolders(context.logs if context.patient else None, context.redactor)
    context.stack.push_async_callback(folders.close)
    asked = {
        number: AskedModel(
            CommandClient(model, context, folders), request_limits(model.config).slots, answer_cost, model.reserve
        )
        for number, model in models.items()
    }
    return context.supply(asked)
