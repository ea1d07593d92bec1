"""Converts rows to questions (fields, filter, shuffle, limit), and reports all problems at once with their lines."""

import json
import math
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

from adaptive_eval.base.errors import ConfigError, first_lines
from adaptive_eval.questions.readers import FileRow, read_rows
from adaptive_eval.questions.types import FieldsConfig, Question, QuestionsConfig, Scalar

SHOWN_PROBLEMS = 40
SHOWN_REPEATS = 10
ID_DIGITS = 12
MAX_CHOICES = 26
SAFE_BITS = 63
"""Maximum bits of an integer; a larger one is stored as text, since SQLite and most JSON readers do not support it."""
HAS_NO_FIELD = "has no field"
_ABSENT = object()
NO_ROWS: Mapping[str, Sequence[FileRow]] = {}


def load_questions(
    config: QuestionsConfig,
    *,
    folder: Path = Path(),
    seed: int = 0,
    rows: Mapping[str, Sequence[FileRow]] = NO_ROWS,
    keyless: Collection[str] = (),
) -> tuple[Question, ...]:
    """Load the questions of a run; paths are relative to `folder`, and `seed` determines the order of `shuffle`.

    `rows` has rows by benchmark for questions without a file; those of benchmarks in `keyless` may lack an answer. With
    several benchmarks, ids and clusters begin with the benchmark's name.
    """
    if config.benchmarks:
        return tuple(
            _prefix_ids(name, question)
            for name, section in config.benchmarks.items()
            for question in load_questions(
                section,
                folder=folder,
                seed=seed,
                rows={"": rows[name]} if name in rows else NO_ROWS,
                keyless=("",) if name in keyless else (),
            )
        )
    source = str(config.dataset or config.function or config.world or config.task or folder / (config.path or ""))
    questions = _from_rows(rows[""] if "" in rows else read_rows(config, folder), config, source, "" in keyless)
    if not questions:
        raise ConfigError(f"{source}: there are no questions; check questions.filter and the file")
    if config.shuffle:
        random.Random(seed).shuffle(questions)
    return tuple(questions[: config.limit])


def _prefix_ids(name: str, question: Question) -> Question:
    cluster = None if question.cluster is None else f"{name}/{question.cluster}"
    return replace(question, id=f"{name}/{question.id}", cluster=cluster)


def benchmark_named(question: str) -> str:
    """The benchmark in a question's id, in a run with several benchmarks."""
    return question.partition("/")[0]


def _from_rows(rows: Iterable[FileRow], config: QuestionsConfig, source: str, is_keyless: bool) -> list[Question]:
    questions: list[Question] = []
    seen: dict[str, str] = {}
    problems: dict[str, list[str]] = {}
    filters = {name: value if isinstance(value, tuple) else (value,) for name, value in config.filter.items()}
    accepted_values = {name: {as_text(value) for value in values} for name, values in filters.items()}
    number = 0
    for row in rows:
        number += 1
        missing_fields = (name for name in accepted_values if _get(row.fields, name) is _ABSENT)
        row_problems = [f"{HAS_NO_FIELD} {name!r}, which questions.filter asks for" for name in missing_fields]
        if row.problem is not None:
            row_problems = [row.problem]
        if not row_problems and any(
            as_text(_get(row.fields, name)) not in values for name, values in accepted_values.items()
        ):
            continue
        row_problems = row_problems or list(_problems(row.fields, config.fields, is_keyless))
        if not row_problems:
            question = _question(row.fields, config.fields)
            row_problems = [*_id_problems(question, row, config.fields, seen)]
            seen.setdefault(question.id, row.place)
            questions.append(question)
        for problem in row_problems:
            problems.setdefault(problem, []).append(row.place)
    if problems:
        raise ConfigError(_format_problems(source, problems, number))
    return questions


def _format_problems(source: str, problems: Mapping[str, list[str]], rows: int) -> str:
    """List each problem with its line, or with the first and last line and the number of occurrences."""
    count = sum(1 if _is_every_row(places, rows) else len(places) for places in problems.values())
    lines = [_located(problem, places, rows) for problem, places in problems.items()]
    return "\n".join([f"{source}: {count} problem{'s' if count > 1 else ''}", *first_lines(lines, SHOWN_PROBLEMS)])


def _is_every_row(places: list[str], rows: int) -> bool:
    return len(places) == rows > 1


def _located(problem: str, places: list[str], rows: int) -> str:
    if _is_every_row(places, rows):
        is_missing = problem.startswith(HAS_NO_FIELD)
        return f"no row has a field{problem.removeprefix(HAS_NO_FIELD)}" if is_missing else f"every row: {problem}"
    where = places[0] if len(places) == 1 else f"{places[0]} to {places[-1]} ({len(places)} times)"
    return f"{where}: {problem}"


def _problems(row: Mapping[str, Any], fields: FieldsConfig, is_keyless: bool) -> Iterator[str]:
    """Problems of a single row; with `is_keyless` it may lack an answer, unless a field is named for it."""
    may_lack_answer = is_keyless and "answer" not in fields.model_fields_set
    for key, name in _named_fields(fields):
        if _get(row, name) is _ABSENT and not (key == "answer" and may_lack_answer):
            row_fields = ", ".join(map(str, row)) or "none"
            hint = f"set questions.fields.{key}, or add the field"
            yield f"{HAS_NO_FIELD} {name!r}; the fields are {row_fields}: {hint}"
    for key, text in (("prompt", "the prompt is empty"), ("answer", "has no answer")):
        source = getattr(fields, key)
        value = _get(row, source) if source is not None else _ABSENT
        is_needed = key != "answer" or not may_lack_answer
        if is_needed and value is not _ABSENT and not as_text(value).strip():
            yield f"{text} (field {source!r}); fill it in, leave the row out, or set questions.fields.{key}"
    if isinstance(prompt := _get(row, fields.prompt), Mapping | list | tuple):
        hint = f"name the text in it, as questions.fields.prompt: {_last_text(prompt, fields.prompt)}"
        yield f"the prompt (field {fields.prompt!r}) is not a text, but {as_text(prompt)[:40]} ...; {hint}"
    if (problem := _choices_problem(row, fields.choices)) is not None:
        yield problem
    try:
        json.dumps(row, default=str, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        yield "has half of a surrogate pair (\\ud800 to \\udfff alone), which cannot be sent; fix the text"


def _last_text(value: Any, name: str) -> str:
    """The dotted name of the last text in a nested value, such as the last message of a conversation."""
    while isinstance(value, Mapping | list | tuple) and value:
        named = dict(value if isinstance(value, Mapping) else enumerate(value))
        key = "content" if "content" in named else [*named][-1]
        name, value = f"{name}.{key}", named[key]
    return name


def _named_fields(fields: FieldsConfig) -> Iterator[tuple[str, str]]:
    """The fields that a row must have, with their keys in `questions.fields`."""
    yield "prompt", fields.prompt
    for key, names in (("id", fields.id), ("answer", fields.answer), ("cluster", fields.cluster)):
        if names is not None:
            yield key, names
    for key, field_names in (("choices", fields.choices or ()), ("metadata", fields.metadata)):
        for name in (field_names,) if isinstance(field_names, str) else field_names:
            yield key, name


def _question(fields: Mapping[str, Any], names: FieldsConfig) -> Question:
    prompt = as_text(_get(fields, names.prompt))
    answer = as_text(_get(fields, names.answer)) if names.answer is not None else ""
    choices = _choices(fields, names.choices)
    id_value = _get(fields, names.id or "id")
    cluster = as_text(_get(fields, names.cluster)) if names.cluster is not None else ""
    return Question(
        id=as_text(id_value).strip() if id_value is not _ABSENT else content_id(prompt, answer, choices),
        prompt=prompt,
        answer=answer,
        choices=choices,
        cluster=cluster or None,
        metadata={name: _scalar(_get(fields, name)) for name in names.metadata},
    )


def content_id(prompt: str, answer: str, choices: tuple[str, ...]) -> str:
    """The first 12 hexadecimal digits of SHA-256 over prompt, answer and choices."""
    return sha256(json.dumps([prompt, answer, choices]).encode()).hexdigest()[:ID_DIGITS]


def _id_problems(question: Question, row: FileRow, names: FieldsConfig, seen: Mapping[str, str]) -> Iterator[str]:
    """Problems with the id of a question."""
    given = _get(row.fields, names.id or "id") is not _ABSENT
    if not question.id:
        yield f"the id is empty (field {names.id or 'id'!r}); fill it in"
    elif "\0" in question.id:  # it ends a name in the archives and logs of others
        yield f"the id {question.id!r} has a NUL character; remove it"
    elif question.id in seen and given:
        yield f"the id {question.id!r} was used before, by {seen[question.id]}; ids must differ"
    elif question.id in seen:
        yield f"is the same question as {seen[question.id]}; remove one of the two, or give both an id"


def repeated_questions(questions: Sequence[Question]) -> str | None:
    """A warning about questions with equal prompts and choices; None if all differ."""
    groups: dict[tuple[str, tuple[str, ...]], list[Question]] = {}
    for question in questions:
        groups.setdefault((" ".join(question.prompt.split()), question.choices), []).append(question)
    repeats = [group for group in groups.values() if len(group) > 1]
    if not repeats:
        return None
    lines = [
        " = ".join(question.id for question in group)
        + (" (with different answer keys)" if len({question.answer for question in group}) > 1 else "")
        for group in repeats
    ]
    more = f", and {len(lines) - SHOWN_REPEATS} more" if len(lines) > SHOWN_REPEATS else ""
    repeated = sum(len(group) - 1 for group in repeats)
    return (
        f"{repeated} {'question repeats' if repeated == 1 else 'questions repeat'} the text of another one: "
        f"{', '.join(lines[:SHOWN_REPEATS])}{more}. Each counts again in every score; remove the repeats"
    )


def _choices(fields: Mapping[str, Any], names: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if isinstance(names, tuple):
        return tuple(as_text(_get(fields, name)) for name in names)
    value = _get(fields, names or "choices")
    if isinstance(value, str):  # a CSV cell holds a list as JSON
        value = json.loads(value or "[]")
    return tuple(map(as_text, value)) if isinstance(value, list | tuple) else ()


def _choices_problem(fields: Mapping[str, Any], names: str | tuple[str, ...] | None) -> str | None:
    """The problem with the choices of a row; None if they are valid or missing."""
    value = _get(fields, names if isinstance(names, str) else "choices")
    if isinstance(names, tuple) or value is None or value is _ABSENT:
        return None
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value or "[]")
    if isinstance(value, Mapping):
        inner = next((key for key, entry in value.items() if isinstance(entry, list | tuple)), None)
        hint = f"name the list in it, as questions.fields.choices: {names or 'choices'}.{inner}" if inner else ""
        return f"the choices are not a list, but a mapping of {', '.join(value)}; {hint or 'write them as JSON'}"
    if not isinstance(value, list | tuple):
        return f"the choices are not a list, but {as_text(value)[:40]!r}; write JSON, or name one field per choice"
    return f"has {len(value)} choices, but there are {MAX_CHOICES} letters" if len(value) > MAX_CHOICES else None


def _get(fields: Mapping[str, Any], name: str) -> Any:
    """The field with this name or dotted path; numbers in it are list indices from 0: `input.1.content`."""
    if name in fields:
        return fields[name]
    value: Any = fields
    for part in name.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list | tuple) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _ABSENT
    return value


def as_text(value: Any) -> str:
    """A value as text: numbers in full, true and false in lower case, null as an empty string."""
    if value is None or value is _ABSENT:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return str(value)


def _plain(value: Any) -> Any:
    """Convert a part of a nested value for JSON."""
    return float(value) if isinstance(value, Decimal) and math.isfinite(float(value)) else str(value)


def _scalar(value: Any) -> Scalar:
    """Convert a value to one that a stored question can hold."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, int) and value.bit_length() > SAFE_BITS:
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else as_text(value)
