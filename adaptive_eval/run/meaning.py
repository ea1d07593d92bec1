"""What the trials of a run mean: the part of the configuration that a resume may not change.

A grader that is a function of the user's own is part of it with the source files that it consists of. The rest may
change and is recorded: where the models are served, how fast they are asked, time limits, what is decided and how
surely, which trials come next, and what it may cost. So may rules and policies of the user's own: looks are taken anew
on a resume, and what was changed in their source is recorded as any other setting that decides.
"""

import json
from dataclasses import asdict
from typing import Any, cast

from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.graders.custom import Python
from adaptive_eval.plugins import fingerprints, first_words
from adaptive_eval.questions.types import Question
from adaptive_eval.store import Json, RunHeader
from adaptive_eval.store.meaning import SOURCES

GRADER_WORKINGS = {"timeout", "workers", "memory"}
"""How a grader is run; not what it finds, since one that fails gives no grade."""

SAMPLING_WORKINGS = {"timeout", "extra_headers"}

PLUG_INS = "plug_ins"
"""Beside the sections of a stored configuration: what is known of the plug-ins that decide, for those who read the run,
who load none."""


def run_header(config: RunConfig, questions: tuple[Question, ...]) -> RunHeader:
    """What the store keeps of a configuration; defaults are no part of the meaning, so a new option changes no run."""
    return RunHeader(
        name=config.name,
        configuration=config.model_dump(mode="json") | _plug_ins(config),
        meaning={
            "seed": config.seed,
            "seeds": config.seeds,
            "grader": config.grader.model_dump(mode="json", exclude=GRADER_WORKINGS, exclude_defaults=True)
            | {"kind": config.grader.kind}
            | _sources(config),
            "rubric": config.rubric.model_dump(mode="json", exclude_defaults=True),
        },
        models={model.name: _model_meaning(model) for model in config.models},
        questions={question.id: _question_body(question) for question in questions},
    )


def _sources(config: RunConfig) -> dict[str, object]:
    """The source files of a grader of the user's own."""
    if not isinstance(config.grader, Python):
        return {}
    return {SOURCES: fingerprints(config.grader.function, config.folder)}


def _plug_ins(config: RunConfig) -> dict[str, object]:
    """Of each plug-in that decides: its name, what it says of itself, and its source files."""
    told = {
        key: {"name": name, "says": first_words(name, config.folder), "sources": fingerprints(name, config.folder)}
        for key, name in config.plug_ins.items()
    }
    return {PLUG_INS: told} if told else {}


def _model_meaning(model: ModelConfig) -> dict[str, object]:
    return {
        "model": model.model,
        "api": model.api,
        "simulate": model.simulate,
        "prompt": model.prompt.model_dump(mode="json", exclude_defaults=True),
        "sampling": model.sampling.model_dump(mode="json", exclude=SAMPLING_WORKINGS, exclude_defaults=True),
    }


def _question_body(question: Question) -> dict[str, object]:
    body = asdict(question)
    del body["id"]
    body["choices"] = list(question.choices)
    return body


def stored_config(header: RunHeader) -> RunConfig:
    """The configuration with which a stored run was started last."""
    sections = {name: section for name, section in header.configuration.items() if name != PLUG_INS}
    return RunConfig.model_validate_json(json.dumps(sections))


def stored_words(header: RunHeader) -> dict[str, str]:
    """What the plug-ins of a stored run say of themselves, where that was kept; they are not loaded for it."""
    kept = header.configuration.get(PLUG_INS)
    told = kept.items() if isinstance(kept, dict) else ()
    says = {str(key): one.get("says") for key, one in told if isinstance(one, dict)}
    return {key: text for key, text in says.items() if isinstance(text, str)}


def stored_questions(header: RunHeader) -> tuple[Question, ...]:
    """The questions that `run_header` stored."""
    return tuple(stored_question(key, body) for key, body in header.questions.items())


def stored_question(key: str, body: Json) -> Question:
    """The question that `run_header` stored."""
    values: dict[str, Any] = {**body, "choices": tuple(cast(list[str], body["choices"]))}
    return Question(id=key, **values)
