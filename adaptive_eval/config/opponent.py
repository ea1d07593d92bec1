"""The opponent: a model of the run with whose answers a judge compares all others (`grader.against: {model: NAME}`).

It is asked before the others, so that all its answers are there when they are compared. It would tie with itself by
definition, so it is not ranked: a prepared run has it apart from its models.
"""

from collections.abc import Iterator, Sequence

from adaptive_eval.config.decisions import ObjectiveConfig
from adaptive_eval.config.listed_models import recorded_models
from adaptive_eval.config.problems import Problem, shown_value
from adaptive_eval.config.run import ModelConfig, PriorEvidenceConfig, RunConfig
from adaptive_eval.graders.comparing import AnswersOfModel
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.types import GraderOptions

LEVEL = 0.5
"""The score of the opponent compared with itself, by the default rubric of comparisons."""


def answers_of_model(grader: GraderOptions) -> AnswersOfModel | None:
    """The setting `grader.against`, if it names a model of this run."""
    against = grader.against if isinstance(grader, Judge) else None
    return against if isinstance(against, AnswersOfModel) and against.run is None else None


def opponent_trials(config: RunConfig) -> int:
    """The number of the opponent's answers to each question."""
    against = answers_of_model(config.grader)
    assert against is not None
    return config.trials.min if against.trials is None else against.trials


def with_opponent_apart(config: RunConfig) -> RunConfig:
    """The configuration with the opponent moved from `models` to `opponent`, if there is one."""
    against = answers_of_model(config.grader)
    if against is None or config.opponent is not None:
        return config
    (opponent,) = (model for model in config.models if model.name == against.model)
    others = tuple(model for model in config.models if model.name != against.model)
    return config.model_copy(update={"models": others, "opponent": opponent})


def with_opponent_among(config: RunConfig) -> RunConfig:
    """The configuration with the opponent among its models, as in files."""
    if config.opponent is None:
        return config
    return config.model_copy(update={"models": (*config.models, config.opponent), "opponent": None})


def ranked_names(names: Sequence[str], grader: GraderOptions) -> tuple[str, ...]:
    """The names of the models without the opponent's."""
    against = answers_of_model(grader)
    return tuple(name for name in names if against is None or name != against.model)


def opponent_problems(
    grader: GraderOptions, names: tuple[str, ...], models: tuple[ModelConfig | None, ...]
) -> Iterator[Problem]:
    """Check that the opponent is an asked model, and that no other model was compared with other answers."""
    against = answers_of_model(grader)
    if against is None:
        return
    if against.model not in names:
        mend = (
            f"the models are {', '.join(names)}; for one of an earlier run add its directory, as in "
            f"{{run: runs/earlier, model: {against.model}}}"
        )
        yield Problem(("grader", "against", "model"), "must be the name of a model", mend, shown_value(against.model))
    for _, model in recorded_models(models):
        if model.name == against.model:
            rule = "may not be a recorded model, which is never asked"
            mend = f"compare with its answers: {{run: {model.recorded}, model: {model.model}}}"
            yield Problem(("grader", "against", "model"), rule, mend, shown_value(against.model))
        else:
            rule = "may not stand beside recorded models, which were compared with other answers"
            mend = (
                f"compare with the answers that they were compared with, as in {{run: {model.recorded}/opponent, "
                f"model: {against.model}}}"
            )
            yield Problem(("grader", "against", "model"), rule, mend, model.name)


def _names_in(value: object) -> Iterator[str]:
    """The names in an option of an objective: one, or pairs of them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _names_in(part)


def opponent_objective_problems(grader: GraderOptions, objective: ObjectiveConfig) -> Iterator[Problem]:
    """Check that the objective does not name the opponent, which is not ranked."""
    against = answers_of_model(grader)
    if against is None:
        return
    named = [name for value in objective.options.values() for name in _names_in(value)]
    if against.model in named:
        rule = "may not name the model that all are compared with, which is not ranked"
        mend = f"ask which models are better than it: {{kind: threshold, value: {LEVEL}}}"
        yield Problem(("objective",), rule, mend, shown_value(against.model))


def opponent_prior_problems(grader: GraderOptions, prior_evidence: PriorEvidenceConfig | None) -> Iterator[Problem]:
    """Refuse prior evidence, whose outcomes are comparisons with other answers."""
    against = answers_of_model(grader)
    if against is not None and prior_evidence is not None:
        rule = "may not stand beside grader.against.model: its outcomes are of comparisons with other answers"
        yield Problem(("prior_evidence",), rule, "remove it")
