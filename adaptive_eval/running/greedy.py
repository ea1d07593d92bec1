"""Greedy answers: one to each question at temperature 0, which are asked before the run itself and count as R0.

They are a run of their own, in a folder of the run's directory, so that kills, caps, faults and graders are what they
are in any run. What has come of it is written down in the run itself, with what it has cost: nobody who reads the run
needs the folder. The caps of the run are on both together.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

from adaptive_eval.config.decisions import BudgetConfig, ObjectiveConfig, StoppingConfig, TrialsConfig
from adaptive_eval.config.prepare import PreparedRun, with_questions
from adaptive_eval.config.reports import ReportConfig
from adaptive_eval.config.run import ModelConfig, RunConfig, StoreConfig
from adaptive_eval.core.types import Cost, Reason
from adaptive_eval.record.earlier import event_prior
from adaptive_eval.record.ending import Ended
from adaptive_eval.record.other_costs import counted_gpu_seconds
from adaptive_eval.record.restore import StoredRun, open_run
from adaptive_eval.record.starting_point import StartingPoint, load_starting_point
from adaptive_eval.record.take_earlier import first_outcomes
from adaptive_eval.store import CommitBatch, PriorTaken, RunFinished, RunReader, RunStopped, Store
from adaptive_eval.store.spending import spent_on_greedy, total_cost

FOLDER = "greedy"
SUFFIX = ".greedy"
LONGEST_NAME = 100
NEVER_SO_NARROW = 1e-9
NEXT_TO_NOTHING = 1e-9
SPENT = (Reason.BUDGET, Reason.WALL_TIME, Reason.GPU_TIME)
"""Reasons that leave nothing for the run itself."""

AskRun = Callable[[StartingPoint], Awaitable[Ended]]
"""Asks for what the greedy run lacks, to its end."""


async def ask_greedily(
    beginning: StartingPoint, store: Store, ask: AskRun, stopped: Callable[[], bool]
) -> StartingPoint | Ended:
    """Have a greedy answer to each question from every model, and keep their categories in the run as R0; gives the run
    with them, or how it ended before they were there.

    A model that cannot be had now is left to the run itself, which takes its answers at a later start.
    """
    directory, names = store.directory / FOLDER, beginning.prepared.models
    left = _left_for_it(beginning.prepared.config, store.reader)
    greedy = load_starting_point(_greedy_run(beginning.prepared, left), directory)
    ended = await ask(greedy)
    if stopped() or ended.reason is None or ended.reason in SPENT:
        return _ended_early(ended, store, stopped=stopped())
    with open_run(directory) as asked:
        found, spent = first_outcomes(asked, names), _spent_without_greedy(asked.reader)
    if not found:
        return _ended_early(ended, store)
    kept = {} if beginning.kept is None else dict(beginning.kept.outcomes)
    section = beginning.prepared.config.prior_evidence
    assert section is not None and beginning.with_prior is not None
    event = PriorTaken(
        section.model_dump(mode="json"),
        greedy.prepared.config.name,
        kept | found,
        True,
        spent.trials,
        *spent.cost,
        spent.counted_gpu_seconds,
        spent.seconds,
    )
    before = spent_on_greedy(store.reader.events())
    more = spent.seconds - (0.0 if before is None else before.seconds)
    store.commit(CommitBatch(events=[event], elapsed=store.reader.elapsed + more))
    return beginning._replace(prepared=beginning.with_prior(event_prior(event, section)), prior=event)


def _ended_early(ended: Ended, store: Store, *, stopped: bool = False) -> Ended:
    """The end of the run before it has begun: nothing of it is shown as its result."""
    reason = None if stopped else ended.reason
    store.commit(CommitBatch(events=[RunStopped() if reason is None else RunFinished(reason)]))
    return replace(ended, reason=reason, results=None, directory=store.directory, servers_up=0)


def _greedy_run(prepared: PreparedRun, left: BudgetConfig) -> PreparedRun:
    """One trial a question at temperature 0, graded as the run is; it decides nothing."""
    config = prepared.config
    changes = {
        "name": config.name[: LONGEST_NAME - len(SUFFIX)] + SUFFIX,
        "models": tuple(map(_greedily, config.models)),
        "objective": ObjectiveConfig.model_validate({"kind": "precision", "half_width": NEVER_SO_NARROW}),
        "stopping": StoppingConfig(),
        "trials": TrialsConfig(min=1, max=1, favour=config.trials.favour, seeds=config.trials.seeds),
        "budget": left,
        "prior_evidence": None,
        "report": ReportConfig(),
        "store": StoreConfig(folder=config.store.folder),
        "notify": None,
    }
    return with_questions(config.model_copy(update=changes), prepared.questions)


def _greedily(model: ModelConfig) -> ModelConfig:
    """The model at temperature 0, where only the likeliest token counts."""
    extra = {key: value for key, value in model.sampling.extra_body.items() if key not in DRAWING}
    sampling = {"temperature": 0.0, "top_p": None, "top_k": None, "min_p": None, "extra_body": extra}
    changes = {
        "sampling": model.sampling.model_copy(update=sampling),
        "concurrency": model.concurrency.model_copy(update={"samples_per_request": 1}),
    }
    return model.model_copy(update=changes)


DRAWING = ("temperature", "top_p", "top_k", "min_p")
"""Body keys that say how a token is drawn."""


def _left_for_it(config: RunConfig, reader: RunReader) -> BudgetConfig:
    """The caps without what the run itself has used by now; next to nothing if that is all of them."""
    spent, budget, first = _spent_without_greedy(reader), config.budget, spent_on_greedy(reader.events())
    seconds = spent.seconds - (0.0 if first is None else first.seconds)

    def remaining(cap: float | None, used: float) -> float | None:
        return None if cap is None else max(cap - used, NEXT_TO_NOTHING)

    return budget.model_copy(
        update={
            "trials": None if budget.trials is None else max(budget.trials - spent.trials, 1),
            "tokens": None if budget.tokens is None else max(budget.tokens - spent.cost.tokens, 1),
            "usd": remaining(budget.usd, spent.cost.usd),
            "gpu_hours": remaining(budget.gpu_hours, spent.counted_gpu_seconds / 3600.0),
            "wall_time": remaining(budget.wall_time, seconds),
        }
    )


class _Spending(NamedTuple):
    """Usage of a run so far, with lost answers."""

    trials: int
    cost: Cost
    counted_gpu_seconds: float
    """GPU seconds under a cap."""
    seconds: float


def _spent_without_greedy(reader: RunReader) -> _Spending:
    """Usage of a run so far, with removed models and without its greedy answers."""
    stored = StoredRun(reader)
    models, sums = stored.setup.roster.models, reader.sums()
    beside = [row for row in stored.other_costs if row.what != FOLDER]
    requests = [sum(one.gpu_seconds for one in sums if one.model == name) for name in models]
    return _Spending(
        trials=reader.trial_count(),
        cost=total_cost([*(one for one in sums if one.model in models), *beside]),
        counted_gpu_seconds=counted_gpu_seconds(stored.servers, requests, beside),
        seconds=reader.elapsed,
    )
