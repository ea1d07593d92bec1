"""Compares how a log says that models were asked with how a configuration asks them.

An imported run continues under its configuration, so outcomes of other prompts or settings must not be mixed in.
Settings missing from a log are assumed to be equal.
"""

from collections.abc import Iterator, Sequence

from adaptive_eval.config.prepare import asked_by_inspect
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.exchange.inspect_log import SAMPLING as INSPECT_SAMPLING
from adaptive_eval.exchange.log_files import LogError
from adaptive_eval.exchange.samples import Record
from adaptive_eval.questions import Question
from adaptive_eval.questions.prompts import render

MAX_CHARACTERS = 60
HINT = "import the log without --config, or give a configuration with the same prompts and settings"


class ConfiguredRun:
    """The models and questions of a configuration."""

    def __init__(self, config: RunConfig, questions: Sequence[Question]) -> None:
        self._config = config
        self.models = {model.name: model for model in config.models}
        self.questions = {question.id: question for question in questions}
        self._checked: set[object] = set()
        """Settings and prompts already found equal."""

    def require_same(self, record: Record, question: str) -> None:
        """Raise `LogError` if a model was sent another prompt, or was asked with other sampling."""
        settings = repr(sorted(record.settings.sampling.items()))
        for key, problems in (
            ((record.model, settings), self._sampling_problems),
            ((record.model, question, record.asked.prompt, record.settings.system), self._prompt_problems),
        ):
            if key not in self._checked:
                if problem := next(problems(record, question), None):
                    raise LogError(f"{record.place}: {problem}; {HINT}")
                self._checked.add(key)

    def _sampling_problems(self, record: Record, _: str) -> Iterator[str]:
        model = self.models[record.model]
        ours = _sampling(model)
        for key, value in record.settings.sampling.items():
            if key not in ours and model.inspect is not None:  # the task may have set it
                continue
            configured = ours.get(key)
            if _plain(value) != _plain(configured):
                has = "does not set it" if configured is None else f"has {configured!r}"
                yield f"{record.model} was asked with sampling.{key} {value!r}, and the configuration {has}"

    def _prompt_problems(self, record: Record, question: str) -> Iterator[str]:
        model, asked = self.models[record.model], self.questions[question]
        if asked_by_inspect(self._config, asked):
            return
        prompt = render(self._config.prompt_of(model, asked), asked, model.api)
        messages = prompt.messages or ()
        texts = {asked.prompt, prompt.text or "", *(message.content for message in messages if message.role == "user")}
        logged_prompt = record.asked.prompt.strip()
        if logged_prompt and any(texts) and logged_prompt not in {text.strip() for text in texts}:
            sent = next((message.content for message in reversed(messages)), prompt.text or "")
            yield (
                f"question {question!r} was sent to {record.model} as {_cut(logged_prompt)}, "
                f"and the configuration sends {_cut(sent.strip())}"
            )
        system = next((message.content for message in messages if message.role == "system"), "")
        logged = record.settings.system
        if logged is not None and logged.strip() != system.strip():
            configured = _cut(system) if system else "none"
            yield f"{record.model} had the system message {_cut(logged)}, and the configuration has {configured}"


def _sampling(model: ModelConfig) -> dict[str, object]:
    """The sampling settings that a model is given."""
    if model.inspect is not None:
        given = model.inspect_options
        return {ours: given[theirs] for theirs, ours in INSPECT_SAMPLING.items() if theirs in given}
    return model.sampling.model_dump(exclude_none=True)


def _plain(value: object) -> object:
    """A value for comparison: a text and a list of only that text are the same."""
    if isinstance(value, str):
        return [value]
    return list(value) if isinstance(value, list | tuple) else value


def _cut(text: str) -> str:
    """The end of a text, where texts differ most."""
    return repr(text if len(text) <= MAX_CHARACTERS else f"…{text[-MAX_CHARACTERS:]}")
