"""The sections that determine decisions: objective, stopping, trials, budget."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)

from adaptive_eval.base.imports import SPECIFICATION
from adaptive_eval.base.sections import Count, Seconds, Section, Share, StopOnAlarm, config_error
from adaptive_eval.config.problems import did_you_mean
from adaptive_eval.core.entries import Entry, OptionType
from adaptive_eval.core.near_best import MARGIN, NEAR_BEST
from adaptive_eval.core.objectives import BASELINE, PAIRS
from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES
from adaptive_eval.core.settings import MIN_BLOCK_SIZE
from adaptive_eval.graders.rubric import RubricConfig

if TYPE_CHECKING:
    from adaptive_eval.core.evidence import Prior

Entries = Mapping[str, Entry[Any]]


def _check_pairs(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    if self_pairs := [model for model, other in pairs if model == other]:
        raise config_error(f"must not compare {self_pairs[0]!r} with itself", "name two models")
    if len({frozenset(pair) for pair in pairs}) < len(pairs):
        raise config_error("must not have a pair twice", "remove one of the two")
    return pairs


OPTION_TYPES: Mapping[OptionType, Any] = {
    "number": Annotated[float, Field(gt=0)],
    "factor": Annotated[float, Field(ge=0.1, le=50)],
    "difference": Annotated[Share, Field(gt=0)],
    "margin": Annotated[Share, Field(gt=0)],
    "score": Share,
    "models": Annotated[int, Field(ge=1)],
    "model": str,
    "pairs": Annotated[tuple[tuple[str, str], ...], Field(min_length=1), AfterValidator(_check_pairs)],
}
"""Python types of the options of built-ins."""


def _built_in_or_plug_in(entries: Entries) -> Any:
    """The type of a key that names a built-in or a plug-in."""

    def check_name(name: str) -> str:
        if name in entries or re.fullmatch(SPECIFICATION, name):
            return name
        hint = did_you_mean(name.lower(), entries, "or name your own as package.module:attribute")
        raise config_error(f"must be {', '.join(entries)}", hint)

    choices = [{"enum": list(entries)}, {"type": "string", "pattern": SPECIFICATION}]
    descriptions = "; ".join(f"{entry.name}: {entry.summary}" for entry in entries.values())
    return Annotated[
        str,
        AfterValidator(check_name),
        WithJsonSchema({"anyOf": choices}),
        Field(description=f"{descriptions}; or your own, `package.module:attribute`."),
    ]


def _built_in_options(entry: Entry[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a built-in, converted to their types."""
    types = {option.name: OPTION_TYPES[option.type] for option in entry.options}
    for name in given.keys() - types.keys():
        hint = did_you_mean(name, types, f"it has {', '.join(types)}" if types else "remove it")
        raise config_error(f"must not have {name}, which is not an option of {entry.name}", hint)
    try:
        return {name: TypeAdapter(types[name]).validate_python(value) for name, value in given.items()}
    except ValidationError as error:
        names = ", ".join(f"{option.name}: {option.example}" for option in entry.options)
        message = str(error.errors()[0]["msg"]).lower()
        raise config_error(f"has an invalid value: {message}", f"write it like {{{names}}}") from None


def _add_option_keys(section: type[Section]) -> Any:
    """Extend the section of the objective with a key for each option of the built-in objectives."""
    options = {option.name: option for entry in OBJECTIVES.values() for option in entry.options}

    def check_fits_kind(given: object, info: ValidationInfo) -> object:
        chosen, option = info.data.get("kind"), options[str(info.field_name)]
        entry = OBJECTIVES.get(str(chosen))
        owners = " and ".join(owner.name for owner in OBJECTIVES.values() if option in owner.options)
        if entry is None and given is not None and chosen is not None:
            hint = f"write objective: {{kind: {chosen!r}, options: {{{option.name}: ...}}}}"
            raise config_error(f"is an option of {owners}, not of a plug-in", hint)
        if entry is None:
            return given
        if given is not None and option not in entry.options:
            raise config_error(
                f"is only for the objective {owners}, not for {chosen}", "remove it, or change objective.kind"
            )
        if given is None and option in entry.options and option.default is None:
            raise config_error(f"must be given for the objective {chosen}", f"add `{option.name}:` to objective")
        return given

    fields: dict[str, Any] = {
        name: (
            Annotated[OPTION_TYPES[option.type] | None, AfterValidator(check_fits_kind)],
            Field(None, description=option.description, validate_default=True),
        )
        for name, option in options.items()
    }
    name = section.__name__.removeprefix("_")
    return create_model(name, __base__=section, __doc__=section.__doc__, __module__=__name__, **fields)


if TYPE_CHECKING:
    ObjectiveName = str
    RuleName = str
    PolicyName = str
else:
    ObjectiveName = _built_in_or_plug_in(OBJECTIVES)
    RuleName = _built_in_or_plug_in(RULES)
    PolicyName = _built_in_or_plug_in(POLICIES)


class _ObjectiveConfig(Section):
    """The comparisons to decide."""

    kind: ObjectiveName = "ranking"
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Keyword arguments for your own objective."""
    gate: bool = False
    """Non-inferiority test for continuous integration (objectives baseline and threshold): a model passes if it is
    worse than the baseline, or below the value, by less than `stopping.delta`, and fails, with exit code 6, if it is so
    by more."""

    @property
    def arguments(self) -> dict[str, Any]:
        """The configured options of the objective."""
        if self.kind not in OBJECTIVES:
            return dict(self.options)
        given = {option.name: getattr(self, option.name) for option in OBJECTIVES[self.kind].options}
        return {name: value for name, value in given.items() if value is not None}

    @field_validator("gate")
    @classmethod
    def _check_gate(cls, gate: bool, info: ValidationInfo) -> bool:
        if gate and info.data.get("kind", "baseline") not in ("baseline", "threshold"):
            rule = "is only for the objectives baseline and threshold"
            raise config_error(rule, "remove it, or change objective.kind")
        return gate


class StoppingConfig(Section):
    """When a comparison is decided, with which error rate, and which alarms stop the run early."""

    rule: RuleName = "optimal"
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Options of the rule: for optimal {worth: 3}, how many times the cost of deciding a comparison its decision is
    worth; or those of your own rule."""
    confidence: Share = 0.95
    """One-sided confidence in an order: each pair is ordered wrongly with probability at most 1 - confidence, and an
    exact tie gets a winner with at most twice that probability."""
    delta: Share = Field(0.0, ge=0)
    """Largest difference of scores that does not matter: 0.01 or "1%". Models within it are tied; with 0 no tie can be
    certified. Under near_best, a pick is less than `delta` behind (default there: 0.02)."""
    familywise: Literal["none", "holm"] = "none"
    """holm: `confidence` holds for all comparisons of the run together, for the objectives best and top_k only for the
    pick; none: for each comparison."""
    on_alarm: StopOnAlarm = "all"
    """Stop the run after its first look if all answers of every model (all), or of one model (any), are empty,
    identical, unreadable to the grader, or wrong (12 answers at least); and at any time if more than a tenth of a
    model's answers were cut off, timed out or exceed the context, more than half are empty, or a kind of failure has
    become more frequent. never: no alarm stops it. The run can be resumed."""

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        entry = RULES.get(str(info.data.get("rule")))
        return options if entry is None else _built_in_options(entry, options)

    @field_validator("confidence")
    @classmethod
    def _check_confidence(cls, confidence: float, info: ValidationInfo) -> float:
        if not 0.5 < confidence < 1.0:
            raise config_error("must be between 0.5 and 1", "for 95 percent write 0.95 or 95%")
        rule = RULES.get(str(info.data.get("rule")))
        if rule is not None and confidence > rule.max_confidence:
            raise config_error(
                f"must be at most {rule.max_confidence:g} for the rule {rule.name}", "lower it, or use anytime"
            )
        return confidence

    @field_validator("familywise")
    @classmethod
    def _check_correctable(cls, familywise: str, info: ValidationInfo) -> str:
        rule = info.data.get("rule", "optimal")
        if familywise == "holm" and rule in RULES and not RULES[rule].correctable:
            correctable = " or ".join(entry.name for entry in RULES.values() if entry.correctable)
            raise config_error(f"needs a rule with a valid p-value, which {rule} lacks", f"choose {correctable}")
        return familywise

    @property
    def prior(self) -> "Prior":
        """Prior of the variances."""
        return prior_of(self.rule)


def prior_of(rule: str) -> "Prior":
    """Prior of the variances for a rule by name.

    uniform: that of the published Bayes@N, if the rule compares it; self: centred at each model's own shares of the
    categories, sharp and calibrated.
    """
    return "uniform" if rule in RULES and RULES[rule].estimator == "bayes" else "self"


if TYPE_CHECKING:  # type checkers do not know the keys that the registry adds; code reads them through `options`
    ObjectiveConfig = _ObjectiveConfig
else:
    ObjectiveConfig = _add_option_keys(_ObjectiveConfig)


MOST_TRIALS = 1_000_000_000
"""Maximum of `trials.max`, which keeps counts within the integer types of the decisions."""
LEAST_TRIALS = 4
"""Default of `trials.min`, or 20% of `trials.max` and at least 2 if that is less (benchmarks/allocation.md)."""
LEAST_UNDER_CAPS = 2
"""The default if the budget may not cover such a first round (benchmarks/limits.md)."""


class TrialsConfig(Section):
    """Number, order and seeds of trials per model and question."""

    min: Count = Field(LEAST_TRIALS, ge=1)
    """Trials of each question before the first look; default: 4, or 20% of `max` if that is less, but at least 2. It is
    2, too, if the budget may not cover more. With `optimize: time` it is at least 15% of `max`, with batches 30%."""
    max: Count = Field(80, ge=1, le=MOST_TRIALS)
    """Most trials of each question (on average over the questions): the horizon."""
    draw: Count | None = Field(None, ge=MIN_BLOCK_SIZE)
    """Questions between two looks, for benchmarks of thousands of questions: each is asked once (min and max are 1), in
    random order (`questions.shuffle`). The run ends when its comparisons are decided, usually long before the last
    question; scores are estimates for all questions. `questions.limit` is the most to ask."""
    optimize: Literal["auto", "cost", "time"] = "auto"
    """What to save. cost: request only what the next look needs; time: keep servers busy, and release each as soon
    as its model is done; auto: time if any model is on a server of your own (the run starts it, it has `gpus`, its
    `price` is 0, or it has neither `price` nor key), else cost. It is decided at the first start. With `batch`
    rounds are always large."""
    policy: PolicyName = "weighted"
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Keyword arguments for your own policy."""
    seeds: Literal["hashed", "consecutive", "coupled"] = "hashed"
    """Seed of trial i. hashed: i + a hash of the run's `seed`, model and question; consecutive: `seed` + i; coupled:
    i + a hash of `seed` and question, the same for all models and runs. The objectives baseline and pairs then compare
    models trial by trial if their answers are correlated: far fewer trials for models that hardly differ. precision and
    threshold only ask with these seeds, so that a later run can compare its models with a recorded one."""

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        entry = POLICIES.get(str(info.data.get("policy")))
        return options if entry is None else _built_in_options(entry, options)

    @model_validator(mode="wrap")
    @classmethod
    def _default_min(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Set the default of `min`, which depends on `max`, without marking it as set."""
        max_trials = given.get("max") if isinstance(given, dict) and "min" not in given else None
        if type(max_trials) is not int or max_trials < 1:
            return validate(given)
        trials = validate({**given, "min": min(LEAST_TRIALS, max(2, -(-max_trials // 5)), max_trials)})
        trials.model_fields_set.discard("min")
        return trials

    @field_validator("max")
    @classmethod
    def _check_max(cls, max_trials: int, info: ValidationInfo) -> int:
        if max_trials < info.data.get("min", 1):
            raise config_error(
                f"must be at least trials.min, which is {info.data['min']}", "raise it, or lower trials.min"
            )
        return max_trials

    @field_validator("draw")
    @classmethod
    def _check_one_trial(cls, draw: int | None, info: ValidationInfo) -> int | None:
        if draw is not None and info.data.get("max", 1) != 1:
            raise config_error("is for one trial of each question", "set `min: 1` and `max: 1`, too, or remove it")
        return draw


class BudgetConfig(Section):
    """Limits for the whole run; default: none. With `sampling.max_tokens` a run stays within them, as long as servers
    respect it."""

    trials: Count | None = Field(None, ge=1)
    """Total number of answers by all models."""
    tokens: Count | None = Field(None, ge=1)
    """Total prompt and completion tokens."""
    usd: float | None = Field(None, gt=0)
    """US dollars, by the models' `price`; your own servers need none. With `optimize: cost` cheaper models get more
    trials."""
    gpu_hours: float | None = Field(None, gt=0)
    """GPU hours: a model's `gpus` times the time that the run holds its servers, or for other servers the time of its
    requests."""
    wall_time: Seconds | None = Field(None, gt=0)
    """Active time of the run over all starts, such as "2h30m"."""

    @property
    def caps(self) -> dict[str, float]:
        """The caps that are set, by key."""
        caps: dict[str, float] = self.model_dump(exclude_none=True)
        return caps


BUILT_IN = OBJECTIVES.keys() | RULES.keys() | POLICIES.keys()


BY_TRIAL = (BASELINE.name, PAIRS.name)
"""Objectives with fixed comparisons: in a ranking models stop at different times, and share few trials."""


class Decisions(Section):
    """All settings that determine decisions: the configuration of a replay, and a part of that of a run."""

    folder: Path = Path()
    """Folder of the file, for relative paths and plug-ins."""
    rubric: RubricConfig = RubricConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    stopping: StoppingConfig = StoppingConfig()
    trials: TrialsConfig = TrialsConfig()
    budget: BudgetConfig = BudgetConfig()

    @model_validator(mode="after")
    def _default_of_picks(self) -> Self:
        """Set the default rule where models are picked, and its `delta`, without marking them as set."""
        given, stopping = self.stopping.model_fields_set, self.stopping
        wants_proof = stopping.familywise != "none" or stopping.options or (stopping.delta == 0.0 and "delta" in given)
        changed: dict[str, Any] = {}
        if "rule" not in given and self.objective.kind in NEAR_BEST.only_for and not wants_proof:
            changed["rule"] = NEAR_BEST.name
        if "delta" not in given and changed.get("rule", stopping.rule) == NEAR_BEST.name:
            changed["delta"] = MARGIN
        if changed:
            fresh = stopping.model_copy(update=changed)
            fresh.model_fields_set.difference_update(changed.keys() - given)
            object.__setattr__(self, "stopping", fresh)
        return self

    @property
    def by_trial(self) -> bool:
        """Whether models with the same seeds are compared, as in `Plan.source`."""
        return self.trials.seeds == "coupled" and self.objective.kind in BY_TRIAL

    @property
    def chosen(self) -> dict[str, str]:
        """Names of built-ins or plug-ins for the decisions, by key."""
        return {
            "objective.kind": self.objective.kind,
            "stopping.rule": self.stopping.rule,
            "trials.policy": self.trials.policy,
        }

    @property
    def plug_ins(self) -> dict[str, str]:
        """Names of plug-ins (`package.module:attribute`) for the decisions, by key."""
        return {key: name for key, name in self.chosen.items() if name not in BUILT_IN}

    def stated(self) -> dict[str, object]:
        """The sections for results.json, so that its verdicts can be understood without the configuration."""
        return self.model_dump(mode="json", include={"objective", "stopping", "trials", "budget"})
