"""Which keys a section knows, and which of them someone may have meant."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import takewhile
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from adaptive_eval.config.normal import ALIASES
from adaptive_eval.config.problems import KeyPath, written
from adaptive_eval.config.run import RunConfig


def sections_at(path: tuple[str | int, ...]) -> list[type[BaseModel]]:
    """The section at a path; several where it may be of several kinds, such as a grader."""
    found: list[Any] = [RunConfig]
    for part in path:
        found = [deeper for annotation in found for deeper in _into(annotation, part)]
    return [section for section in found if isinstance(section, type) and issubclass(section, BaseModel)]


def _into(annotation: Any, part: str | int) -> Iterator[Any]:
    """What a type holds under a key or an index."""
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


def of_kind(sections: list[type[BaseModel]], kind: object) -> list[type[BaseModel]]:
    """Among several kinds of section, those whose `kind` is this one; all where it is none of theirs."""
    fitting = [section for section in sections if kind in _kinds(section)]
    return fitting or sections


def _kinds(section: type[BaseModel]) -> tuple[Any, ...]:
    field = section.model_fields.get("kind")
    return get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()


def suggestion(path: KeyPath, kind: object) -> str:
    """What an unknown key may have been meant to be: a near one of this section, or the same one of another."""
    key = str(path[-1])
    here = {name for section in of_kind(sections_at(path[:-1]), kind) for name in section.model_fields}
    here |= {alias[-1] for alias in ALIASES if alias[:-1] == path[:-1]}
    if close := get_close_matches(key.lower(), sorted(here), 1, cutoff=0.7):
        return f"did you mean `{close[0]}`?"
    if elsewhere := [place for place in _everywhere() if place[-1] == key]:
        nearest = max(elsewhere, key=lambda place: (_shared(place, path), -len(place)))
        return f"did you mean {written((*path[: _shared(nearest, path)], *nearest[_shared(nearest, path) :]))}?"
    return f"known keys are {', '.join(sorted(here))}" if here else ""


def _shared(one: KeyPath, other: KeyPath) -> int:
    """How many keys two paths have in common from the start, whatever the entry of a list."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1] or isinstance(pair[0], int), pairs))


def _everywhere(model: type[BaseModel] = RunConfig, path: KeyPath = ()) -> Iterator[KeyPath]:
    """The path of every key of the configuration."""
    for name, field in model.model_fields.items():
        yield (*path, name)
        for inner in _alternatives(field.annotation):
            index: KeyPath = ()
            if get_origin(inner) is tuple:
                inner, index = get_args(inner)[0], (0,)
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from _everywhere(inner, (*path, name, *index))
