"""What a configuration leaves unsaid, put into words: short forms, aliases, and what models take over from the run.

After this every section is a mapping, and every model has its own sampling, prompt and concurrency, complete. Where
something was copied, the document remembers from where, so that problems are told of the place that people wrote.
"""

import copy
from collections.abc import Mapping
from typing import Any

from adaptive_eval.config.document import Document
from adaptive_eval.config.problems import KeyPath, Problem

SHORT_FORMS = {
    "questions": "path",
    "prompt": "template",
    "grader": "kind",
    "rubric": "name",
    "objective": "kind",
    "stopping": "rule",
    "allocation": "policy",
    "store": "folder",
    "concurrency": "concurrency",
}
"""Sections that may be written as one value, and the key that it stands for: `objective: best`."""

ALIASES = {("trials", "epochs"): ("trials", "max")}
INHERITED = ("sampling", "prompt", "concurrency")
"""Sections that a model has too, key by key over those of the run."""
MERGED = ("extra_body", "extra_headers")
"""Mappings within them that are merged key by key in their turn."""

SIMULATED_URL = "http://127.0.0.1/v1"
"""Stands for a server that the run starts, the simulator or another, whose port is not known before."""
BASE_URL = "OPENAI_BASE_URL"
"""The variable that holds the address of every model without one."""


def expand_short_forms(document: Document) -> None:
    """`objective: best` is `objective: {kind: best}`."""
    _expand(document, document.tree, ())
    models = document.tree.get("models")
    for number, model in enumerate(models if isinstance(models, list) else []):
        if isinstance(model, dict):
            _expand(document, model, ("models", number))


def _expand(document: Document, section: dict[str, Any], path: KeyPath) -> None:
    for name, key in SHORT_FORMS.items():
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
        launched = model.get("launch") is not None
        if "base_url" in model:
            if launched:
                rule, mend = "is not known before the server is launched", "remove base_url, or launch"
                document.problems.append(Problem(path, rule, mend, place=document.place(path)))
        elif launched or model.get("simulate") is True:
            model["base_url"] = SIMULATED_URL
        elif url := environment.get(BASE_URL):
            model["base_url"] = url
            document.places[path] = BASE_URL
            document.raw[path] = f"${{{BASE_URL}}}"
            document.variables[path] = (BASE_URL,)


def spell_out(document: Document, name: str) -> None:
    """Fill in what is left unsaid; `name` is the run's, where it has none."""
    tree = document.tree
    _resolve_aliases(document)
    if "name" not in tree:
        tree["name"] = name
        document.places[("name",)] = "the file's name"
    models = tree.get("models")
    for number, model in enumerate(models if isinstance(models, list) else []):
        if isinstance(model, dict):
            path: KeyPath = ("models", number)
            for section in INHERITED:
                _inherit(document, model, section, path)
            launch = model.get("launch")
            for source, values in ((("launch", "model"), launch), (("name",), model)):
                if "model" not in model and isinstance(values, dict) and source[-1] in values:
                    model["model"] = values[source[-1]]
                    document.origins[(*path, "model")] = (*path, *source)


def _resolve_aliases(document: Document) -> None:
    for alias, real in ALIASES.items():
        section = document.tree.get(alias[0])
        if not isinstance(section, dict) or alias[1] not in section:
            continue
        if real[1] in section:
            rule = f"is another name for {real[1]}, which is given too"
            document.problems.append(Problem(alias, rule, "keep one of the two", place=document.place(alias)))
        else:
            document.origins[real] = alias
        section.setdefault(real[1], section.pop(alias[1]))


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
