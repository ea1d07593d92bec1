"""What the trials of a run mean: the part of the configuration that a resume may not change.

The rest may change and is recorded: where the models are served, how fast they are asked, time limits, what is decided
and how surely, which trials come next, and what it may cost.
"""

import json
from dataclasses import asdict
from typing import Any, cast

from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.questions.types import Question
from adaptive_eval.store import Json, RunHeader

GRADER_WORKINGS = {"timeout", "workers", "memory"}
"""How a grader is run; not what it finds, since one that fails gives no grade."""

SAMPLING_WORKINGS = {"timeout", "extra_headers"}


def run_header(config: RunConfig, questions: tuple[Question, ...]) -> RunHeader:
    """What the store keeps of a configuration; defaults are no part of the meaning, so a new option changes no run."""
    return RunHeader(
        name=config.name,
        configuration=config.model_dump(mode="json"),
        meaning={
            "seed": config.seed,
            "seeds": config.seeds,
            "grader": config.grader.model_dump(mode="json", exclude=GRADER_WORKINGS, exclude_defaults=True)
            | {"kind": config.grader.kind},
            "rubric": config.rubric.model_dump(mode="json", exclude_defaults=True),
        },
        models={model.name: _model_meaning(model) for model in config.models},
        questions={question.id: _question_body(question) for question in questions},
    )


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
    return RunConfig.model_validate_json(json.dumps(header.configuration))


def stored_questions(header: RunHeader) -> tuple[Question, ...]:
    """The questions that `run_header` stored."""
    return tuple(stored_question(key, body) for key, body in header.questions.items())


def stored_question(key: str, body: Json) -> Question:
    """The question that `run_header` stored."""
    values: dict[str, Any] = {**body, "choices": tuple(cast(list[str], body["choices"]))}
    return Question(id=key, **values)
