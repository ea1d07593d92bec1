"""What the results of a run say it is about."""

from collections.abc import Sequence

from adaptive_eval.config.run import RunConfig
from adaptive_eval.endpoints.wire import sent_sampling
from adaptive_eval.questions import Question
from adaptive_eval.results import Subject


def subject_of(config: RunConfig, questions: Sequence[Question], created: float) -> Subject:
    """The subject of a run that was begun at `created`, in seconds since 1970."""
    return Subject(
        name=config.name,
        models=tuple(model.name for model in config.models),
        questions=tuple(question.id for question in questions),
        sampled=tuple(model.sampling.temperature != 0.0 for model in config.models),
        created=created,
        decisions=config.stated(),
        sampling=tuple(sent_sampling(model, model.sampling) for model in config.models),
    )
