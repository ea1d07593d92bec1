"""Old names of keys: allowed in files for one more version, and in stored runs forever."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from adaptive_eval.config.problems import KeyPath
from adaptive_eval.core.optimal import OPTIMAL
from adaptive_eval.core.registry import RETIRED

OLD_PACES = {"cost": "answers", "balanced": "time", "soon": "time", "servers": "time", "batches": "answers"}
"""Old values of `trials.favour`, with the closest ones of today."""
OLD_NAMES = {("trials", "favour"): OLD_PACES, ("stopping", "rule"): dict.fromkeys(RETIRED, OPTIMAL.name)}
RULE_OPTIONS: KeyPath = ("stopping", "rule", "options")
MOVED: Mapping[KeyPath, KeyPath] = {
    ("seeds",): ("trials", "seeds"),
    ("trial_seeds",): ("trials", "seeds"),
    ("sampling", "seed"): ("seed",),
    ("trials", "epochs"): ("trials", "max"),
    ("concurrency", "concurrency"): ("concurrency", "in_flight"),
    ("benchmark", "limit"): ("questions", "limit"),
    ("allocation", "policy"): ("trials", "policy"),
    ("allocation", "lookahead"): ("trials", "lookahead"),
    **{("stopping", option): (*RULE_OPTIONS, option) for option in ("threshold", "epsilon", "worth")},
    ("stop_on_alarm",): ("stopping", "on_alarm"),
    ("pool",): ("servers", "pool"),
    ("sites",): ("servers", "sites"),
}
"""Keys that were moved to another path."""
GONE_SECTIONS = ("allocation", "tracking")
"""Sections all of whose keys were moved elsewhere."""
OLD_SHORT_FORMS = {"allocation": "policy"}
OLD_PLUG_INS = {"allocation.policy": "trials.policy"}
"""Old names of plug-ins in stored runs."""
PRESET: Mapping[KeyPath, object] = {
    ("stopping", "rule"): "published",
    ("stopping", "prior"): "uniform",
    ("trials", "policy"): "unresolved_pairs",
    ("trials", "lookahead"): 0,
    ("trials", "favour"): "answers",
}
"""The settings of `preset: published`."""
DONE_IS_TOLD = "`notify` with `on: [done]` runs a command when a model is done"
TRACKED = "`adaptive-eval track RUN` beside the run follows it while it goes on"
POSTED = "use `notify.command` with a program such as curl"
AGAINST_TRIALS = ("against", "trials")
LABELS_BY_HAND = "`adaptive-eval label RUN --from FILE` takes labels from a file"
WITHOUT_EFFECT: Mapping[KeyPath, str] = {
    ("labels",): LABELS_BY_HAND,
    ("report", "labels"): LABELS_BY_HAND,
    **{(section, name): TRACKED for section in ("tracking", "report") for name in ("wandb", "mlflow")},
    ("on_settled",): DONE_IS_TOLD,
    ("servers", "on_done"): DONE_IS_TOLD,
    ("notify", "webhook"): POSTED,
    ("notify", "webhook_env"): POSTED,
    ("notify", "stalled_after"): "an alarm tells of a model that gives nothing but failures",
    ("trials", "hour_is_worth"): "auto goes by what you pay for",
    ("stopping", "futility"): "every rule gives up comparisons that would hardly be decided",
    ("allocation", "growth"): "a round has one trial a question",
    ("sites", "batch"): "messages are as large as they should be",
    ("sites", "moment"): "messages wait as long as they should",
    ("concurrency", "steer"): "servers that report their load are never sent more than they can use",
    ("sampling", "seed"): "it is one for the whole run",
    AGAINST_TRIALS: "all answers of the model in that run are used",
    **dict.fromkeys(
        (("store", name) for name in ("answers", "ledger", "patience")), "the database of a run is in its directory"
    ),
}
OF_RUN: Mapping[KeyPath, KeyPath | None] = {**dict.fromkeys(WITHOUT_EFFECT), **MOVED}
OF_ENTRY: Mapping[KeyPath, KeyPath | None] = {
    ("benchmark", "limit"): ("questions", "limit"),
    AGAINST_TRIALS: None,
    ("sampling", "seed"): None,
    ("concurrency", "steer"): None,
    ("concurrency", "concurrency"): ("concurrency", "in_flight"),
}
"""Old keys within a model, one of several benchmarks, or a judge."""
OPPONENT = "opponent"
"""A former key, still in stored runs, and the folder of a run with the answers that its judge compared with."""
AGE = ("trials", "hour_is_worth")
"""A former key, in every run from when there were five paces."""
RAN_AHEAD = {"cost": 0, "soon": 0, "balanced": 60, "time": 360}
"""Trials of a model that ran ahead of a look at old paces, with all models in step."""
MOST_AHEAD = 0.15


def old_keys(tree: Mapping[str, Any]) -> Iterator[tuple[KeyPath, KeyPath | None]]:
    """The old keys in a configuration with their new paths; None for those without effect."""
    for path, section in _sections(tree):
        for old, new in (OF_ENTRY if path else OF_RUN).items():
            if is_given(section, old):
                yield (*path, *old), None if new is None else (*path, *new)


def is_given(tree: object, path: KeyPath) -> bool:
    """Whether there is a value at the path."""
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return False
        tree = tree[key]
    return True


def _sections(tree: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    """The paths and mappings in which old keys may occur: the whole configuration, models, benchmarks and judges."""
    grader = tree.get("grader")
    panel = grader.get("panel") if isinstance(grader, dict) else None
    yield (), tree
    yield ("grader",), grader
    lists = {("models",): tree.get("models"), ("benchmarks",): tree.get("benchmarks"), ("grader", "panel"): panel}
    for path, listed in lists.items():
        for number, entry in enumerate(listed if isinstance(listed, list) else ()):
            yield (*path, number), entry


def move(tree: Any, old: KeyPath, new: KeyPath | None) -> None:
    """Move the value at the old path to the new one, or remove it."""
    value = _parent_section(tree, old).pop(old[-1])
    section = None if new is None or value is None else _parent_section(tree, new)
    if new is not None and isinstance(section, dict):
        section[new[-1]] = value
    if old[0] in GONE_SECTIONS and not tree[old[0]]:
        del tree[old[0]]


def expand_preset(tree: dict[str, Any]) -> None:
    """Replace `preset: published` by its settings, except for those that are given."""
    if tree.get("preset") == "published":
        del tree["preset"]
        for path, value in PRESET.items():
            section = _parent_section(tree, path)
            if isinstance(section, dict):
                section.setdefault(path[-1], value)


def _parent_section(tree: Any, path: KeyPath) -> Any:
    """The mapping with the last key of a path; missing sections on the way are created."""
    for depth, key in enumerate(path[:-1], start=1):
        if isinstance(tree, dict) and path[:depth] == RULE_OPTIONS[:-1] and not isinstance(tree.get(key), dict):
            tree[key] = {"use": tree.get(key) or OPTIMAL.name}
        elif isinstance(tree, dict) and tree.get(key) is None:
            tree[key] = {}
        tree = tree[key]
    return tree


def upgrade_sections(sections: Mapping[str, Any], questions: int) -> Mapping[str, Any]:
    """Convert the sections of a stored run to today's names; a run with models in step keeps its rounds."""
    sections = copy.deepcopy(dict(sections))
    for old, new in [keys for keys in old_keys(sections) if keys[0] != AGE]:
        move(sections, old, new)
    for _, section in _sections(sections):
        if is_given(section, ("against", "run")) and section["against"]["run"] is None:
            section["against"]["run"] = OPPONENT
    sections = {
        name: section
        for name, section in sections.items()
        if name not in ("preset", OPPONENT) and not (name in GONE_SECTIONS and section in (None, {}))
    }
    if isinstance(sections.get("notify"), dict):
        sections["notify"] = _told_by_command(sections["notify"])
    trials = sections.get("trials")
    if not is_given(sections, AGE) or not isinstance(trials, dict):
        return sections
    was, most = str(trials.get("favour")), trials.get("max")
    trials = {key: value for key, value in trials.items() if key != "hour_is_worth"}
    if was in RAN_AHEAD:
        share = MOST_AHEAD * most if isinstance(most, int) else 0.0
        ahead = round(min(RAN_AHEAD[was] / max(questions, 1), share))
        trials |= {"favour": "answers", "lookahead": ahead if trials.get("lookahead") is None else trials["lookahead"]}
    elif was in OLD_PACES:
        trials["favour"] = OLD_PACES[was]
    return {**sections, "trials": trials}


def _told_by_command(notify: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The section of a stored run without the events and receivers of earlier versions; None if nothing is left."""
    on = notify.get("on")
    on = [event for event in on if event != "stall"] if isinstance(on, list) else on
    return None if notify.get("command") is None or not on else {**notify, "on": on}
