"""The sections that say what is to be decided, how surely, by which trials, and at what cost."""

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from adaptive_eval.graders.rubric import RubricConfig
from adaptive_eval.imports import SPECIFICATION
from adaptive_eval.sections import Count, Seconds, Section, Share, refuse

OBJECTIVES = {"top_k": "k", "baseline": "baseline", "pairs": "pairs", "precision": "half_width", "threshold": "value"}
"""The key that an objective needs, and no other may have."""
RULES = ("sequential", "zscore", "intervals", "anytime", "expected_loss")
POLICIES = ("weighted", "unresolved_pairs", "uniform", "leader")


class ObjectiveConfig(Section):
    """Which comparisons matter."""

    kind: Literal["ranking", "best", "top_k", "baseline", "pairs", "precision", "threshold"] = "ranking"
    """ranking: neighbours in the order; best: the leader against all others; top_k: the first k against the rest;
    baseline: all against one; pairs: those listed; precision: every score to a half-width; threshold: every score
    against a value."""
    k: int | None = Field(None, ge=1, validate_default=True)
    """How many models are wanted (top_k)."""
    baseline: str | None = Field(None, validate_default=True)
    """The name of the model that all others are compared with (baseline)."""
    gate: bool = False
    """Exit with code 6 when a model is found to be worse than the baseline, for continuous integration (baseline)."""
    pairs: tuple[tuple[str, str], ...] | None = Field(None, min_length=1, validate_default=True)
    """Pairs of model names (pairs)."""
    half_width: Share | None = Field(None, gt=0, validate_default=True)
    """Half the width that each model's 95% interval may have in the end, whatever `stopping.confidence` says: 0.02 or
    "2%" (precision)."""
    value: Share | None = Field(None, validate_default=True)
    """The score that each model is held against (threshold)."""

    @field_validator("k", "baseline", "pairs", "half_width", "value")
    @classmethod
    def _goes_with_the_kind(cls, given: object, info: ValidationInfo) -> object:
        kind = info.data.get("kind")
        wanted = OBJECTIVES.get(kind or "")
        if kind is not None and given is not None and info.field_name != wanted:
            owner = next(name for name, key in OBJECTIVES.items() if key == info.field_name)
            raise refuse(f"is only for the objective {owner}, not for {kind}", "remove it, or change objective.kind")
        if given is None and info.field_name == wanted:
            raise refuse(f"must be given for the objective {kind}", f"add `{wanted}:` to objective")
        return given

    @field_validator("gate")
    @classmethod
    def _a_gate_has_a_baseline(cls, gate: bool, info: ValidationInfo) -> bool:
        if gate and info.data.get("kind", "baseline") != "baseline":
            raise refuse("is only for the objective baseline", "remove it, or change objective.kind")
        return gate

    @field_validator("pairs")
    @classmethod
    def _two_models_each(cls, pairs: tuple[tuple[str, str], ...] | None) -> tuple[tuple[str, str], ...] | None:
        if same := [one for one, other in pairs or () if one == other]:
            raise refuse(f"may not compare {same[0]!r} with itself", "name two models")
        if pairs is not None and len({frozenset(pair) for pair in pairs}) < len(pairs):
            raise refuse("may not have a pair twice", "remove one of the two")
        return pairs


def _named(value: str, builtin: tuple[str, ...], what: str) -> str:
    if value not in builtin and not re.fullmatch(SPECIFICATION, value):
        raise refuse(f"must be a {what}: {', '.join(builtin)}", "or name one of your own as package.module:attribute")
    return value


class StoppingConfig(Section):
    """When a comparison is decided, and with what promise."""

    rule: str = "sequential"
    """sequential (holds at any number of looks), anytime (and without a horizon), zscore and intervals (as published:
    repeated looks break them), expected_loss (for `best`), or `package.module:attribute`."""
    confidence: Share = 0.95
    """One-sided confidence in an order: a wrong one is called with probability at most 1 - confidence, a winner among
    exact ties with at most twice that."""
    threshold: float | None = Field(None, gt=0)
    """The constant of `zscore`; default: the normal quantile of `confidence`, 1.645 at 0.95."""
    epsilon: Share | None = Field(None, gt=0)
    """The loss in score that `expected_loss` puts up with; default 0.0025."""
    delta: Share = Field(0.0, ge=0)
    """Scores within this of each other are as good as equal: 0.01 or "1%". Ties can then be certified."""
    futility: float | Literal[False] = 0.30
    """Give up a comparison whose chance of being settled by the horizon is below this times the share of the way there
    that is left; false: never. Higher is cheaper and calls fewer pairs; it makes no wrong calls."""
    familywise: Literal["none", "holm"] = "none"
    """holm: the promise holds for all comparisons of the run together, not for each."""
    prior: Literal["uniform", "self"] = "self"
    """Where variances come from: `self`, a prior centred at each model's own shares, is sharp and calibrated; `uniform`
    is that of the published Bayes@N, whose variances are too large where questions are nearly always or never right."""

    @field_validator("rule")
    @classmethod
    def _known_rule(cls, rule: str) -> str:
        return _named(rule, RULES, "rule")

    @field_validator("confidence")
    @classmethod
    def _more_than_a_guess(cls, confidence: float) -> float:
        if not 0.5 < confidence < 1.0:
            raise refuse("must lie between 0.5 and 1", "for 95 in a hundred write 0.95 or 95%")
        return confidence

    @field_validator("threshold", "epsilon")
    @classmethod
    def _goes_with_the_rule(cls, given: float | None, info: ValidationInfo) -> float | None:
        owner = {"threshold": "zscore", "epsilon": "expected_loss"}[str(info.field_name)]
        rule = info.data.get("rule", owner)
        if given is not None and rule in RULES and rule != owner:
            raise refuse(f"is only for the rule {owner}, not for {rule}", "remove it, or change stopping.rule")
        return given

    @field_validator("futility")
    @classmethod
    def _a_chance(cls, futility: float | Literal[False]) -> float | Literal[False]:
        if futility is not False and not 0.0 < futility < 1.0:
            raise refuse("must be a probability between 0 and 1", "write false for never")
        return futility

    @field_validator("familywise")
    @classmethod
    def _can_be_corrected(cls, familywise: str, info: ValidationInfo) -> str:
        rule = info.data.get("rule", "sequential")
        if familywise == "holm" and rule in ("zscore", "intervals", "expected_loss"):
            raise refuse(f"needs a rule with a valid p-value, which {rule} has not", "choose sequential or anytime")
        return familywise


class AllocationConfig(Section):
    """Which trials are issued next."""

    policy: str = "weighted"
    """weighted (models in an open pair; more where questions tell them apart), unresolved_pairs (models in an open
    pair, all questions alike), uniform (all models, a fixed number), leader (for `best` and `top_k`), or
    `package.module:attribute`."""
    lookahead: int | None = Field(None, ge=0, le=64)
    """Rounds that are in flight while a look is pending; default: what `trials.favour` says."""
    growth: float = Field(0.0, ge=0, le=1)
    """The least size of a round, as a share of the trials that are there; it has one trial a question in any case."""

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, policy: str) -> str:
        return _named(policy, POLICIES, "policy")


class TrialsConfig(Section):
    """How many trials each question gets from each model."""

    min: Count = Field(4, ge=1)
    """Trials a question before the first look."""
    max: Count = Field(80, ge=1)
    """Trials a question at most (on average over the questions): the horizon. Also called `epochs`."""
    favour: Literal["cost", "balanced", "time"] = "balanced"
    """cost: no trial beyond what the next look needs; time: servers always full; balanced: in between."""

    @field_validator("max")
    @classmethod
    def _at_least_min(cls, most: int, info: ValidationInfo) -> int:
        if most < info.data.get("min", 1):
            raise refuse(f"must be at least trials.min, which is {info.data['min']}", "raise it, or lower trials.min")
        return most


class BudgetConfig(Section):
    """Hard caps on the whole run, which are never exceeded; what is not given is not capped."""

    trials: Count | None = Field(None, ge=1)
    tokens: Count | None = Field(None, ge=1)
    """Prompt and completion tokens together."""
    usd: float | None = Field(None, gt=0)
    """US dollars, by the models' `price`."""
    gpu_hours: float | None = Field(None, gt=0)
    """GPU hours, by the models' `gpus` and the time their requests take."""
    wall_time: Seconds | None = Field(None, gt=0)
    """Time from the start, over all resumes: "2h30m", or seconds."""


class Decisions(Section):
    """Everything that decides, besides the outcomes: what a replay is told, and a run among other things."""

    folder: Path = Path()
    """Where relative paths and plug-ins are looked for; default: the folder of the file."""
    rubric: RubricConfig = RubricConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    stopping: StoppingConfig = StoppingConfig()
    allocation: AllocationConfig = AllocationConfig()
    trials: TrialsConfig = TrialsConfig()
    budget: BudgetConfig = BudgetConfig()

    @property
    def plug_ins(self) -> dict[str, str]:
        """What of yours decides: by the key that names it, `package.module:attribute`."""
        named = {"stopping.rule": self.stopping.rule, "allocation.policy": self.allocation.policy}
        return {key: name for key, name in named.items() if name not in RULES + POLICIES}

    def stated(self) -> dict[str, object]:
        """The sections that results.json repeats, so that it says by itself what its verdicts mean."""
        return self.model_dump(mode="json", include={"objective", "stopping", "allocation", "trials", "budget"})
