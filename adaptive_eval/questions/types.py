"""The question, and the section `questions` of the configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from adaptive_eval.base.sections import Section, Specification, config_error

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
    """The group of related questions, such as those on one passage; None if the question is independent."""
    metadata: Mapping[str, Scalar] = field(default_factory=dict, hash=False)


class FieldsConfig(Section):
    """Names of fields in rows; `a.b` is field b of the mapping in field a."""

    id: str | None = None
    """The question's id; default: the field `id`, else a hash of prompt, answer and choices."""
    prompt: str = "prompt"
    """The question's text."""
    answer: str | None = "answer"
    """The answer key; null for graders that need none."""
    choices: str | tuple[str, ...] | None = None
    """One field with a list, or a list of fields with one choice each."""
    cluster: str | None = None
    """The group of related questions, such as those on one passage."""
    metadata: tuple[str, ...] = ()
    """Fields to keep for templates, graders and reports."""


class QuestionsConfig(Section):
    """Source and selection of the questions."""

    path: Path | None = None
    """A .jsonl, .json, .csv or .parquet file, relative to the folder of the configuration."""
    dataset: str | None = None
    """A Hugging Face data set, such as HuggingFaceH4/aime_2024 (needs the extra `hf`)."""
    subset: str | None = None
    """The data set's configuration, if it has several."""
    split: str = "test"
    """The data set's split."""
    revision: str | None = None
    """Commit, tag or branch of the data set; only a commit fixes the questions."""
    task: str | None = None
    """The Inspect task whose samples are the questions; set by `benchmark`."""
    function: Specification | None = None
    """Your own function that returns rows as mappings, `package.module:function`, from the folder of the configuration
    or an installed package."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the function."""
    benchmarks: "Mapping[str, QuestionsConfig]" = Field(default_factory=dict)
    """Questions of several benchmarks, by name; set by the run's `benchmarks`."""
    world: str | None = Field(None, validate_default=True)
    """A world of the simulator, for models with `simulate: true`."""
    fields: FieldsConfig = FieldsConfig()
    filter: Mapping[str, Scalar | tuple[Scalar, ...]] = Field(default_factory=dict)
    """Use only rows in which each of these fields has this value, or one of these values."""
    shuffle: bool = False
    """Shuffle the questions with the run's `seed`, before `limit`."""
    limit: int | None = Field(None, ge=1)
    """Use only the first questions, up to this number."""

    @field_validator("world")
    @classmethod
    def _check_one_source(cls, world: str | None, info: ValidationInfo) -> str | None:
        sources = {**info.data, "world": world}
        given = [name for name in ("path", "dataset", "function", "task", "world") if sources.get(name) is not None]
        if info.data.get("benchmarks") and set(given) <= {"world"}:
            return world
        if len(given) > 1:
            raise config_error(f"must be the only source, but {' and '.join(given)} are set", "keep one of them")
        if not given and {"path", "dataset", "function", "benchmarks"} <= sources.keys():
            raise config_error("or path, dataset or function must be set", "add `path: questions.jsonl`")
        return world

    @field_validator("path")
    @classmethod
    def _check_suffix(cls, path: Path | None) -> Path | None:
        if path is not None and path.suffix.lower() not in FORMATS:
            raise config_error(
                f"must end in one of {', '.join(FORMATS)}", "rename the file, or convert it to JSON lines"
            )
        return path
