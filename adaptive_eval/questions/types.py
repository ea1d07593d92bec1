"""The question, and the section `questions` of the configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from adaptive_eval.base.sections import Section, Specification, refuse

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
    """Names of the fields of a row; `a.b` reads field b of the mapping in field a."""

    id: str | None = None
    """The question's id; default: the field `id`, else a hash of prompt, answer and choices."""
    prompt: str = "prompt"
    """The question's text."""
    answer: str | None = "answer"
    """The answer key; null if there is none, for graders that need none."""
    choices: str | tuple[str, ...] | None = None
    """One field with a list, or a list of fields with one choice each."""
    cluster: str | None = None
    """The group of related questions, such as those on one passage."""
    metadata: tuple[str, ...] = ()
    """Fields to keep for templates, graders and reports."""


class QuestionsConfig(Section):
    """Source and selection of the questions."""

    path: Path | None = None
    """A file whose name ends in .jsonl, .json, .csv or .parquet, relative to the folder of the configuration."""
    dataset: str | None = None
    """A Hugging Face data set, such as HuggingFaceH4/aime_2024 (needs the extra `hf`)."""
    subset: str | None = None
    """The data set's configuration, if it has several."""
    split: str = "test"
    """The data set's split."""
    revision: str | None = None
    """Commit, tag or branch of the data set; only a commit fixes the questions."""
    task: str | None = None
    """The task of Inspect whose samples they are; `benchmark` fills it in."""
    function: Specification | None = None
    """A function of your own that returns rows as mappings, `package.module:function`, searched in the folder of the
    configuration and in installed packages."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the function."""
    benchmarks: "Mapping[str, QuestionsConfig]" = Field(default_factory=dict)
    """Questions of several benchmarks, by name; the run's `benchmarks` fill it in."""
    world: str | None = Field(None, validate_default=True)
    """A world of the simulator, for models with `simulate: true`."""
    fields: FieldsConfig = FieldsConfig()
    filter: Mapping[str, Scalar | tuple[Scalar, ...]] = Field(default_factory=dict)
    """Keep the rows in which each of these fields has this value, or one of these values."""
    shuffle: bool = False
    """Shuffle the questions by the run's `seed`, before `limit`."""
    limit: int | None = Field(None, ge=1)
    """Number of questions to ask: the first ones."""

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

    @field_validator("path")
    @classmethod
    def _check_suffix(cls, path: Path | None) -> Path | None:
        if path is not None and path.suffix.lower() not in FORMATS:
            raise refuse(f"must end in one of {', '.join(FORMATS)}", "rename the file, or convert it to JSON lines")
        return path
