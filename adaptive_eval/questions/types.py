"""The question, and the section `questions` of the configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from adaptive_eval.sections import Section, Specification, refuse

Scalar = str | int | float | bool | None
Format = Literal["jsonl", "json", "csv", "parquet"]
FORMATS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
"""File formats by suffix."""


@dataclass(frozen=True, slots=True)
class Question:
    """One benchmark item, with a stable id."""

    id: str
    prompt: str
    answer: str
    choices: tuple[str, ...] = ()
    cluster: str | None = None
    """The group of related questions (one passage, one problem family) it belongs to; None if it is independent."""
    metadata: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    others: tuple[str, ...] = ()
    """Answers of another model, with which a judge compares, by trial number."""

    def for_trial(self, trial: int) -> "Question":
        """The question with only that one of the `others` with which a trial is compared, cyclically."""
        return replace(self, others=(self.others[trial % len(self.others)],)) if len(self.others) > 1 else self


class FieldsConfig(Section):
    """Which field of a row holds what; `a.b` reads field b of the mapping in field a."""

    id: str | None = None
    """Default: the field `id` where there is one, else a hash of prompt, answer and choices."""
    prompt: str = "prompt"
    """The field of the question's text."""
    answer: str | None = "answer"
    """null for questions that have no answer key, for a `python` grader that needs none."""
    choices: str | tuple[str, ...] | None = None
    """One field that holds a list, or a list of fields with one choice each."""
    cluster: str | None = None
    """The field that says which questions came together, such as those of one passage."""
    metadata: tuple[str, ...] = ()
    """Fields that are kept for templates, graders and reports."""


class QuestionsConfig(Section):
    """Where the questions come from, and which of them are asked."""

    path: Path | None = None
    """A .jsonl, .json, .csv or .parquet file, from the folder of the configuration."""
    format: Format | None = Field(None, validate_default=True)
    """How the file is read; default: by its ending."""
    dataset: str | None = None
    """A Hugging Face data set, such as HuggingFaceH4/aime_2024 (needs the extra `hf`)."""
    subset: str | None = None
    """The data set's configuration, where it has several."""
    split: str = "test"
    """The part of the data set."""
    revision: str | None = None
    """The commit, tag or branch of the data set: name a commit, and the questions stay the same."""
    task: str | None = None
    """The task of Inspect whose samples they are; `benchmark` fills it in."""
    function: Specification | None = None
    """A function of your own that returns rows as mappings, `package.module:function`, looked for beside the
    configuration and among what is installed."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Handed to the function by name."""
    benchmarks: "Mapping[str, QuestionsConfig]" = Field(default_factory=dict)
    """Those of several benchmarks, by name; the run's `benchmarks` fill it in."""
    world: str | None = Field(None, validate_default=True)
    """A world of the simulator, for models with `simulate: true`."""
    fields: FieldsConfig = FieldsConfig()
    filter: Mapping[str, Scalar | tuple[Scalar, ...]] = Field(default_factory=dict)
    """Keep the rows whose field equals the value, or one of the values; fields are combined with "and"."""
    shuffle: bool = False
    """Put the questions into a random order that depends on the run's `seed` alone, before `limit`."""
    limit: int | None = Field(None, ge=1)
    """Ask the first so many."""

    @field_validator("world")
    @classmethod
    def _check_one_source(cls, world: str | None, info: ValidationInfo) -> str | None:
        sources = {**info.data, "world": world}
        given = [name for name in ("path", "dataset", "function", "task", "world") if sources.get(name) is not None]
        if info.data.get("benchmarks") and set(given) <= {"world"}:
            return world
        if len(given) > 1:
            raise refuse(f"must be the only source, but {' and '.join(given)} are given", "keep one of them")
        if not given and {"path", "dataset", "function", "benchmarks"} <= sources.keys():
            raise refuse("or path, dataset or function must be given", "add `path: questions.jsonl`")
        return world

    @field_validator("format")
    @classmethod
    def _check_format(cls, form: Format | None, info: ValidationInfo) -> Format | None:
        path = info.data.get("path")
        if form is None and path is not None and path.suffix.lower() not in FORMATS:
            known = ", ".join(FORMATS)
            raise refuse(f"must be given, since the ending of {path.name!r} is none of {known}", "add `format: jsonl`")
        return form
