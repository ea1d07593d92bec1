"""Format of results.json: each dataclass is written field by field; `results_file` reads and writes it.

Lists over models are in the order of `Results.models`, best first, unless stated otherwise. A number that does not
exist (the score of a model without trials, an infinite number of trials) is None here and null in the file. The format
has a number; a file with another one is not read.

Before the first look there is no ranking, and the file has another format, `Unjudged`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adaptive_eval.core.answer_kinds import INCOMPLETE, answer_kinds
from adaptive_eval.report.labelled import LabelledRun
from adaptive_eval.report.question_rows import QuestionRows

FORMAT = "adaptive-eval.results/2"
UNJUDGED_FORMAT = "adaptive-eval.unjudged/1"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Identity and progress of the run."""

    name: str
    version: str
    """Version of adaptive-eval."""
    created: str
    """Time at which the run began: ISO 8601, UTC."""
    updated: str
    """Time at which this file was written."""
    active_seconds: float
    """Over all starts of the run."""
    status: str
    """running, finished, stopped (by the user, an error or an alarm), or killed: the same command resumes the latter
    two."""
    reason: str | None
    """Reason for the end: settled (also by labels), out_of_reach, blocked, budget, wall_time, gpu_time, alarm."""
    kills: int = 0
    """Number of starts that were killed."""


@dataclass(frozen=True, slots=True)
class WastedCost:
    """Cost of a judge's or verifier's verdicts that were unreadable or replaced: part of the cost of stored answers."""

    verdicts: int
    tokens: int
    usd: float
    gpu_seconds: float
    """GPU seconds of requests."""


@dataclass(frozen=True, slots=True)
class GradingCost:
    """Cost of a judge's or verifier's grades of stored answers: part of the cost of these answers."""

    answers: int
    tokens: int
    usd: float
    gpu_seconds: float
    """GPU seconds of requests."""
    in_vain: WastedCost | None = None
    """Cost of wasted verdicts on top; None if there was none. All other cost was for the answers."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model: its score on these questions with a 95% interval, its Bayes@N, and its cost."""

    name: str
    rank: int
    tier: int | None
    """None without a score."""
    score: float | None
    sigma: float | None
    lo: float | None
    hi: float | None
    bayes: float | None
    bayes_sigma: float | None
    sampled_sigma: float | None
    """Standard error of the score if the questions are a sample of questions like these."""
    trials: int
    """Trials in complete rounds, from which the score is computed, without R0."""
    set_aside: str | None
    """Why the run went on without this model."""
    stored_trials: int
    """All stored trials, also those of an incomplete round."""
    ungraded: int
    """Stored answers that the grader could not grade: they are not in the score."""
    repeats: int
    """Number of long answers that equal an earlier one word for word, on at most 100 questions."""
    signals: Mapping[str, int]
    """Number of answers by signal: truncated, empty, refusal, timed_out ..."""
    tokens: int
    """Tokens of answers and of the requests for their grades; the same holds for the next two."""
    usd: float
    gpu_seconds: float
    sampling: Mapping[str, object]
    """Sampling settings in its requests; "server default" for those left to the server."""
    prior_depth: float
    """Outcomes of an earlier run in the score (R0), as a mean over the questions."""
    lowest: float | None = None
    """The score if all unknown outcomes of complete rounds (ungraded or `unsure`) had the worst category; equal to
    `score` if there are none."""
    highest: float | None = None
    """The same with the best category."""
    letters: str = ""
    """Models that share a letter are not shown to differ by any comparison of all pairs; "" if none are compared."""
    server_seconds: float | None = None
    """Time for which its servers were held, busy or not. A server that the run started counts from its start until
    it stopped, any other in each start from the first to the last request. None if not measured, as in an import."""
    server_gpu_seconds: float | None = None
    """`server_seconds` times its GPUs; `gpu_seconds` are those of its requests."""
    score_without_prior: float | None = None
    """Score of this run's own answers alone, if R0 is in `score`."""
    rank_without_prior: int | None = None
    """Rank by these scores."""
    recorded: str | None = None
    """The earlier run whose outcomes stand for this model; `trials` counts them, and the model was not asked."""
    grading: GradingCost | None = None
    """Cost of the grades of its answers, if a judge or verifier gave them."""
    labels: int = 0
    """Labels of its answers that count (`Results.labelled`)."""
    unsure: int = 0
    """Answers in the score, without R0, whose grade could be another: incomplete ones, and in a gate empty ones, that
    are not certainly right and that the rubric does not name."""
    usd_per_answer: float | None = None
    """Mean price of its answers, without their grades, and with GPU time under objective.gpu_hour; None without a
    price."""
    tokens_per_answer: float | None = None
    """Mean completion tokens of its answers; None if unknown, as of imported answers without them."""
    seconds_per_answer: float | None = None
    """Mean seconds from sending a request to its complete answer, at the load of this run; None if unknown. Of a batch
    service: until the results of the batch came."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """When a comparison was called: the look that crossed the boundary, and |z| then."""

    look: int
    """Counted from 1."""
    z: float | None
    boundary: float | None


@dataclass(frozen=True, slots=True)
class GradedPair:
    """A comparison by the grades alone, where labels correct a score of it."""

    first: str
    verdict: str
    difference: float | None
    """In favour of `first`."""


@dataclass(frozen=True, slots=True)
class PairRow:
    """One comparison of the objective; `first` is ranked higher now, and z is positive if it is ahead.

    An objective without comparisons, such as precision, has no difference, z or boundary; `sigma` is the score's own.
    """

    first: str
    second: str | None
    """None for a fixed value (objectives threshold and precision)."""
    verdict: str
    """resolved, tied, open, out_of_reach, blocked or undecided_by_labels."""
    difference: float | None
    sigma: float | None
    z: float | None
    rho: float | None
    """Phi(|z|): confidence in the order, or in the side of a fixed value."""
    boundary: float | None
    """|z| beyond it resolves the pair at this look."""
    information: float | None
    """Share of the information at the horizon that has been gathered."""
    power: float | None
    """Chance of being settled by the horizon."""
    trials_needed: float | None
    """Trials per question at which the current difference would be called, or certified as tied; None if the comparison
    is decided, or no number can be given."""
    sampled_z: float | None
    """z of this difference if the questions are a sample of questions like these."""
    certifiable_delta: float | None
    """The smallest delta within which the budget could certify a tie."""
    deciding_max: float | None = None
    """The least `trials.max` with which the run would probably go on to decide it; None while the run goes on, or if no
    plausible one would."""
    called: CallRow | None = None
    """None if it is neither resolved nor tied."""
    by_trial: bool = False
    """Whether it is judged by differences of correlated trials with the same seeds: `trials.seeds: coupled`."""
    variance_by_trial: float | None = None
    """Variance of these differences relative to independent models: about the share of trials that it takes."""
    by_grades: GradedPair | None = None
    """None if labels correct neither score, or the grades alone compare other models."""

    def signed_z(self, model: str) -> float | None:
        """z for one of the two: positive if this model is ahead."""
        return self.z if self.z is None or model == self.first else -self.z


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of `report.metrics` for one model: unbiased, with a 95% interval."""

    metric: str
    model: str
    value: float | None
    """None if some question has fewer trials than the metric has draws."""
    sigma: float | None
    lo: float | None
    hi: float | None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Score of one model on a group of questions, with a 95% interval; labels only correct those by benchmark."""

    by: str
    """benchmark, or a field of the questions' metadata."""
    group: str
    """The benchmark, or the field's value."""
    share: float
    """Share of the group in the score of the run."""
    questions: int
    model: str
    trials: int
    score: float | None
    """None if one of the questions has no trial."""
    sigma: float | None
    lo: float | None
    hi: float | None
    gate: str | None = None
    """Outcome of the benchmark's own gate for the model; None if it has none."""


@dataclass(frozen=True, slots=True)
class GateRow:
    """The outcome of a gate for one model."""

    model: str
    baseline: str | None
    """None: the gate is on a value, `objective.value`."""
    outcome: str
    """PASS, FAIL or UNDECIDED; open while the run goes on and may still decide it."""
    why: str


SET_ASIDE = "set_aside"
"""The part of a model in the choice of the cheapest that gets no more answers, and of which little is known."""


@dataclass(frozen=True, slots=True)
class FrontierRow:
    """The cost of a model's answers, and its part in the choice of the cheapest."""

    model: str
    usd: float | None
    """Mean cost of an answer in its first round, with its grade if that has a price; None before that round."""
    usd_sigma: float | None
    """Its standard error; None if unknown."""
    part: str
    """chosen; candidate: the cheapest that may do, not yet shown to; undecided: cheaper than these, and may do as well;
    ruled_out: more than delta behind another model; set_aside; dearer."""
    behind: str | None
    """The model that rules it out."""


@dataclass(frozen=True, slots=True)
class LookRow:
    """Summary of one look; run.sqlite has all of it."""

    look: int
    """Counted from 1, as in `CallRow` and everything that people read; run.sqlite counts from 0."""
    trials: int
    resolved: int
    tied: int
    open: int
    out_of_reach: int
    blocked: int


@dataclass(frozen=True, slots=True)
class AlarmRow:
    """An alarm about the answers of a model: too many are incomplete, or its server has changed."""

    model: str
    kind: str
    """The signal of the answers that raised it: truncated, empty, timed_out ...; of incomplete ones all signals."""
    answers: int
    """Answers of this kind among the latest `of`."""
    of: int
    before: int
    """Answers of this kind among those before the change."""
    before_of: int
    since: int | None
    """The number of the model's first answer after the change, counted from 1; these answers are in no score. None if
    nothing has changed."""
    text: str
    """The finding in words, to follow the model's name."""

    @property
    def is_incomplete(self) -> bool:
        """Whether it is about incomplete answers."""
        return bool(answer_kinds(self.kind) & INCOMPLETE)


@dataclass(frozen=True, slots=True)
class Caution:
    """A warning to read before believing the ranking."""

    kind: str
    model: str | None
    text: str


REDECIDED = "redecided"
"""Kind of the warning that deciding settings were changed after looks."""
INCOMPLETE_PRIOR = "incomplete_prior"
"""Kind of the warning that answers of R0 are incomplete."""


@dataclass(frozen=True, slots=True)
class OtherCostRow:
    """Spending besides the stored answers of the current models."""

    what: str
    """left: answers of a model that the configuration no longer names; lost: answers that never came, at their maximum
    cost where a cap counts them, else at the mean; failed: answers that came and cannot be used, such as samples of
    Inspect whose scorer fails, at what they used; discarded: answers that were discarded after an alarm;
    lost_verdicts: verdicts on answers of the model that never came; baseline: requests to a verifier before any answer;
    regrade: verdicts of an unfinished `regrade`."""
    model: str | None
    trials: int
    tokens: int
    usd: float
    gpu_seconds: float
    """GPU seconds of requests."""
    counted_gpu_seconds: float
    """GPU seconds under a cap: for servers that the run started, the time for which they were held."""
    answers: int = 0
    """Answers that were requested, and lost or failed."""
    server_seconds: float | None = None
    """Time for which servers of a model that has left were held, as in `ModelRow`."""
    server_gpu_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RunCost:
    """Cost of the current models' answers, how many were allowed, and other spending."""

    trials: int
    allowed_trials: int
    """The most that `trials.max`, and what removed models have left of `budget.trials`, allow now."""
    max_trials: int
    """`trials.max` of every question for every asked model."""
    tokens: int
    usd: float
    gpu_seconds: float
    server_seconds: float | None = None
    """Sum over all models that the run had, by this field of theirs; None if unknown for one that has answered."""
    server_gpu_seconds: float | None = None
    counted_gpu_seconds: float | None = None
    """GPU seconds that `budget.gpu_hours` counts: time for which servers of the run were held, requests to other
    servers, and other spending."""
    beside: tuple[OtherCostRow, ...] = ()
    grading: GradingCost | None = None
    """Part of `tokens`, `usd` and `gpu_seconds`; None without a judge or verifier."""

    def in_all(self, of: str) -> float:
        """Trials, tokens, USD or GPU seconds of requests, including other spending."""
        return float(getattr(self, of) + sum(getattr(row, of) for row in self.beside))

    @property
    def stored_trials(self) -> int:
        """All stored trials of the run, also those of models that the configuration no longer names."""
        return self.trials + sum(row.trials for row in self.beside if row.what == "left")

    @property
    def asked(self) -> int:
        """All answers that were asked for, whether they came or not."""
        return int(self.in_all("trials")) + sum(row.answers for row in self.beside)


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server that the run has started itself, as of its latest start."""

    model: str
    command: tuple[str, ...]
    version: str | None
    """Version of the server's software, if it reports one."""
    starts: int
    """Number of its starts over all starts of the run, including those after a crash."""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch that is pending at a batch service."""

    model: str
    batch: str | None
    """The service's id for the batch; None until the service has replied."""
    requests: int
    since: float
    """Seconds since 1970."""


def setting(decisions: Mapping[str, object], section: str, key: str) -> Any:
    """A setting of `Results.decisions`, or of a whole configuration; None if it is not there."""
    settings = decisions.get(section)
    return settings.get(key) if isinstance(settings, Mapping) else None


@dataclass(frozen=True, slots=True)
class Results:
    """The results file."""

    format: str
    run: RunInfo
    decisions: Mapping[str, object]
    """The configuration's sections objective, stopping, trials and budget, with all defaults."""
    weights: tuple[float, ...]
    """The value of each category."""
    models: tuple[ModelRow, ...]
    pairs: tuple[PairRow, ...]
    reversals: tuple[tuple[str, str | None], ...]
    """Pairs whose first model is ahead now, although the second was called better."""
    looks: tuple[LookRow, ...]
    questions: QuestionRows
    warnings: tuple[Caution, ...]
    cost: RunCost
    trials_to_go: float
    """Estimate of the trials that open comparisons still need, if the differences stay as they are."""
    servers: tuple[ServerRow, ...] = ()
    """In the order in which they were first started."""
    gate: tuple[GateRow, ...] = ()
    """Gate outcomes of every model, except a baseline, if `objective.gate` is set."""
    frontier: tuple[FrontierRow, ...] = ()
    """Every model from the cheapest to the dearest, under the objective cheapest."""
    metrics: tuple[MetricRow, ...] = ()
    """Metrics of `report.metrics`, metric by metric, with the best model first."""
    groups: tuple[GroupRow, ...] = ()
    """Scores by benchmark, if there are several, and by `report.group_by`: group by group, best model first."""
    labelled: LabelledRun | None = None
    """None without labels."""
    alarms: tuple[AlarmRow, ...] = ()
    """The largest share first."""

    def setting(self, section: str, key: str) -> Any:
        """A setting of `decisions`; None if it is not there."""
        return setting(self.decisions, section, key)

    @property
    def max_trials_per_model(self) -> int:
        """Trials that `trials.max` allows each asked model."""
        return self.cost.max_trials // sum(row.recorded is None for row in self.models)

    @property
    def corrected(self) -> frozenset[str]:
        """Models whose scores are corrected by labels."""
        return frozenset() if self.labelled is None else self.labelled.corrected

    @property
    def compares(self) -> bool:
        """Whether the objective compares; else each score is judged by itself, and there is no z."""
        return not self.pairs or any(pair.z is not None for pair in self.pairs)

    @property
    def server_time_is_paid(self) -> bool:
        """Whether server time is paid for: the run has started servers itself, or their GPUs are counted."""
        return bool(self.servers) or bool(self.cost.server_gpu_seconds)


@dataclass(frozen=True, slots=True)
class Unjudged:
    """The results file before the first look."""

    format: str
    run: RunInfo
    models: tuple[str, ...]
    """In the order of the configuration."""
    trials: int
    why: str | None = None
    """Why the run has ended without a look, and what to do; None while it goes on."""
