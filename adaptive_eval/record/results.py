"""The format of results.json, which these dataclasses are field by field; `results_file` reads and writes it.

Every list over models is in the order of `Results.models`, best first, unless it says otherwise. A number that does not
exist (the score of a model without trials, an infinite number of trials) is None here and null in the file. The format
has a version: a field may be added under the same version, and anything else changes it.

Before the first look there is no ranking, and the file has another format, `Unjudged`: what is known of each question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adaptive_eval.record.question_rows import QuestionRow

FORMAT = "adaptive-eval.results/1"
UNJUDGED_FORMAT = "adaptive-eval.unjudged/1"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Which run this is, and how far it is."""

    name: str
    version: str
    """Of adaptive-eval."""
    created: str
    """When the run was begun: ISO 8601, UTC."""
    updated: str
    """When this file was written."""
    active_seconds: float
    """Over all starts of the run."""
    status: str
    """running, finished, or stopped (by the user or an error: the same command resumes it)."""
    reason: str | None
    """Why it finished: settled, out_of_reach, blocked, budget, wall_time, gpu_time."""


@dataclass(frozen=True, slots=True)
class WastedCost:
    """What a judge or a verifier has used for verdicts that could not be read, or that others have replaced: part of
    what stored answers have cost, too."""

    verdicts: int
    tokens: int
    usd: float
    gpu_seconds: float
    """Of requests."""


@dataclass(frozen=True, slots=True)
class GradingCost:
    """What a judge or a verifier has used for the grades of stored answers: part of what these have cost."""

    answers: int
    tokens: int
    usd: float
    gpu_seconds: float
    """Of requests."""
    in_vain: WastedCost | None = None
    """Besides; None where there was nothing of it. The rest of what stored answers have cost was for the answers."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model: its score a on these questions with a 95% interval, Bayes@N beside it, and what it cost."""

    name: str
    rank: int
    tier: int
    score: float | None
    sigma: float | None
    lo: float | None
    hi: float | None
    bayes: float | None
    bayes_sigma: float | None
    sampled_sigma: float | None
    """Uncertainty of the score where the questions stand for questions like these."""
    trials: int
    """In complete rounds: what the score is made of, besides R0."""
    set_aside: str | None
    """Why the run went on without this model."""
    stored_trials: int
    """All that are stored, with those of a round that was left incomplete."""
    ungraded: int
    """Stored answers that the grader could not grade: the score is made without them."""
    repeats: int
    """Long answers that equal an earlier one to the same question, word for word."""
    signals: Mapping[str, int]
    """How many answers were truncated, empty, refusals, timed_out ..."""
    tokens: int
    """Of answers with the requests for their grades, as the next two."""
    usd: float
    gpu_seconds: float
    sampling: Mapping[str, object]
    """The settings that its requests carry, and "server default" for those that they leave to the server."""
    prior_depth: float
    """Outcomes of an earlier run that its score is made of too (R0): D, the mean over the questions."""
    lowest: float | None = None
    """The score if all that is not really known had been of the worst category: answers of complete rounds that the
    grader could not grade, and those that timed out. Equal to `score` where there is none of either."""
    highest: float | None = None
    """The same, had they been of the best."""
    letters: str = ""
    """Models that share a letter are not told apart, by all pairs; "" where none are compared."""
    server_seconds: float | None = None
    """For how long its servers were held, busy or not: one that the run has started from when it was ready until it was
    stopped, others in each start from the first to the last request that was wanted of them. None where nobody has
    measured it, as in an import or a run of an earlier version."""
    server_gpu_seconds: float | None = None
    """`server_seconds` times its GPUs; `gpu_seconds` are those of its requests."""
    score_without_prior: float | None = None
    """Of this run's own answers alone, where outcomes of an earlier run count too (R0)."""
    rank_without_prior: int | None = None
    """By these scores."""
    recorded: str | None = None
    """The earlier run whose outcomes of it stand here: `trials` are those, and it was not asked."""
    grading: GradingCost | None = None
    """What the grades of its answers have used, where somebody was asked for them."""
    corrected: float | None = None
    """The score, corrected for what the early end of such runs adds to it on average (`Results.early_end`)."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """When a comparison was called: the look that crossed the boundary, neighbours or not, and |z| then."""

    look: int
    """Counted from 1."""
    z: float | None
    boundary: float | None


@dataclass(frozen=True, slots=True)
class PairRow:
    """One comparison of the objective; `better` is placed higher now, and z is positive where it is ahead.

    An objective that does not compare, as precision, has no difference, z or boundary, and `sigma` is the score's own.
    """

    better: str
    worse: str | None
    """None: a fixed value (objectives threshold and precision)."""
    verdict: str
    """resolved, tied, open, out_of_reach or blocked."""
    difference: float | None
    sigma: float | None
    z: float | None
    rho: float | None
    """Phi(|z|): how surely the order is the true one, or the score on its side of a fixed value."""
    boundary: float | None
    """A z beyond it resolves the pair at this look."""
    information: float | None
    """The share of the information at the horizon that has been gathered."""
    power: float | None
    """The chance to be settled by the horizon."""
    trials_needed: float | None
    """Trials a question at which today's difference would be called, or certified as tied; None where the comparison is
    decided, or no number can be named."""
    sampled_z: float | None
    """z of this difference on questions like these."""
    certifiable_delta: float | None
    """The smallest delta within which the budget could certify a tie."""
    called: CallRow | None = None
    """None where it is neither resolved nor tied."""
    by_trial: bool = False
    """It is judged by the differences of trials with the same seeds: `seeds: coupled`, and the two go together."""
    variance_by_trial: float | None = None
    """Of these differences, over that of independent models: about the share of their trials that it takes."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A metric of k draws of one model, which the configuration asks for: unbiased, with a 95% interval."""

    metric: str
    model: str
    value: float | None
    """None where some question has fewer trials than the metric has draws."""
    sigma: float | None
    lo: float | None
    hi: float | None


@dataclass(frozen=True, slots=True)
class GateRow:
    """What a gate says of one model."""

    model: str
    baseline: str
    outcome: str
    """PASS, FAIL or UNDECIDED."""
    why: str
    doubted: tuple[str, ...] = ()
    """Where answers that are none could explain a call, the models that gave them: further trials change nothing."""


@dataclass(frozen=True, slots=True)
class LookRow:
    """One look in brief; run.sqlite has it whole."""

    look: int
    trials: int
    resolved: int
    tied: int
    open: int
    out_of_reach: int
    blocked: int


@dataclass(frozen=True, slots=True)
class Caution:
    """Something a reader should know before believing the ranking."""

    kind: str
    model: str | None
    text: str


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """How scores were corrected for what ends a run: that differences look large, or too small to be decided."""

    replays: int
    """So many runs by the same plan, of models that answer as the posterior means of this run's trials say."""
    why_not: str | None = None
    """Why there were none, and no score is corrected."""
    spread: float | None = None
    """What (score - truth)/sigma spreads by in these runs: below 1, intervals are wider than they say."""


@dataclass(frozen=True, slots=True)
class OtherCostRow:
    """What caps count besides the stored answers of the models that the run has today."""

    what: str
    """left: answers of a model that the configuration names no more; lost: answers that never came, at the most that
    they may have cost; lost_verdicts: a judge's replies that never came on answers of the model; unwanted: answers that
    idle slots were asked for ahead and no round wanted;
    baseline: what a verifier was asked before any answer; greedy: one greedy
    answer to each question, which came first (R0); opponent: answers that came first, with which all others are
    compared; regrade: verdicts of a `regrade` that did not come to its end."""
    model: str | None
    trials: int
    tokens: int
    usd: float
    gpu_seconds: float
    """Of requests."""
    counted_gpu_seconds: float
    """What a cap on GPU hours counts: of servers that the run started the time for which they were held."""
    answers: int = 0
    """Where they are unwanted: how many were asked for."""


@dataclass(frozen=True, slots=True)
class BesideFixed:
    """Runs by the same plan, without caps, beside the smallest fixed design that calls as many pairs at one look: means
    over worlds that were drawn from what the outcomes of this one leave open."""

    called: float
    """Pairs."""
    trials: float
    """Of a run, a question of a model."""
    number: float | None
    """Of the fixed design; None: more than the maximum."""
    cost: float
    """The trials of a run in those of that design; where there is no number, in those of the maximum."""
    low: float
    """Of an 80% interval for that."""
    high: float
    worlds: int


@dataclass(frozen=True, slots=True)
class RunCost:
    """What the answers of today's models used, what was spent beside, and what the maximum of trials for everyone would
    have been."""

    trials: int
    fixed_trials: int
    tokens: int
    usd: float
    gpu_seconds: float
    fixed_tokens: float | None = None
    """Each model's trials at what they cost on average; None, as the next two, where a model has none yet."""
    fixed_usd: float | None = None
    fixed_gpu_seconds: float | None = None
    server_seconds: float | None = None
    """The sum over the models, as the next one; None where it is unknown of one that has answered."""
    server_gpu_seconds: float | None = None
    counted_gpu_seconds: float | None = None
    """What `budget.gpu_hours` counts: of servers that the run starts the time for which they were held, of others that
    of requests; and what was spent beside."""
    beside: tuple[OtherCostRow, ...] = ()
    grading: GradingCost | None = None
    """Part of `tokens`, `usd` and `gpu_seconds`; None where nobody was asked for a grade."""
    beside_fixed: BesideFixed | None = None
    """None unless `report --beside-fixed` was asked for it after the run had ended."""

    def in_all(self, of: str) -> float:
        """Trials, tokens, USD or GPU seconds of requests with what was spent beside."""
        return float(getattr(self, of) + sum(getattr(row, of) for row in self.beside))

    @property
    def asked_in_vain(self) -> int:
        """Answers that idle slots were asked for ahead, and that no round came to want."""
        return sum(row.answers for row in self.beside)


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server that the run has started itself, as it was started last."""

    model: str
    command: tuple[str, ...]
    version: str | None
    """Of the server's software, where it tells one."""
    starts: int
    """Over all starts of the run, those after it had died included."""


@dataclass(frozen=True, slots=True)
class TurnsRow:
    """A place where models were served in turn, and what it took to bring them there."""

    on: str
    models: int
    swaps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BatchRow:
    """What is pending at a batch service."""

    model: str
    batch: str | None
    """What the service calls it; None as long as nobody has heard."""
    requests: int
    since: float
    """Seconds since 1970."""
    cancelled: bool = False
    """There was no more patience; what it has not answered is asked for directly."""


@dataclass(frozen=True, slots=True)
class Results:
    """The whole file."""

    format: str
    run: RunInfo
    decisions: Mapping[str, object]
    """What was to be decided, by which rule, at what cost: the configuration's objective, stopping, allocation, trials
    and budget, complete."""
    weights: tuple[float, ...]
    """The value of each category."""
    models: tuple[ModelRow, ...]
    pairs: tuple[PairRow, ...]
    reversals: tuple[tuple[str, str | None], ...]
    """Pairs that were called, and whose first is ahead now though the second was called better."""
    adjusted_p: tuple[tuple[float | None, ...], ...]
    """At (i, j): Holm-adjusted p-value over all pairs against "model i is not better than model j"."""
    looks: tuple[LookRow, ...]
    questions: Sequence[QuestionRow]
    warnings: tuple[Caution, ...]
    cost: RunCost
    trials_to_go: float
    """What the open comparisons still need at most, if the differences stay as they are."""
    servers: tuple[ServerRow, ...] = ()
    """In the order in which they were first started."""
    turns: tuple[TurnsRow, ...] = ()
    gate: tuple[GateRow, ...] = ()
    """Of every model but the baseline, where `objective.gate` is set."""
    batches: tuple[BatchRow, ...] = ()
    """That are not over."""
    metrics: tuple[MetricRow, ...] = ()
    """The metrics of `report.metrics`, metric by metric, the best model first."""
    early_end: EarlyEnd | None = None
    """None while the run goes on, and where it had all of its trials before its first look."""

    @property
    def compares(self) -> bool:
        """Whether the objective compares; else each score is judged by itself, and there is no z."""
        return not self.pairs or any(pair.z is not None for pair in self.pairs)

    @property
    def server_time_is_paid(self) -> bool:
        """The time of servers is what somebody pays: the run has started them itself, or their GPUs are counted."""
        return bool(self.servers) or bool(self.cost.server_gpu_seconds)


@dataclass(frozen=True, slots=True)
class Unjudged:
    """The whole file before the first look."""

    format: str
    run: RunInfo
    weights: tuple[float, ...]
    models: tuple[str, ...]
    """In the order of the configuration."""
    questions: Sequence[QuestionRow]
    why: str | None = None
    """Why the run has ended without a look, and what can be done about it; None while it goes on."""


def why_stopped(name: str, results: Results | None) -> str:
    """The end of the run, and what became of this model's comparisons."""
    if results is None:
        return "the run has not come to its first look"
    row = next((row for row in results.models if row.name == name), None)
    if row is None:
        return "the model has left the run"
    if row.set_aside is not None:
        return f"the model was set aside: {row.set_aside}"
    verdicts = [pair.verdict for pair in results.pairs if name in (pair.better, pair.worse)]
    counted = ", ".join(f"{verdicts.count(one)} {one.replace('_', ' ')}" for one in dict.fromkeys(verdicts))
    ended = "the run has not ended" if results.run.reason is None else f"the run ended ({results.run.reason})"
    return f"{ended}; comparisons of this model: {counted or 'none'}"
