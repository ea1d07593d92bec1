"""Translates pydantic's errors to problems in terms of the configuration, with suggestions."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from adaptive_eval.base.imports import SPECIFICATION
from adaptive_eval.config.document import Document, yaml_value
from adaptive_eval.config.problems import KeyPath, Problem, did_you_mean, written_path
from adaptive_eval.config.run import RunConfig
from adaptive_eval.endpoints.secrets import HEADERS
from adaptive_eval.graders.registry import STORED_ONLY


def sections_at(path: tuple[str | int, ...], kind: object) -> list[type[BaseModel]]:
    """The possible sections at a path; where sections have kinds, such as graders, the one of this `kind`, if any."""
    found: list[Any] = [RunConfig]
    for part in path:
        found = [deeper for annotation in found for deeper in _types_below(annotation, part)]
    sections = [section for section in found if isinstance(section, type) and issubclass(section, BaseModel)]
    named = [(section, section.model_fields.get("kind")) for section in sections]
    return [section for section, field in named if field is not None and kind in get_args(field.annotation)] or sections


def _types_below(annotation: Any, part: str | int) -> Iterator[Any]:
    """The types of the values under a key or an index of a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if part in annotation.model_fields:
            yield from _alternatives(annotation.model_fields[str(part)].annotation)
    elif get_origin(annotation) is tuple and isinstance(part, int):
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) is not None and isinstance(part, str):
        arguments = get_args(annotation)
        if len(arguments) == 2 and issubclass(get_origin(annotation), Mapping):
            yield from _alternatives(arguments[1])


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The members of a union, without what `Annotated` adds."""
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _alternatives(member)
    else:
        yield annotation


def suggestion(path: KeyPath, kind: object) -> str:
    """A suggestion for an unknown key: a similar key of this section, or the same key elsewhere."""
    key = str(path[-1])
    here = {name for section in sections_at(path[:-1], kind) for name in section.model_fields}
    here -= {"folder"} if len(path) == 1 else set()  # that of the file, which is no key of it
    if close := get_close_matches(key.lower(), sorted(here), 1, cutoff=0.7):
        return f"did you mean `{close[0]}`?"
    elsewhere = [place for place in _all_paths() if place[-1] == key]
    if elsewhere and key != "name":  # many sections have a name, so another one's is not meant
        nearest = max(elsewhere, key=lambda place: (_common_length(place, path), -len(place)))
        cut = _common_length(nearest, path)
        return f"did you mean {written_path((*path[:cut], *nearest[cut:]))}?"
    return f"known keys are {', '.join(sorted(here))}" if here else ""


def _common_length(one: KeyPath, other: KeyPath) -> int:
    """The length of the common beginning of two paths, ignoring positions in lists."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1] or isinstance(pair[0], int), pairs))


def _all_paths(model: type[BaseModel] = RunConfig, path: KeyPath = ()) -> Iterator[KeyPath]:
    """The paths of all keys of the configuration."""
    for name, field in model.model_fields.items():
        yield (*path, name)
        for inner in _alternatives(field.annotation):
            index: KeyPath = ()
            if get_origin(inner) is tuple:
                inner, index = get_args(inner)[0], (0,)
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from _all_paths(inner, (*path, name, *index))


UNQUOTED = "write it without quotes"
RULES = {
    "bool_type": ("must be true or false", UNQUOTED),
    "int_type": ("must be a whole number", UNQUOTED),
    "int_from_float": ("must be a whole number", ""),
    "float_type": ("must be a number", UNQUOTED),
    "string_type": ("must be a text", "put it in quotes"),
    "tuple_type": ("must be a list", "write [a, b], or a line `- a` for each"),
    "dict_type": ("must be a mapping of keys", ""),
    "mapping_type": ("must be a mapping of keys", ""),
    "model_type": ("must be a mapping of keys", ""),
    "model_attributes_type": ("must be a mapping of keys", ""),
    "path_type": ("must be a path", "put it in quotes"),
    "too_short": ("must not be empty", ""),
    "string_pattern_mismatch": ("must be one line of text without control characters", ""),
}


def convert_errors(errors: Iterable[ErrorDetails], document: Document) -> Iterator[Problem]:
    """Convert pydantic's errors; errors of several branches of a union are combined."""
    found: dict[KeyPath, list[Problem]] = {}
    for problem in _drop_echoes([_problem(error, document) for error in errors]):
        found.setdefault(problem.path, []).append(problem)
    for path, problems in found.items():
        deeper = any(len(other) > len(path) and other[: len(path)] == path for other in found)
        if deeper and isinstance(document.value(path), dict | list):
            continue  # the error in the intended branch of the union says more
        rules = list(dict.fromkeys(problem.rule.removeprefix("must be ") for problem in problems))
        merged = problems[0] if len(rules) == 1 else problems[0]._replace(rule=f"must be {' or '.join(rules)}", mend="")
        origin = document.origin(path)
        yield merged._replace(path=origin, place=document.place(path))


MISSING = "must be given"
_MEANT = re.compile(r"did you mean `(\w+)`\?")


def _drop_echoes(problems: Sequence[Problem]) -> Iterator[Problem]:
    """Drop problems with missing keys that are misspelt, or that default to a missing key: `model` to `name`."""
    near = ((one.path, _MEANT.fullmatch(one.mend)) for one in problems)
    meant = {(*path[:-1], match[1]) for path, match in near if match is not None}
    missing = {one.path for one in problems if one.rule == MISSING}
    for one in problems:
        named = one.path[:1] == ("models",) and one.path[-1] == "model" and (*one.path[:-1], "name") in missing
        if one.path not in missing or not (one.path in meant or named):
            yield one


def _problem(error: ErrorDetails, document: Document) -> Problem:
    path = _path(error["loc"], document)
    kind, context = error["type"], error.get("ctx", {})
    given = bool(path) and document.has(path) and not set(path) & set(HEADERS)
    got = document.got(path) if given else None
    if kind == "missing":
        return Problem(path, MISSING, f"add `{path[-1]}:`")
    if kind == "extra_forbidden":
        section = document.value(path[:-1])
        kind_of_section = section.get("kind") if isinstance(section, dict) else None
        return Problem(path, "is not a known key", suggestion(document.origin(path), kind_of_section))
    if kind == "rule":
        told = None if isinstance(document.value(path), dict | list) else got  # the rule names what is wrong inside
        return Problem(path, context["rule"], context["mend"], told)
    if kind == "value_error":
        return Problem(path, str(context["error"]))
    if kind == "literal_error":
        return _choice_problem(path, context["expected"], document)
    if kind == "union_tag_invalid":
        return _grader_problem(path, context["expected_tags"], document)
    if kind == "union_tag_not_found":
        return Problem((*path, "kind"), "must be given", "such as `kind: math`")
    rule, mend = RULES.get(kind, (re.sub(r"^\w+ should ", "must ", error["msg"]), ""))
    value = document.value(path)
    if mend == UNQUOTED and (not isinstance(value, str) or isinstance(yaml_value(value), str)):
        mend = ""  # without quotes it would be a text as well
    return Problem(path, rule, mend, got)


def _choice_problem(path: KeyPath, expected: str, document: Document) -> Problem:
    choices = [choice.strip().strip("'") for choice in expected.replace(" or ", ", ").split(",")]
    value = document.value(path)
    mend = did_you_mean(value.lower(), choices, "") if isinstance(value, str) else ""
    rule = f"must be {choices[0].lower()}" if len(choices) == 1 else f"must be one of {', '.join(choices)}"
    return Problem(path, rule, mend, document.got(path))


def _grader_problem(path: KeyPath, expected: str, document: Document) -> Problem:
    """The problem of an unknown kind of grader; for a function it suggests the right form."""
    tags = [tag for tag in expected.split(", ") if tag.strip("'") not in STORED_ONLY]
    said = _choice_problem((*path, "kind"), ", ".join(tags), document)
    value = document.value(said.path)
    own = isinstance(value, str) and re.fullmatch(SPECIFICATION, value) is not None
    return said._replace(mend=f'write {{kind: python, function: "{value}"}}') if own else said


def _path(location: tuple[int | str, ...], document: Document) -> KeyPath:
    """Convert pydantic's location to a path, without the names of union members in it."""
    path: KeyPath = ()
    for part in location:
        value = document.value(path)
        if isinstance(value, list) and isinstance(part, int):
            path = (*path, part)
        elif isinstance(value, dict) and isinstance(part, str):
            sections = sections_at(path, value.get("kind"))
            if part in value or any(part in section.model_fields for section in sections):
                path = (*path, part)
    return path
