"""Compares how a log says that models were asked with how a configuration asks them.

An imported run goes on under its configuration, so outcomes that were asked otherwise would be mixed with others. What
a log does not say is taken to be the same.
"""

from collections.abc import Iterator, Mapping, Sequence

from adaptive_eval.config.benchmarks import prompt_for
from adaptive_eval.config.prepare import asked_by_inspect
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.exchange.inspect.reader import SAMPLING as INSPECT_SAMPLING
from adaptive_eval.exchange.samples import Record
from adaptive_eval.questions import Question
from adaptive_eval.questions.prompts import render
from adaptive_eval.record.log_files import LogError

SHOWN = 60
HINT = "import the log without --config, or give a configuration that asks as the log says"


class ConfiguredRun:
    """The models and questions of a configuration."""

    def __init__(self, config: RunConfig, questions: Sequence[Question]) -> None:
        self._config = config
        self._models = {model.name: model for model in config.models}
        self._questions = {question.id: question for question in questions}
        self._same: set[object] = set()
        """What was compared before."""

    @property
    def models(self) -> Sequence[str]:
        """Names of the models."""
        return list(self._models)

    @property
    def questions(self) -> Mapping[str, Question]:
        """Questions by id."""
        return self._questions

    def require_same(self, record: Record, question: str, place: str) -> None:
        """Raise `LogError` if a model was sent another prompt, or was asked with other sampling."""
        settings = repr(sorted(record.settings.sampling.items()))
        for key, problems in (
            ((record.model, settings), self._sampling_problems),
            ((record.model, question, record.asked.prompt, record.settings.system), self._prompt_problems),
        ):
            if key not in self._same:
                if problem := next(problems(record, question), None):
                    raise LogError(f"{place}: {problem}; {HINT}")
                self._same.add(key)

    def _sampling_problems(self, record: Record, _: str) -> Iterator[str]:
        model = self._models[record.model]
        ours = _sampling(model)
        for key, value in record.settings.sampling.items():
            if key not in ours and model.inspect is not None:  # the task may have set it
                continue
            configured = ours.get(key)
            if _plain(value) != _plain(configured):
                here = (
                    "the configuration does not set it"
                    if configured is None
                    else f"the configuration has {configured!r}"
                )
                yield f"{record.model} was asked with sampling.{key} {value!r}, and {here}"

    def _prompt_problems(self, record: Record, question: str) -> Iterator[str]:
        model, asked = self._models[record.model], self._questions[question]
        if asked_by_inspect(self._config, asked):
            return
        prompt = render(prompt_for(model.prompt, asked, self._config.benchmarks), asked, model.api)
        messages = prompt.messages or ()
        texts = {asked.prompt, prompt.text or "", *(one.content for one in messages if one.role == "user")}
        sent_there = record.asked.prompt.strip()
        if sent_there and any(texts) and sent_there not in {text.strip() for text in texts}:
            sent = next((one.content for one in reversed(messages)), prompt.text or "")
            yield (
                f"question {question!r} was asked of {record.model} as {_cut(sent_there)}, "
                f"and the configuration asks {_cut(sent.strip())}"
            )
        system = next((one.content for one in messages if one.role == "system"), None)
        system, logged = next((one.content for one in messages if one.role == "system"), ""), record.settings.system
        if logged is not None and logged.strip() != system.strip():
            here = _cut(system) if system else "none"
            yield f"{record.model} had the system message {_cut(logged)}, and the configuration has {here}"


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
    """A text as shown, from where it may differ most: its end."""
    return repr(text if len(text) <= SHOWN else f"…{text[-SHOWN:]}")
