"""Normalises a configuration: expands short forms, and completes models with the settings of the run.

Afterwards every section is a mapping, and every model has its own complete sampling, prompt and concurrency. The
document records the origin of copied values, so that problems are reported where the user wrote them.

Settings from the command line, `--set key.path=value`, override those of the file. A path has dots between keys and
numbers for the entries of a list (`models.0.name` or `models[0].name`); a value is YAML.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adaptive_eval.base.numbers import plain_number
from adaptive_eval.base.sections import DURATION
from adaptive_eval.config.problems import KeyPath, shown_value, written_path
from adaptive_eval.config.run import SOURCES
from adaptive_eval.questions.benchmark import LmEvalConfig

if TYPE_CHECKING:
    from adaptive_eval.config.document import Document

PATH = re.compile(r"[\w-]+(?:\.[\w-]+|\[\d+\])*")
PART = re.compile(r"[\w-]+")
COMMANDS_AT_ONCE = 4
"""Commands of a model that run at the same time by default."""


def apply_override(document: Document, override: str, environment: Mapping[str, str]) -> None:
    """Set `key.path=value` in a document, or record a problem."""
    name, equals, text = override.partition("=")
    name = name.strip()
    if not equals or not PATH.fullmatch(name):
        hint = "write --set trials.max=40, or --set models.0.sampling.temperature=0.7"
        document.refuse((), "needs a path and a value", hint, repr(name), "--set")
        return
    place = f"--set {name}"
    keys = PART.findall(name)
    path = _resolve_path(document, keys, place)
    if path is None:
        return
    if not text.strip():  # `running.chosen` leaves out what undoes something
        hint = "to change what the file says, give one, or null if the key may have none (--set budget.usd=null)"
        rule = "has no value, which would undo a --set of an earlier start, but there is none"
        document.refuse(path, rule, hint, place=place)
        return
    document.forget(path)
    created = (path[:cut] for cut in range(1, len(path)) if document.value(path[:cut]) is None)
    document.places |= dict.fromkeys((*created, path), place)
    from adaptive_eval.config.document import add_yaml  # imported here: printing the schema does not need YAML

    value = add_yaml(document, text, path, environment, place)
    _parent(document, path)[path[-1]] = value


def _resolve_path(document: Document, keys: list[str], place: str) -> KeyPath | None:
    """The path of these keys, with positions in lists; records a problem and returns None if it does not exist."""
    path: KeyPath = ()
    value: Any = document.tree
    for key in keys:
        if isinstance(value, list):
            if not key.isdecimal() or int(key) >= len(value):
                hint = f"{written_path(path)} has {len(value)} entries, from 0 to {len(value) - 1}"
                document.refuse((*path, key), "is not an entry of the list", hint, place=place)
                return None
            path, value = (*path, int(key)), value[int(key)]
        elif isinstance(value, dict) or value is None:
            path, value = (*path, key), (value or {}).get(key)
        else:
            document.refuse(path, "has no keys to set", f"set {written_path(path)} itself", shown_value(value), place)
            return None
    return path


def _parent(document: Document, path: KeyPath) -> Any:
    """The mapping or list with the value at `path`; missing mappings on the way are created."""
    value: Any = document.tree
    for part in path[:-1]:
        if isinstance(value, dict) and value.get(part) is None:
            value[part] = {}
        value = value[part]
    return value


SHORT_FORMS = {
    "questions": "path",
    "prompt": "template",
    "grader": "kind",
    "rubric": "name",
    "objective": "kind",
    "stopping": "rule",
    "concurrency": "in_flight",
}
"""Sections that may be written as a single value, with the key of that value: `objective: best`."""

LM_EVAL = "adaptive_eval.lm_eval.tasks"
LM_EVAL_ROWS, LM_EVAL_GRADE = f"{LM_EVAL}:rows", f"{LM_EVAL}:grade"
INHERITED = ("sampling", "prompt", "concurrency")
"""Sections that models have as well; their keys override those of the run."""
FOR_THE_RUN = {"prompt": "few_shot", "concurrency": "retry_for"}
"""Keys of these sections that only the run has."""
MERGED = ("extra_body",)
"""Mappings in these sections whose keys are merged as well."""

SIMULATED_URL = "http://127.0.0.1/v1"
"""Placeholder address for launched servers, recorded models and models of Inspect."""
BASE_URL = "OPENAI_BASE_URL"
"""The variable with the default address of models."""


def expand_short_forms(document: Document) -> None:
    """Expand `objective: best` to `objective: {kind: best}`, and so on."""
    for path, section in (((), document.tree), *document.entries("models"), *document.entries("benchmarks")):
        for name, key in SHORT_FORMS.items():
            value = section.get(name)
            if name in section and value is not None and not isinstance(value, dict | list):
                section[name] = {key: value}
                document.origins[(*path, name, key)] = (*path, name)


def fill_in_addresses(document: Document, environment: Mapping[str, str]) -> None:
    """Set a missing `base_url` of models to a placeholder, or to that of the environment."""
    for entry, model in document.entries("models"):
        path = (*entry, "base_url")
        sources = (source for key, source in SOURCES.items() if model.get(key) is not None)
        served = next((source for source in sources if source.hint is not None), None)
        if "base_url" in model and served is not None:
            document.refuse(path, f"has no effect on {served.model}", str(served.hint))
        elif "base_url" in model:
            continue
        elif served is not None or model.get("simulate") is True:
            model["base_url"] = SIMULATED_URL
        elif url := environment.get(BASE_URL):
            model["base_url"] = url
            document.places[path] = BASE_URL
            document.raw[path] = f"${{{BASE_URL}}}"
            document.variables[path] = (BASE_URL,)


def complete_settings(document: Document, name: str) -> None:
    """Complete the configuration; `name` is the default name of the run, if not empty."""
    tree = document.tree
    _expand_harness(document, tree, ())
    _join_benchmarks(document)
    _require_unit(document)
    if name and "name" not in tree:
        tree["name"] = name
        document.places[("name",)] = "the file's name"
    has_servers = any(
        model.get("command") is None and model.get("recorded") is None for _, model in document.entries("models")
    )
    if (
        tree.get("sampling")
        and not has_servers
        and any(model.get("command") for _, model in document.entries("models"))
    ):
        document.refuse(("sampling",), "has no effect on commands", "remove it")
    for path, model in document.entries("models"):
        for section in INHERITED:
            general, settings = tree.get(section), model.get(section)
            if section == "sampling" and model.get("command") is not None:
                continue  # that of the run is for servers
            if section == "concurrency" and model.get("command") is not None:
                general = _limits_of_command({} if general is None else general, has_servers=has_servers)
            if isinstance(general, dict):
                general = {key: value for key, value in general.items() if key != FOR_THE_RUN.get(section)}
            if isinstance(general, dict) and (settings is None or isinstance(settings, dict)):
                model[section] = _merge_over(document, general, settings or {}, (section,), (*path, section))
        for source in (("inspect", "model"), ("inspect",), ("name",)):
            value = document.value((*path, *source))
            if "model" not in model and value is not None and not isinstance(value, dict):
                model["model"] = value
                document.origins[(*path, "model")] = (*path, *source)


def _limits_of_command(limits: Any, *, has_servers: bool) -> Any:
    """The run's limits for a command: few processes by default, and no more where the limits are meant for servers."""
    in_flight = limits.get("in_flight", COMMANDS_AT_ONCE) if isinstance(limits, dict) else None
    if not isinstance(in_flight, int):
        return limits
    return {**limits, "in_flight": min(in_flight, COMMANDS_AT_ONCE) if has_servers else in_flight}


def _join_benchmarks(document: Document) -> None:
    """Move questions and graders of `benchmarks` to common sections, by benchmark name."""
    tree = document.tree
    if not isinstance(listed := tree.get("benchmarks"), list) or not listed:
        return
    shared = tree.pop("grader", None)
    for section in ("questions", "benchmark"):
        if tree.pop(section, None) is not None:
            rule, hint = "cannot be combined with benchmarks", "move it to the entries of `benchmarks`, or remove these"
            document.refuse((section,), rule, hint)
    joined: dict[str, dict[str, Any]] = {"questions": {}, "grader": {}}
    for path, entry in document.entries("benchmarks"):
        if not isinstance(entry.get("name"), str):
            continue
        _expand_harness(document, entry, path)
        if shared is not None and "grader" not in entry:
            entry["grader"] = copy.deepcopy(shared)
            document.origins[(*path, "grader")] = ("grader",)
        for section, moved in joined.items():
            _move_out(document, entry, path, section, moved)
    worlds = {section.get("world") for section in joined["questions"].values() if isinstance(section, dict)}
    tree["questions"] = {"benchmarks": joined["questions"]}
    if len(worlds) == 1 and None not in worlds:
        tree["questions"]["world"] = worlds.pop()
    elif worlds - {None}:
        rule, hint = "has several worlds, but the simulator serves one", "use questions of one world in all benchmarks"
        document.refuse(("benchmarks",), rule, hint)
    tree["grader"] = {"kind": "by_benchmark", "graders": joined["grader"]}


INNER = {"questions": "benchmarks", "grader": "graders"}
"""The keys of the common sections for those of each benchmark."""


def _move_out(document: Document, entry: dict[str, Any], path: KeyPath, section: str, moved: dict[str, Any]) -> None:
    """Move a section of a benchmark to `moved`."""
    if section not in entry:
        document.refuse((*path, section), "must be given", f"add `{section}:`", place=document.place(path))
        return
    content = moved[entry["name"]] = entry.pop(section)
    document.origins[(section, INNER[section], entry["name"])] = (*path, section)
    if (
        section == "grader"
        and isinstance(content, dict)
        and (content.get("kind") == "verifier" or content.get("compare_to"))
    ):
        key = "compare_to" if content.get("compare_to") else "kind"
        rule = "cannot grade one of several benchmarks: a verifier, or a judge that compares answers, needs its own run"
        hint = "use a key, a function, or a judge with verdicts or scores; or run this benchmark by itself"
        document.refuse((*path, "grader", key), rule, hint, str(content[key]))


def _expand_harness(document: Document, section: dict[str, Any], path: KeyPath) -> None:
    """Set questions and grader for `benchmark`, a task of another harness, if present."""
    benchmark = section.get("benchmark")
    if not isinstance(benchmark, dict):
        return
    if "lm_eval" in benchmark:
        del section["benchmark"]
        if isinstance(grading := document.tree.get("grading", {}), dict):
            # each process loads the task, which takes time and memory
            document.tree["grading"] = {"workers": 1, "timeout": 60, **grading}
        filled = _lm_eval_sections(document, benchmark, section.get("questions"), (*path, "benchmark"))
    else:
        task = {"task": benchmark["inspect"]} if isinstance(benchmark.get("inspect"), str) else {}
        filled = {"questions": task, "grader": {"kind": "inspect"} if "grader" not in section else {}}
        document.origins[(*path, "questions", "task")] = (*path, "benchmark", "inspect")
    for name, settings in filled.items():
        given = section.setdefault(name, {})
        for key, value in settings.items() if isinstance(given, dict) else ():
            given.setdefault(key, value)
            document.origins.setdefault((*path, name, key), (*path, "benchmark"))


def _lm_eval_sections(
    document: Document, benchmark: dict[str, Any], chosen: object, at: KeyPath
) -> dict[str, dict[str, object]]:
    """Questions and grader, both functions, for a task of lm-evaluation-harness; `chosen` selects questions."""
    for key in benchmark.keys() - LmEvalConfig.model_fields.keys():
        hint = f"remove it; its keys are {', '.join(LmEvalConfig.model_fields)}"
        document.refuse((*at, key), "is not a key of an lm_eval benchmark", hint)
    options = {"task": benchmark["lm_eval"], **{key: value for key, value in benchmark.items() if key != "lm_eval"}}
    asking = {name: value for name, value in options.items() if name != "metric"}
    if isinstance(chosen, dict) and "limit" in chosen and not chosen.get("shuffle") and not chosen.get("filter"):
        asking["limit"] = chosen["limit"]  # no more prompts than necessary
    return {
        "questions": {"function": LM_EVAL_ROWS, "options": asking, "fields": {"metadata": ["doc"]}},
        "grader": {
            "kind": "python",
            "function": LM_EVAL_GRADE,
            "options": options,
            "key_is_answer": False,
        },
    }


def _require_unit(document: Document) -> None:
    """Refuse a time limit without a unit, which may be meant in hours."""
    limit = document.value(("budget", "wall_time"))
    if isinstance(limit, int | float):
        as_seconds = f"{plain_number(limit, 10, grouped=False)}s"
        write = f"{as_seconds}, or " if limit > 0 and DURATION.fullmatch(as_seconds) else ""
        document.refuse(("budget", "wall_time"), "must have a unit", f"write {write}a time such as 2h30m")


def _merge_over(
    document: Document, general: dict[str, Any], override: dict[str, Any], source: KeyPath, path: KeyPath
) -> dict[str, Any]:
    result = dict(override)
    for key, value in general.items():
        if key not in override:
            result[key] = copy.deepcopy(value)
            document.origins[(*path, key)] = (*source, key)
        elif key in MERGED and isinstance(value, dict) and isinstance(override[key], dict):
            result[key] = _merge_over(document, value, override[key], (*source, key), (*path, key))
    return result
