"""What a configuration leaves unsaid, put into words: short forms, and what models take over from the run.

After this every section is a mapping, and every model has its own sampling, prompt and concurrency, complete. Where
something was copied, the document remembers from where, so that problems are told of the place that people wrote.

Settings from the command line, `--set key.path=value`, go over those of the file. A path has dots between keys and
numbers for the entries of a list (`models.0.name` or `models[0].name`); a value is YAML.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from warnings import warn

from adaptive_eval.config.old_names import (
    OLD_NAMES,
    OLD_SHORT_FORMS,
    WITHOUT_EFFECT,
    expand_preset,
    is_given,
    move,
    old_keys,
)
from adaptive_eval.config.problems import KeyPath, shown_value, written_path
from adaptive_eval.questions.benchmark import LmEvalConfig

if TYPE_CHECKING:
    from adaptive_eval.config.document import Document

PATH = re.compile(r"[\w-]+(?:\.[\w-]+|\[\d+\])*")
PART = re.compile(r"[\w-]+")


def apply_override(document: Document, override: str, environment: Mapping[str, str]) -> None:
    """Put one `key.path=value` into a document, or note there what is wrong with it."""
    from adaptive_eval.config.document import add_yaml  # here, since the schema needs this module, and no YAML

    name, equals, text = override.partition("=")
    name = name.strip()
    if not equals or not PATH.fullmatch(name):
        mend = "write --set trials.max=40, or --set models.0.sampling.temperature=0.7"
        document.refuse((), "needs a path and a value", mend, repr(name), "--set")
        return
    place = f"--set {name}"
    keys = PART.findall(name)
    path = _resolved(document, keys, place)
    if path is None:
        return
    document.forget(path)
    made = (path[:cut] for cut in range(1, len(path)) if document.value(path[:cut]) is None)  # with it
    document.places |= dict.fromkeys((*made, path), place)
    value = add_yaml(document, text, path, environment, place)
    _parent(document, path)[path[-1]] = value


def _resolved(document: Document, keys: list[str], place: str) -> KeyPath | None:
    """The keys with numbers where the document has lists; None, and a problem, where they lead nowhere."""
    path: KeyPath = ()
    value: Any = document.tree
    for key in keys:
        if isinstance(value, list):
            if not key.isdecimal() or int(key) >= len(value):
                mend = f"{written_path(path)} has {len(value)} entries, from 0 to {len(value) - 1}"
                document.refuse((*path, key), "is no entry of the list", mend, place=place)
                return None
            path, value = (*path, int(key)), value[int(key)]
        elif isinstance(value, dict) or value is None:
            path, value = (*path, key), (value or {}).get(key)
        else:
            document.refuse(path, "has no keys to set", f"set {written_path(path)} itself", shown_value(value), place)
            return None
    return path


def _parent(document: Document, path: KeyPath) -> Any:
    """The mapping or list that holds the value at `path`; mappings that are missing on the way are made."""
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
    "store": "folder",
    "concurrency": "in_flight",
    "batch": "kind",
}
"""Sections that may be written as one value, and the key that it stands for: `objective: best`."""

STORED_SECTIONS = {"opponent"}
"""What a run that is prepared has apart, and no file may have."""
LM_EVAL = "adaptive_eval.lm_eval.tasks"
INHERITED = ("sampling", "prompt", "concurrency")
"""Sections that a model has too, key by key over those of the run."""
MERGED = ("extra_body", "extra_headers")
"""Mappings within them that are merged key by key in their turn."""

SIMULATED_URL = "http://127.0.0.1/v1"
"""Stands for a server that the run starts, the simulator or another, whose port is not known before, and for that of a
recorded model, which has none; so has one that Inspect reaches."""
BASE_URL = "OPENAI_BASE_URL"
"""The variable that holds the address of every model without one."""


def expand_short_forms(document: Document) -> None:
    """`objective: best` is `objective: {kind: best}`."""
    _expand(document, document.tree, ())
    for name in ("models", "benchmarks"):
        listed = document.tree.get(name)
        for number, entry in enumerate(listed if isinstance(listed, list) else []):
            if isinstance(entry, dict):
                _expand(document, entry, (name, number))


def _expand(document: Document, section: dict[str, Any], path: KeyPath) -> None:
    for name, key in {**SHORT_FORMS, **OLD_SHORT_FORMS}.items():
        value = section.get(name)
        if name in section and value is not None and not isinstance(value, dict | list):
            section[name] = {key: value}
            document.origins[(*path, name, key)] = (*path, name)


def fill_in_addresses(document: Document, environment: Mapping[str, str]) -> None:
    """Give each model that has no `base_url` that of a server the run starts, or that of the environment."""
    models = document.tree.get("models")
    for number, model in enumerate(models if isinstance(models, list) else []):
        if not isinstance(model, dict):
            continue
        path: KeyPath = ("models", number, "base_url")
        launched, recorded = model.get("launch") is not None, model.get("recorded") is not None
        inspected = model.get("inspect") is not None
        if "base_url" in model:
            if recorded:
                refused = "is of no use to a recorded model, which is never asked", "remove base_url, or recorded"
            elif inspected:
                refused = "is of no use to a model that Inspect reaches", "write `args: {base_url: ...}`"
            elif launched:
                refused = "is not known before the server is launched", "remove base_url, or launch"
            else:
                continue
            document.refuse(path, *refused)
        elif launched or recorded or inspected or model.get("simulate") is True:
            model["base_url"] = SIMULATED_URL
        elif url := environment.get(BASE_URL):
            model["base_url"] = url
            document.places[path] = BASE_URL
            document.raw[path] = f"${{{BASE_URL}}}"
            document.variables[path] = (BASE_URL,)


def spell_out(document: Document, name: str) -> None:
    """Fill in what is left unsaid; `name` is the run's, where it has none and this is one."""
    tree = document.tree
    for section in STORED_SECTIONS & tree.keys():
        del tree[section]
        mend = "put the model among `models`, and name it as in `grader.against: {model: NAME}`"
        document.refuse((section,), "is written by runs, and is no section of a configuration", mend)
    _expand_harness(document, tree, ())
    _join_benchmarks(document)
    _rename_old(document)
    _tell_unit(document)
    if name and "name" not in tree:
        tree["name"] = name
        document.places[("name",)] = "the file's name"
    models = tree.get("models")
    for number, model in enumerate(models if isinstance(models, list) else []):
        if isinstance(model, dict):
            path: KeyPath = ("models", number)
            for section in INHERITED:
                _inherit(document, model, section, path)
            launch = model.get("launch")
            for source, values in ((("launch", "model"), launch), (("inspect",), model), (("name",), model)):
                if "model" not in model and isinstance(values, dict) and source[-1] in values:
                    model["model"] = values[source[-1]]
                    document.origins[(*path, "model")] = (*path, *source)


def _join_benchmarks(document: Document) -> None:
    """Take the questions and the graders out of the entries of `benchmarks`, into one section each by their names."""
    tree, listed = document.tree, document.tree.get("benchmarks")
    if not isinstance(listed, list):
        return
    shared = tree.pop("grader", None)
    for section in ("questions", "benchmark"):
        if tree.pop(section, None) is not None:
            rule, mend = "may not stand beside benchmarks", "give it to the entries of `benchmarks`, or remove these"
            document.refuse((section,), rule, mend)
    joined: dict[str, dict[str, Any]] = {"questions": {}, "grader": {}}
    for number, entry in enumerate(listed):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            continue
        path: KeyPath = ("benchmarks", number)
        _expand_harness(document, entry, path)
        if shared is not None and "grader" not in entry:
            entry["grader"] = copy.deepcopy(shared)
            document.origins[(*path, "grader")] = ("grader",)
        for section, found in joined.items():
            _take_out(document, entry, path, section, found)
    worlds = {own.get("world") for own in joined["questions"].values() if isinstance(own, dict)}
    tree["questions"] = {"benchmarks": joined["questions"]}
    if len(worlds) == 1 and None not in worlds:
        tree["questions"]["world"] = worlds.pop()
    elif worlds - {None}:
        rule, mend = "has a world of the simulator, which serves one", "give all benchmarks questions of one world"
        document.refuse(("benchmarks",), rule, mend)
    tree["grader"] = {"kind": "by_benchmark", "graders": joined["grader"]}


INNER = {"questions": "benchmarks", "grader": "graders"}
"""Where the joined sections have those of each benchmark."""


def _take_out(document: Document, entry: dict[str, Any], path: KeyPath, section: str, found: dict[str, Any]) -> None:
    """Move a section of one benchmark to those of all."""
    if section not in entry:
        document.refuse((*path, section), "must be given", f"add `{section}:`", place=document.place(path))
        return
    own = found[entry["name"]] = entry.pop(section)
    document.origins[(section, INNER[section], entry["name"])] = (*path, section)
    if section == "grader" and isinstance(own, dict) and (own.get("kind") == "verifier" or own.get("against")):
        key = "against" if own.get("against") else "kind"
        rule = "cannot grade one of several benchmarks: a verifier, or a judge that compares answers, needs a run alone"
        mend = "use a key, a function, or a judge that gives verdicts or scores; or run this benchmark by itself"
        document.refuse((*path, "grader", key), rule, mend, str(own[key]))


def _expand_harness(document: Document, section: dict[str, Any], path: KeyPath) -> None:
    """Take questions and grader from `benchmark`, a task of another harness, where there is one."""
    benchmark = section.get("benchmark")
    if not isinstance(benchmark, dict):
        return
    if "lm_eval" in benchmark:
        del section["benchmark"]
        filled = _of_lm_eval(document, benchmark, (*path, "benchmark"))
    else:
        task = {"task": benchmark["inspect"]} if isinstance(benchmark.get("inspect"), str) else {}
        filled = {"questions": task, "grader": {"kind": "inspect"} if "grader" not in section else {}}
        document.origins[(*path, "questions", "task")] = (*path, "benchmark", "inspect")
    for name, settings in filled.items():
        given = section.setdefault(name, {})
        for key, value in settings.items() if isinstance(given, dict) else ():
            given.setdefault(key, value)
            document.origins.setdefault((*path, name, key), (*path, "benchmark"))


def _of_lm_eval(document: Document, benchmark: dict[str, Any], at: KeyPath) -> dict[str, dict[str, object]]:
    """A task of lm-evaluation-harness is a source of questions and a grader, which are functions."""
    for key in benchmark.keys() - LmEvalConfig.model_fields.keys():
        mend = f"remove it; its keys are {', '.join(LmEvalConfig.model_fields)}"
        document.refuse((*at, key), "is no key of such a benchmark", mend)
    options = {"task": benchmark["lm_eval"], **{key: value for key, value in benchmark.items() if key != "lm_eval"}}
    asking = {name: value for name, value in options.items() if name != "metric"}
    grading = {name: value for name, value in options.items() if name != "limit"}
    return {
        "questions": {"function": f"{LM_EVAL}:rows", "options": asking, "fields": {"metadata": ["doc"]}},
        "grader": {
            "kind": "python",
            "function": f"{LM_EVAL}:grade",
            "options": grading,
            "key_is_answer": False,
            "workers": 1,
            "timeout": 60,
        },
    }


def _rename_old(document: Document) -> None:
    """Take the names that earlier versions had, and say what they are called now."""
    moved = dict[KeyPath, str]()
    for old, new in list(old_keys(document.tree)):
        if new is not None and is_given(document.tree, new):
            document.refuse(old, f"is called {written_path(new)} now, which is given too", "remove it")
        elif new is None:
            told = f"{written_path(old)} has no effect any more, remove it: {WITHOUT_EFFECT[old[-2:]]}"
            warn(told, FutureWarning, 2)
        else:
            document.origins[new] = old
            moved[new] = f"{written_path(old)} is called {written_path(new)} now"
        move(document.tree, old, new)
    if document.tree.get("preset") == "published":
        expand_preset(document.tree)
        told = (
            "preset is written as `stopping: {rule: published, prior: uniform}` and `trials: {policy: unresolved_pairs"
        )
        warn(f"{told}, lookahead: 0, favour: answers}}` now; the next version refuses it", FutureWarning, 2)
    for (section, key), names in OLD_NAMES.items():
        settings = document.tree.get(section)
        given = settings.get(key) if isinstance(settings, dict) else None
        was, options = (given.get("use"), given.get("options")) if isinstance(given, dict) else (given, None)
        if isinstance(settings, dict) and isinstance(was, str) and was in names:
            settings[key] = now = names[was]
            moved = {path: told for path, told in moved.items() if path[:2] != (section, key)}
            lost = f", without {', '.join(map(str, options))}" if isinstance(options, dict) and options else ""
            told = f"{section}.{key}: {was} is gone, {now} is in its place{lost}"
            warn(f"{told}; write this, the next version refuses it", FutureWarning, 2)
    for told in moved.values():
        warn(f"{told}; write this, the next version refuses the old name", FutureWarning, 2)


def _tell_unit(document: Document) -> None:
    """Say in which unit a limit is taken that is written without one."""
    limit = document.value(("budget", "wall_time"))
    if isinstance(limit, int | float):
        told = f"budget.wall_time: {limit:g} is taken for {limit:g} seconds; write {limit:g}s, or a time such as 2h30m"
        warn(f"{told}, the next version refuses a number without a unit", FutureWarning, 2)


def _inherit(document: Document, model: dict[str, Any], section: str, path: KeyPath) -> None:
    """Give a model the run's section, with its own keys over it."""
    general, own = document.tree.get(section), model.get(section)
    if isinstance(general, dict) and (own is None or isinstance(own, dict)):
        model[section] = _overlaid(document, general, own or {}, (section,), (*path, section))


def _overlaid(
    document: Document, general: dict[str, Any], own: dict[str, Any], source: KeyPath, path: KeyPath
) -> dict[str, Any]:
    result = dict(own)
    for key, value in general.items():
        if key not in own:
            result[key] = copy.deepcopy(value)
            document.origins[(*path, key)] = (*source, key)
        elif key in MERGED and isinstance(value, dict) and isinstance(own[key], dict):
            result[key] = _overlaid(document, value, own[key], (*source, key), (*path, key))
    return result
