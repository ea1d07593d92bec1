"""Loads a file as a `RunConfig`, or raises an error with all its problems.

A replay has its own models and questions: `load_decisions` reads only the sections that determine decisions. Secrets
are removed from a configuration before anything else reads it.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.benchmarks import BenchmarkPart
from adaptive_eval.config.checks import cross_check
from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.document import (
    VARIABLE,
    Document,
    escape_variables,
    json_for_yaml,
    read_document,
    read_environment,
)
from adaptive_eval.config.normalise import apply_override, complete_settings, expand_short_forms, fill_in_addresses
from adaptive_eval.config.problems import KeyPath, Problem, problem_list
from adaptive_eval.config.refusals import convert_errors
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints.secrets import (
    HEADERS,
    INHERITED,
    SECRET_VARIABLE,
    find_urls,
    holds_secret,
    looks_secret,
    path_looks_secret,
    secret_given,
)
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.questions.types import FORMATS

REDACTED = "***"

YAML = (".yaml", ".yml")
CONFIGURATIONS = (*YAML, ".json")
"""Suffixes of configuration files."""


NO_SECTIONS: Mapping[str, object] = {}


def holds_questions(path: Path) -> bool:
    """Whether a path is that of a file of questions, by its suffix; a JSON file may be either."""
    return path.suffix.lower() in FORMATS.keys() - CONFIGURATIONS


def remove_secrets(document: Document, value: Any, path: KeyPath) -> None:
    """Replace every secret in the document, and record a problem."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        inner = (*path, key)
        if isinstance(value[key], dict | list):
            remove_secrets(document, value[key], inner)
        elif rule := _secret_rule(document, inner, value[key]):
            hint = "set api_key_env to the name of an environment variable; if there is no key, remove it"
            if set(inner) & set(HEADERS):
                hint = "write ${NAME} for an environment variable"
            elif "launch" in inner:
                hint = INHERITED
            elif "command" in inner:
                hint = "name its variable, as in env: [MY_KEY], and let the command read that"
            elif "notify" in inner:
                hint = "let the command read it from a file, as in `curl --config FILE`"
            document.refuse(inner, rule, hint)
            value[key] = REDACTED


SECRET_IN_FILE = "has a secret, which must not be in the file"


def _secret_rule(document: Document, path: KeyPath, value: object) -> str | None:
    """Why a value must not be in the file; keys must come from the environment, and only go into headers."""
    if value is None:
        return None
    in_header = bool(set(path) & set(HEADERS))
    variables = document.variables.get(document.origin(path), ())
    if in_header:
        literal = VARIABLE.sub("", document.raw.get(path, str(value)))
        named = holds_secret(str(path[-1])) and not variables
        return SECRET_IN_FILE if named or looks_secret(literal) else None
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    if holds_secret(key) or looks_secret(str(value)):
        return SECRET_IN_FILE
    if ("command" in path or path[0] == "notify") and (given := secret_given(str(value))):
        return f"has a secret ({given}), which would be stored"
    if path[0] == "notify" and any(map(path_looks_secret, find_urls(str(value)))):
        return "has what looks like a key, which would be stored"
    if "base_url" in path and variables and path_looks_secret(str(value)):
        return "includes what looks like a key, which would be stored with the results"
    if path[-1] != "api_key_env" and any(SECRET_VARIABLE.search(name) for name in variables):
        return "includes a secret, which would be stored with the results"
    return None


Schema = TypeVar("Schema", bound=Decisions)


def load_config(path: Path, overrides: Iterable[str] = ()) -> RunConfig:
    """Load a configuration file, with `--set` overrides; raises `ConfigError` with all problems."""
    document = _read(path, overrides)
    return _valid(document, RunConfig, _names(document), str(path))


def config_from_mapping(settings: Mapping[str, object], overrides: Iterable[str] = ()) -> RunConfig:
    """Load a configuration from a mapping with the keys of a file; paths are relative to the current directory."""
    try:
        text = json_for_yaml(settings, _to_file_text)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"configuration: cannot be written as JSON: {error}") from error
    document = _complete_document(text, Path(), overrides, read_environment(Path()))
    document.places = {path: place for path, place in document.places.items() if place.startswith("--set")}
    document.places[()] = ""  # there are no lines
    return _valid(document, RunConfig, _names(document), "configuration")


def _to_file_text(value: object) -> object:
    """Convert a path, or a function that other processes can import, to its text in a file."""
    if isinstance(value, Path):
        return str(value)
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not callable(value) or module is None or name is None:
        raise TypeError(f"{value!r} is neither a plain value, a path nor a function")
    if module == "__main__" or not name.isidentifier():
        raise ConfigError(
            f"the function {name} is defined in a notebook or another function, so grading processes cannot import it; "
            "move it to the top level of a file, my_graders.py, and import it from there"
        )
    return f"{module}:{name}"


def load_decisions(
    path: Path | None, overrides: Iterable[str], names: Sequence[str], default: Mapping[str, object] = NO_SECTIONS
) -> Decisions:
    """Load the decisions of a file, or else of `default`, with `--set` overrides, for models with these names."""
    if path is not None:
        return _decisions(_read(path, overrides), names, str(path))
    given = list(overrides)
    # open a .env file only if necessary: it may be in the folder of a stranger's run
    environment = read_environment(Path()) if any("$" in override for override in given) else {}
    document = _complete_document(escape_variables(json_for_yaml(default)), Path(), given, environment)
    return _decisions(document, names, "--set")


def load_benchmarks(path: Path, overrides: Iterable[str]) -> tuple[BenchmarkPart, ...]:
    """The benchmarks of a file, for their weights and gates; those that are not valid are left out."""
    document = _read(path, overrides)
    parts = (_parsed(BenchmarkPart, entry) for _, entry in document.entries("benchmarks"))
    return tuple(part for part in parts if part is not None)


def load_rubric(path: Path, names: Sequence[str]) -> RubricConfig:
    """Load the rubric of a file, which may be a whole configuration; `names` are the models' names."""
    document = _read(path)
    if "rubric" not in document.tree and not document.problems:
        raise ConfigError(f"{path} has no rubric; add it under `rubric:`, as in a configuration")
    _drop(document, (RunConfig.model_fields.keys() | document.tree.keys()) - {"rubric", "folder"})
    return _decisions(document, names, str(path)).rubric


def _decisions(document: Document, names: Sequence[str], source: str) -> Decisions:
    _drop(document, RunConfig.model_fields.keys() - Decisions.model_fields.keys())
    return _valid(document, Decisions, names, source)


def _drop(document: Document, sections: Collection[str]) -> None:
    """Remove sections, with their problems."""
    document.tree = {name: section for name, section in document.tree.items() if name not in sections}
    document.problems = [
        problem for problem in document.problems if not problem.path or problem.path[0] not in sections
    ]


def _read(path: Path, overrides: Iterable[str] = ()) -> Document:
    return _complete_document(_read_text(path), path, overrides, read_environment(path.parent))


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except IsADirectoryError as error:
        raise ConfigError(f"{path} is a folder; give the path of the configuration, a YAML file") from error
    except OSError as error:
        files = {file.name for pattern in ("*.y*ml", "*.json*") for file in path.parent.glob(pattern)}
        close = get_close_matches(path.name, sorted(files), 1)
        hint = f"did you mean {path.parent / close[0]}?" if close else "`adaptive-eval init` creates one"
        raise ConfigError(f"{path} cannot be read: {error.strerror}; {hint}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start + 1}); save it as UTF-8") from error


def _complete_document(text: str, path: Path, overrides: Iterable[str], environment: Mapping[str, str]) -> Document:
    """Parse a text, apply overrides, set defaults and the absolute folder for relative paths, and remove secrets."""
    document = read_document(text, environment)
    if document.tree or not document.problems:
        expand_short_forms(document)
        for override in overrides:
            apply_override(document, override, environment)
        expand_short_forms(document)
        fill_in_addresses(document, environment)
        remove_secrets(document, document.tree, ())
        complete_settings(document, name=path.stem)
        if "folder" in document.tree:
            document.refuse(("folder",), "is not a known key", "write paths relative to the folder of the file")
        document.tree["folder"] = str(path.parent.absolute())
    return document


def _by_line(problem: Problem) -> float:
    return int(problem.place[5:]) if problem.place.startswith("line ") else float("inf")


def _names(document: Document) -> Sequence[str] | None:
    """The names of the models in the file; None if it has no list of models."""
    models = document.tree.get("models")
    if not isinstance(models, list):
        return None
    return tuple(str(model.get("name")) if isinstance(model, dict) else "" for model in models)


def _valid(document: Document, schema: type[Schema], names: Sequence[str] | None, source: str) -> Schema:
    """The configuration; raises `ConfigError` with all problems."""
    config, problems = _validate(document, schema, names)
    if config is None:
        raise ConfigError(problem_list(source, sorted([*problems, *_missing_files(document)], key=_by_line)))
    return config


def _validate(
    document: Document, schema: type[Schema], names: Sequence[str] | None
) -> tuple[Schema | None, tuple[Problem, ...]]:
    """Validate the document: the configuration, or all problems in the order of lines."""
    if document.problems and not document.tree:
        return None, tuple(document.problems)
    config: Schema | None = None
    problems: list[Problem] = []
    try:
        config = schema.model_validate_json(json.dumps(document.tree), strict=True)
        sections = {name: getattr(config, name) for name in schema.model_fields}
    except ValidationError as error:
        problems += convert_errors(error.errors(include_url=False), document)
        sections = dict(_valid_sections(document, schema))
    for problem in cross_check(sections if names is None else {**sections, "names": tuple(names)}):
        problems.append(problem._replace(path=document.origin(problem.path), place=document.place(problem.path)))
    reported = {problem.path for problem in document.problems}
    reported |= {path[:-1] for path in reported if path and isinstance(path[-1], int)}  # such a list has lost entries
    problems = document.problems + [problem for problem in problems if problem.path not in reported]
    return None if problems else config, tuple(sorted(dict.fromkeys(problems), key=_by_line))


def _missing_files(document: Document) -> Iterator[Problem]:
    """Missing question files, to report with other problems; otherwise reading them reports it."""
    benchmarks = document.value(("questions", "benchmarks"))
    for inner in [(), *(("benchmarks", name) for name in (benchmarks if isinstance(benchmarks, dict) else ()))]:
        path = ("questions", *inner, "path")
        given = document.value(path)
        if isinstance(given, str) and _is_missing(file := Path(document.tree["folder"], given)):
            hint = "give a path from the folder of the configuration"
            yield Problem(document.origin(path), f"is {file}, which does not exist", hint, None, document.place(path))


def _is_missing(file: Path) -> bool:
    try:
        return not file.exists()
    except OSError:  # such as a folder that this user cannot enter: reading the file says why
        return False


def _valid_sections(document: Document, schema: type[Schema]) -> Iterator[tuple[str, Any]]:
    """The valid sections; in `models`, None for invalid ones."""
    for name, field in schema.model_fields.items():
        if name == "models":
            models = document.tree.get(name)
            yield name, tuple(_parsed(ModelConfig, model) for model in (models if isinstance(models, list) else ()))
        elif name in document.tree:
            value = _parsed(Annotated[field.annotation, field], document.tree[name])
            if value is not None:
                yield name, value
        elif not field.is_required():
            yield name, field.get_default(call_default_factory=True, validated_data={})


def _parsed(annotation: Any, value: object) -> Any:
    """Parse a value as a type; None if it is invalid."""
    try:
        return TypeAdapter(annotation).validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return None
