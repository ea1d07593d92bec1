"""Converts pydantic's errors to problems of the configuration, with suggestions."""

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
from adaptive_eval.config.run import MODEL_NAME, RunConfig
from adaptive_eval.endpoints.secrets import HEADERS
from adaptive_eval.graders.judge_forms import VERDICT_NAME
from adaptive_eval.graders.registry import STORED_ONLY
from adaptive_eval.graders.rubric import PERCENTILE
from adaptive_eval.graders.scoring import CRITERION_NAME


def sections_at(path: tuple[str | int, ...], kind: object) -> list[type[BaseModel]]:
    """The possible sections at a path; if sections have kinds, as graders do, only the one of this `kind`, if any."""
    annotations: list[Any] = [RunConfig]
    for part in path:
        annotations = [deeper for annotation in annotations for deeper in _types_below(annotation, part)]
    sections = [section for section in annotations if isinstance(section, type) and issubclass(section, BaseModel)]
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
    """The members of a union, without `Annotated`."""
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
    keys = {name for section in sections_at(path[:-1], kind) for name in section.model_fields}
    keys -= {"folder"} if len(path) == 1 else set()  # set by loading, not by users
    # a judge is not a model under test, nor another kind of grader: what one has is not meant for the other
    is_of_grader = "grader" in path[:-1]
    other_places = [
        place
        for place in _all_paths()
        if place[-1] == key and (place[0] in ("grader", "grading")) == is_of_grader and place != path
        if _common_length(place, path) < len(path) - 1 or keys.issuperset(place[len(path) - 1 : len(path)])
    ]
    distance = {place: (-_common_length(place, path), len(place)) for place in other_places}
    nearest = [place for place in distance if distance[place] == min(distance.values())]
    cut = _common_length(nearest[0], path) if nearest else 0
    close = get_close_matches(key.lower(), sorted(keys), 1, cutoff=0.7)
    # many sections have a name, so another one's is not meant
    if nearest and (0 < cut == len(path) - 1 or (not close and key != "name")):
        return f"did you mean {' or '.join(written_path((*path[:cut], *place[cut:])) for place in nearest)}?"
    if close:
        return f"did you mean `{close[0]}`?"
    return f"known keys are {', '.join(sorted(keys))}" if keys else ""


def _common_length(path: KeyPath, other: KeyPath) -> int:
    """The length of the common prefix of two paths, ignoring positions in lists."""
    pairs = zip(path, other, strict=False)
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
MAPPING = "must be a mapping"
RULES = {
    "bool_type": ("must be true or false", UNQUOTED),
    "int_type": ("must be a whole number", UNQUOTED),
    "int_from_float": ("must be a whole number", ""),
    "float_type": ("must be a number", UNQUOTED),
    "string_type": ("must be a text", "put it in quotes"),
    "tuple_type": ("must be a list", "write [a, b], or a line `- a` for each"),
    "dict_type": (MAPPING, ""),
    "mapping_type": (MAPPING, ""),
    "model_type": (MAPPING, ""),
    "model_attributes_type": (MAPPING, ""),
    "path_type": ("must be a path", "put it in quotes"),
}
PATTERNS = {
    MODEL_NAME: "must be one line of text without control characters or spaces at its ends",
    VERDICT_NAME: "must have up to 40 letters, digits, spaces, underscores and hyphens, first a letter or digit",
    CRITERION_NAME: "must have up to 40 small letters, digits and underscores, first a letter",
    PERCENTILE: "must be a percentile, as in p33",
    SPECIFICATION: "must name an object to import, as package.module:attribute",
}
"""Rules of texts by their pattern."""


def convert_errors(errors: Iterable[ErrorDetails], document: Document) -> Iterator[Problem]:
    """Convert pydantic's errors; errors of several branches of a union are combined."""
    by_path: dict[KeyPath, list[Problem]] = {}
    for problem in _drop_echoes([_problem(error, document) for error in errors]):
        by_path.setdefault(problem.path, []).append(problem)
    for path, problems in by_path.items():
        deeper = any(len(other) > len(path) and other[: len(path)] == path for other in by_path)
        if deeper and isinstance(document.value(path), dict | list):
            continue  # the error in the intended branch of the union is more precise
        if any(problem.rule == UNKNOWN for problem in problems):  # and missing in another branch of the union
            problems = [problem for problem in problems if problem.rule != MISSING]
        rules = list(dict.fromkeys(problem.rule.removeprefix("must be ") for problem in problems))
        merged = problems[0] if len(rules) == 1 else problems[0]._replace(rule=f"must be {' or '.join(rules)}", hint="")
        origin = document.origin(path)
        yield merged._replace(path=origin, place=document.place(path))


MISSING = "must be given"
UNKNOWN = "is not a known key"
_MEANT = re.compile(r"did you mean `(\w+)`\?")


def _drop_echoes(problems: Sequence[Problem]) -> Iterator[Problem]:
    """Drop problems with missing keys that are misspelt, or that default to a missing key: `model` to `name`."""
    suggestions = ((problem.path, _MEANT.fullmatch(problem.hint)) for problem in problems)
    suggested = {(*path[:-1], match[1]) for path, match in suggestions if match is not None}
    missing = {problem.path for problem in problems if problem.rule == MISSING}
    for problem in problems:
        *parent, key = problem.path or ("",)
        is_default = parent[:1] == ["models"] and key == "model" and (*parent, "name") in missing
        if problem.path not in missing or not (problem.path in suggested or is_default):
            yield problem


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
        return Problem(path, UNKNOWN, suggestion(document.origin(path), kind_of_section))
    if kind == "rule":
        value_text = (
            None if isinstance(document.value(path), dict | list) else got
        )  # the rule names what is wrong inside
        return Problem(path, context["rule"], context["hint"], value_text)
    if kind == "value_error":
        return Problem(path, str(context["error"]))
    if kind == "literal_error":
        return _choice_problem(path, context["expected"], document)
    if kind == "union_tag_invalid":
        return _grader_problem(path, context["expected_tags"], document)
    if kind == "union_tag_not_found":
        return Problem((*path, "kind"), "must be given", "such as `kind: math`")
    if kind == "too_short":
        fewest = context["min_length"]
        return Problem(path, "must not be empty" if fewest == 1 else f"must have at least {fewest} entries", "", got)
    rule, hint = RULES.get(kind, (re.sub(r"^\w+ should ", "must ", error["msg"]), ""))
    if kind == "string_pattern_mismatch":
        rule = PATTERNS.get(context["pattern"], rule)
    value = document.value(path)
    if hint == UNQUOTED and (not isinstance(value, str) or isinstance(yaml_value(value), str)):
        hint = ""  # it is a text even without quotes
    keys = {key for section in sections_at(path, None) for key in section.model_fields} if rule == MAPPING else ()
    if keys:
        hint = f"write {{KEY: VALUE}}; its keys are {', '.join(sorted(keys))}"
    return Problem(path, rule, hint, got)


def _choice_problem(path: KeyPath, expected: str, document: Document) -> Problem:
    choices = [choice.strip().strip("'") for choice in expected.replace(" or ", ", ").split(",")]
    value = document.value(path)
    hint = did_you_mean(value.lower(), choices, "") if isinstance(value, str) else ""
    rule = f"must be {choices[0].lower()}" if len(choices) == 1 else f"must be one of {', '.join(choices)}"
    return Problem(path, rule, hint, document.got(path))


def _grader_problem(path: KeyPath, expected: str, document: Document) -> Problem:
    """The problem of an unknown kind of grader; for a function, the hint has the correct form."""
    tags = [tag for tag in expected.split(", ") if tag.strip("'") not in STORED_ONLY]
    problem = _choice_problem((*path, "kind"), ", ".join(tags), document)
    value = document.value(problem.path)
    is_function = isinstance(value, str) and re.fullmatch(SPECIFICATION, value) is not None
    return problem._replace(hint=f'write {{kind: python, function: "{value}"}}') if is_function else problem


def _path(location: tuple[int | str, ...], document: Document) -> KeyPath:
    """Convert pydantic's location to a path, without the names of union members."""
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
