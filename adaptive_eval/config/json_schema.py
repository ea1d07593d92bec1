"""The JSON schema of configuration files, for editors, including short forms."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from typing import Any

from adaptive_eval.base.sections import Section
from adaptive_eval.config.normalise import INHERITED, SHORT_FORMS
from adaptive_eval.config.run import RunConfig
from adaptive_eval.graders.registry import STORED_ONLY
from adaptive_eval.questions.benchmark import LmEvalConfig

FILLED_IN = {"RunConfig": {"name", "questions", "grader"}, "ModelConfig": {"model", "base_url"}}
"""Required keys that a file may omit, since loading sets them."""
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""Names of bounds in JSON schemas, by pydantic's names on optional keys."""


def json_schema() -> dict[str, Any]:
    """The schema of a configuration file."""
    schema = RunConfig.model_json_schema(mode="validation")
    sections = schema["$defs"]
    for section_class in _sections(Section):
        _describe_fields(
            schema if section_class is RunConfig else sections.get(section_class.__name__, {}), section_class
        )
    _drop_stored_only(schema)
    sections["LmEvalConfig"] = LmEvalConfig.model_json_schema()
    _describe_fields(sections["LmEvalConfig"], LmEvalConfig)
    schema["properties"]["benchmark"]["anyOf"].insert(1, {"$ref": "#/$defs/LmEvalConfig"})
    _complete_benchmarks(schema)
    for title, section in (("RunConfig", schema), ("ModelConfig", sections["ModelConfig"])):
        section["required"] = [name for name in section.get("required", []) if name not in FILLED_IN[title]]
        for name, key in SHORT_FORMS.items():
            if name in section["properties"] and (section is schema or name in INHERITED):
                section["properties"][name] = _allow_short_form(section["properties"][name], key, sections)
    for section in (schema, *sections.values()):
        for name, value in section.get("properties", {}).items():
            value.setdefault("description", _default_description(name, value, sections))
            for part in value.get("anyOf", ()):
                part |= {BOUNDS[bound]: part.pop(bound) for bound in BOUNDS.keys() & part.keys()}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "adaptive-eval"}


def _sections(section: type[Section]) -> Iterator[type[Section]]:
    """All direct and indirect subclasses of a section."""
    for subclass in section.__subclasses__():
        yield subclass
        yield from _sections(subclass)


def _describe_fields(schema: dict[str, Any], section: type[Section]) -> None:
    """Add the docstrings of fields as descriptions; redeclaring a field drops the inherited docstring."""
    texts: dict[str, str] = {}
    for base in reversed(section.__mro__):
        redeclared = base.__dict__.get("__annotations__", {})
        texts = {name: text for name, text in texts.items() if name not in redeclared}
        if issubclass(base, Section):
            texts |= _field_docstrings(base.__module__).get(base.__name__, {})
    for name, value in schema.get("properties", {}).items():
        if name in texts:
            value.setdefault("description", texts[name])


@cache
def _field_docstrings(module: str) -> dict[str, dict[str, str]]:
    """The docstrings of fields by class, from the source, which lacks classes created from the registry."""
    parts = ast.parse(getsource(sys.modules[module])).body
    return {part.name: dict(_field_texts(part)) for part in parts if isinstance(part, ast.ClassDef)}


def _field_texts(section: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(section.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                yield name, cleandoc(docstring)


def _drop_stored_only(schema: dict[str, Any]) -> None:
    """Remove graders and sections that only occur in stored runs."""
    for kind in STORED_ONLY:
        reference = schema["properties"]["grader"]["discriminator"]["mapping"].pop(kind)
        schema["properties"]["grader"]["oneOf"].remove({"$ref": reference})
        del schema["$defs"][_name(reference)]
    del schema["properties"]["folder"]


def _complete_benchmarks(schema: dict[str, Any]) -> None:
    """Add questions and grader to entries of `benchmarks`; loading moves them to common sections."""
    sections, properties = schema["$defs"], schema["$defs"]["BenchmarkPart"]["properties"]
    for filled_in in ("task", "benchmarks"):
        del sections["QuestionsConfig"]["properties"][filled_in]
    for name in ("questions", "grader"):
        properties[name] = _allow_short_form(schema["properties"][name], SHORT_FORMS[name], sections)
    properties["prompt"] = _allow_short_form(properties["prompt"], SHORT_FORMS["prompt"], sections)
    properties["benchmark"]["anyOf"].insert(1, {"$ref": "#/$defs/LmEvalConfig"})


def _default_description(name: str, value: dict[str, Any], sections: dict[str, Any]) -> str:
    """The description of a key without a docstring: that of its section."""
    if "const" in value:
        return f"The {name} of this section."
    for part in (value, value.get("items", {}), *value.get("anyOf", ())):
        if "$ref" in part and (description := sections[_name(part["$ref"])].get("description")):
            return str(description)
    return f"The {name}, by its kind." if "oneOf" in str(value) else ""


def _allow_short_form(section: dict[str, Any], key: str, sections: dict[str, Any]) -> dict[str, Any]:
    """A schema that allows a section, or only the value of one of its keys."""
    full_form = {name: value for name, value in section.items() if name not in ("description", "default")}
    annotations = {name: value for name, value in section.items() if name in ("description", "default")}
    return {**annotations, "anyOf": [*_short_form(section, key, sections), full_form]}


def _short_form(section: dict[str, Any], key: str, sections: dict[str, Any]) -> list[dict[str, Any]]:
    """The schema of that value, without mappings, which must be written under their key."""
    if "discriminator" in section:
        kinds = section["discriminator"]["mapping"].items()
        return [{"enum": [kind for kind, reference in kinds if "required" not in sections[_name(reference)]]}]
    value: dict[str, Any] = sections[_name(section["$ref"])]["properties"][key]
    bare = {name: part for name, part in value.items() if name not in ("title", "description", "default")}
    return bare["anyOf"] if bare.keys() == {"anyOf"} else [bare]


def _name(reference: str) -> str:
    """The name of the section in a `$ref`."""
    return reference.rpartition("/")[2]
