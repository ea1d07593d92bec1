"""A part of a run that comes before it: a run of its own, in a folder of the run's directory.

Kills, caps, faults and graders are what they are in any run. What has come of it is written down in the run itself,
with what it has cost, so that nobody who reads the run needs the folder. The caps of the run are on both together.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

from adaptive_eval.config.decisions import BudgetConfig, ObjectiveConfig, StoppingConfig, TrialsConfig
from adaptive_eval.config.reports import ReportConfig
from adaptive_eval.config.run import RunConfig, StoreConfig
from adaptive_eval.core.types import Cost, Reason
from adaptive_eval.record.ending import Ended
from adaptive_eval.record.removed_models import counted_gpu_seconds
from adaptive_eval.record.restore import StoredRun
from adaptive_eval.record.starting_point import StartingPoint
from adaptive_eval.store import CommitBatch, RunFinished, RunReader, RunStopped, Store
from adaptive_eval.store.spending import total_cost

LONGEST_NAME = 100
NEVER_SO_NARROW = 1e-9
PARTS = ("greedy", "opponent")
"""Their folders, and what their costs are called."""
SPENT = (Reason.BUDGET, Reason.WALL_TIME, Reason.GPU_TIME)
"""Reasons that leave nothing for the run itself."""

AskRun = Callable[[StartingPoint], Awaitable[Ended]]
"""Asks for what such a run lacks, to its end."""


class RunSpending(NamedTuple):
    """Usage of a run so far, with lost answers."""

    trials: int
    cost: Cost
    counted_gpu_seconds: float
    """GPU seconds under a cap."""
    seconds: float


class FirstPartFound(NamedTuple):
    """The run with what its first part has found, or how it ended before that was there."""

    beginning: StartingPoint | None
    ended: Ended | None = None


def first_part_changes(config: RunConfig, suffix: str, trials: int, budget: BudgetConfig) -> dict[str, Any]:
    """Settings in which a first part differs from the run: so many trials of each question, by which nothing is
    decided."""
    return {
        "name": config.name[: LONGEST_NAME - len(suffix)] + suffix,
        "objective": ObjectiveConfig.model_validate({"kind": "precision", "half_width": NEVER_SO_NARROW}),
        "stopping": StoppingConfig(),
        "trials": TrialsConfig(min=trials, max=trials, favour=config.trials.favour, seeds=config.trials.seeds),
        "budget": budget,
        "prior_evidence": None,
        "report": ReportConfig(),
        "store": StoreConfig(folder=config.store.folder),
        "notify": None,
    }


def ended_early(ended: Ended, store: Store, *, stopped: bool = False) -> FirstPartFound:
    """The end of the run before it has begun: nothing of it is shown as its result."""
    reason = None if stopped else ended.reason
    store.commit(CommitBatch(events=[RunStopped() if reason is None else RunFinished(reason)]))
    return FirstPartFound(None, replace(ended, reason=reason, results=None, directory=store.directory, servers_up=0))


def run_spending(reader: RunReader, *, without: str | None = None) -> RunSpending:
    """Usage of a run so far, with removed models and, unless that is `without`, with its first part."""
    stored = StoredRun(reader)
    models, sums = stored.setup.roster.models, reader.sums()
    beside = [row for row in stored.beside if row.what != without]
    requests = [sum(one.gpu_seconds for one in sums if one.model == name) for name in models]
    return RunSpending(
        trials=reader.trial_count() + sum(row.trials for row in beside if row.what in PARTS),
        cost=total_cost([*(one for one in sums if one.model in models), *beside]),
        counted_gpu_seconds=counted_gpu_seconds(stored.servers, requests, beside),
        seconds=reader.elapsed,
    )
