"""Checks of settings that are incompatible with drawn questions (`trials.draw`)."""

from collections.abc import Iterator

from adaptive_eval.config.decisions import ObjectiveConfig, StoppingConfig, TrialsConfig
from adaptive_eval.config.listed_models import recorded_models
from adaptive_eval.config.problems import Problem
from adaptive_eval.config.reports import ReportConfig
from adaptive_eval.config.run import ModelConfig, PriorEvidenceConfig, RunConfig
from adaptive_eval.core.registry import OBJECTIVES, RULES
from adaptive_eval.core.settings import LEAST_DRAWN
from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.questions.types import QuestionsConfig

WORTH_DRAWING = 2000
"""Number of questions from which drawing is suggested. After one trial of each of 2,000 questions, two models that
differ on a third of them are told apart half of the time if their scores differ by 2.11 sqrt(1/3) / sqrt(2000), or 2.7
points."""


def may_draw(config: RunConfig) -> bool:
    """Whether trials.draw could be set without a conflict."""
    trials = config.trials.model_copy(update={"draw": LEAST_DRAWN, "favour": "answers"})
    problems = (
        *drawn_problems(trials, config.objective, config.stopping),
        *drawn_beginning_problems(trials, config.models, config.prior_evidence, config.report),
        *drawn_rubric_problems(trials, config.rubric),
    )
    return config.trials.draw is None and not problems


def drawn_problems(trials: TrialsConfig, objective: ObjectiveConfig, stopping: StoppingConfig) -> Iterator[Problem]:
    """Check that decisions compare the averages of asked models, in rounds of one block."""
    if trials.draw is None:
        return
    if trials.favour not in ("auto", "answers"):
        rule = "must be answers with trials.draw, which asks all models block by block"
        yield Problem(("trials", "favour"), rule, "remove it", trials.favour)
    entry = OBJECTIVES.get(str(objective.kind))
    if entry is not None and (entry.own_rule is not None or entry.name in ("threshold", "place")):
        rule = "must compare models that are all asked, since trials.draw compares their answers question by question"
        yield Problem(("objective", "kind"), rule, "change it, or remove trials.draw", entry.name)
    chosen = RULES.get(str(stopping.rule))
    if chosen is not None and chosen.estimator != "average":
        rule = "compares Bayes@N, which needs trials of all questions"
        yield Problem(("stopping", "rule"), rule, "change it, or remove trials.draw", chosen.name)
    if stopping.prior == "uniform":
        rule = "needs several trials of a question, and trials.draw asks each once"
        yield Problem(("stopping", "prior"), rule, "remove it, or trials.draw", stopping.prior)


def drawn_questions_problems(trials: TrialsConfig, questions: QuestionsConfig) -> Iterator[Problem]:
    """Check that questions are shuffled, since the first of them stand for all."""
    if trials.draw is not None and not questions.shuffle:
        rule = "must be true with trials.draw, whose first questions stand for all of them"
        yield Problem(("questions", "shuffle"), rule, "add `shuffle: true` to questions, or remove trials.draw")


def drawn_beginning_problems(
    trials: TrialsConfig,
    models: tuple[ModelConfig | None, ...],
    prior_evidence: PriorEvidenceConfig | None,
    report: ReportConfig,
) -> Iterator[Problem]:
    """Check that there are no outcomes of earlier runs, and no settings for several trials of a question."""
    if trials.draw is None:
        return
    rule = "cannot be combined with trials.draw, which begins with questions that no model was asked"
    if prior_evidence is not None:
        yield Problem(("prior_evidence",), rule, "remove it, or trials.draw")
    for number, _ in recorded_models(models):
        yield Problem(("models", number, "recorded"), rule, "remove it, or trials.draw")
    if trials.seeds == "coupled":
        rule = "must not be coupled with trials.draw, which compares models question by question"
        yield Problem(("trials", "seeds"), rule, "remove it, or trials.draw", trials.seeds)
    if report.metrics:
        rule = "cannot be combined with trials.draw: a metric needs several trials of every question"
        yield Problem(("report", "metrics"), rule, "remove it, or trials.draw")


def drawn_rubric_problems(trials: TrialsConfig, rubric: RubricConfig) -> Iterator[Problem]:
    """Check that no median lengths are fitted before the first look, when most questions have no answers."""
    if trials.draw is not None and rubric.fit == "opening" and rubric.looks_at_lengths:
        rule = "may not be opening with trials.draw and length_ratio: most questions are asked after the first look"
        mend = "give an earlier run that asked all of them, look at completion_tokens, or remove trials.draw"
        yield Problem(("rubric", "fit"), rule, mend, rubric.fit)
