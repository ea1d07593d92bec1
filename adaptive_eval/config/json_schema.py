"""The JSON schema of the configuration, for editors: what the file may say, short forms included."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from typing import Any

from adaptive_eval.config.normalise import INHERITED, SHORT_FORMS, STORED_SECTIONS
from adaptive_eval.config.run import RunConfig
from adaptive_eval.graders.registry import STORED_ONLY
from adaptive_eval.questions.benchmark import LmEvalConfig
from adaptive_eval.sections import Section

FILLED_IN = {"RunConfig": {"name", "questions", "grader"}, "ModelConfig": {"model", "base_url"}}
"""Keys that a complete configuration has, and a file may leave out: a benchmark stands for questions and grader."""
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""JSON schema's names of bounds, by those that pydantic gives them on optional keys."""
_CLASS = re.compile(r"^class (?P<name>\w+).*\n(?:(?:[ )].*)?\n)*", re.MULTILINE)
"""Up to the next line that begins at the margin."""


def json_schema() -> dict[str, Any]:
    """The schema of a configuration file."""
    schema = RunConfig.model_json_schema(mode="validation")
    sections = schema["$defs"]
    for one in _sections(Section):
        _describe_fields(schema if one is RunConfig else sections.get(one.__name__, {}), one)
    _drop_stored_only(schema)
    sections["LmEvalConfig"] = LmEvalConfig.model_json_schema()
    _describe_fields(sections["LmEvalConfig"], LmEvalConfig)
    schema["properties"]["benchmark"]["anyOf"].insert(1, {"$ref": "#/$defs/LmEvalConfig"})
    _complete_benchmarks(schema)
    for title, section in (("RunConfig", schema), ("ModelConfig", sections["ModelConfig"])):
        section["required"] = [name for name in section.get("required", []) if name not in FILLED_IN[title]]
        for name, key in SHORT_FORMS.items():
            if name in section["properties"] and (section is schema or name in INHERITED):
                section["properties"][name] = _or_short(section["properties"][name], key, sections)
    for section in (schema, *sections.values()):
        for name, value in section.get("properties", {}).items():
            value.setdefault("description", _described(name, value, sections))
            for part in value.get("anyOf", ()):
                part |= {BOUNDS[bound]: part.pop(bound) for bound in BOUNDS.keys() & part.keys()}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "adaptive-eval"}


def _sections(section: type[Section]) -> Iterator[type[Section]]:
    """Every section that derives from this one."""
    for one in section.__subclasses__():
        yield one
        yield from _sections(one)


def _describe_fields(schema: dict[str, Any], section: type[Section]) -> None:
    """Add the texts that stand under the fields; where a class names a field again, its own text counts."""
    texts: dict[str, str] = {}
    for base in reversed(section.__mro__):
        anew = base.__dict__.get("__annotations__", {})
        texts = {name: text for name, text in texts.items() if name not in anew}
        if issubclass(base, Section):
            texts |= _texts_of(base)
    for name, value in schema.get("properties", {}).items():
        if name in texts:
            value.setdefault("description", texts[name])


@cache
def _texts_of(section: type[Section]) -> dict[str, str]:
    """The text under each field of a class; the rest of its module is not parsed, which would take longer.

    Classes that are made of the registry have none, since no source has them.
    """
    classes = ast.parse(_classes_of(section.__module__).get(section.__name__, "")).body
    return dict(text for one in classes if isinstance(one, ast.ClassDef) for text in _field_texts(one))


@cache
def _classes_of(module: str) -> dict[str, str]:
    """The source of each class of a module."""
    return {one["name"]: one[0] for one in _CLASS.finditer(getsource(sys.modules[module]))}


def _field_texts(section: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(section.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                yield name, cleandoc(said)


def _drop_stored_only(schema: dict[str, Any]) -> None:
    """Leave out graders and sections that stand in stored runs alone."""
    for kind in STORED_ONLY:
        reference = schema["properties"]["grader"]["discriminator"]["mapping"].pop(kind)
        schema["properties"]["grader"]["oneOf"].remove({"$ref": reference})
        del schema["$defs"][_name(reference)]
    for section in (*STORED_SECTIONS, "folder"):
        del schema["properties"][section]


def _complete_benchmarks(schema: dict[str, Any]) -> None:
    """Each entry of `benchmarks` has questions and a grader, which the sections of all have later."""
    sections, own = schema["$defs"], schema["$defs"]["BenchmarkPart"]["properties"]
    del sections["QuestionsConfig"]["properties"]["benchmarks"]
    for name in ("questions", "grader"):
        own[name] = _or_short(schema["properties"][name], SHORT_FORMS[name], sections)
    own["prompt"] = _or_short(own["prompt"], SHORT_FORMS["prompt"], sections)
    own["benchmark"]["anyOf"].insert(1, {"$ref": "#/$defs/LmEvalConfig"})


def _described(name: str, value: dict[str, Any], sections: dict[str, Any]) -> str:
    """The description of a key without words of its own: that of the section that it holds."""
    if "const" in value:
        return f"Which {name} it is."
    for part in (value, value.get("items", {}), *value.get("anyOf", ())):
        if "$ref" in part and (said := sections[_name(part["$ref"])].get("description")):
            return str(said)
    return f"The {name}, by its kind." if "oneOf" in str(value) else ""


def _or_short(section: dict[str, Any], key: str, sections: dict[str, Any]) -> dict[str, Any]:
    """The section, or the value of one of its keys."""
    long = {name: value for name, value in section.items() if name not in ("description", "default")}
    kept = {name: value for name, value in section.items() if name in ("description", "default")}
    return {**kept, "anyOf": [*_short(section, key, sections), long]}


def _short(section: dict[str, Any], key: str, sections: dict[str, Any]) -> list[dict[str, Any]]:
    """The schema of the one value; a mapping has to stand under its key."""
    if "discriminator" in section:
        kinds = section["discriminator"]["mapping"].items()
        return [{"enum": [kind for kind, reference in kinds if "required" not in sections[_name(reference)]]}]
    value: dict[str, Any] = sections[_name(section["$ref"])]["properties"][key]
    bare = {name: part for name, part in value.items() if name not in ("title", "description", "default")}
    if "oneOf" not in bare:
        return [bare]
    return [choice for one in bare["oneOf"] if "$ref" not in one for choice in one.get("anyOf", [one])]


def _name(reference: str) -> str:
    """The name of the section that a `$ref` is of."""
    return reference.rpartition("/")[2]
