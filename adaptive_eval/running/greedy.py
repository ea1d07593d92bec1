"""Greedy answers: one to each question at temperature 0, which are asked first and count as R0 (`first_part`)."""

from collections.abc import Callable

from adaptive_eval.config.decisions import BudgetConfig
from adaptive_eval.config.prepare import PreparedRun, with_questions
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.record.prior import event_prior
from adaptive_eval.record.restore import open_run
from adaptive_eval.record.starting_point import StartingPoint, load_starting_point
from adaptive_eval.record.take_prior import first_outcomes
from adaptive_eval.running.first_part import (
    SPENT,
    AskRun,
    FirstPartFound,
    ended_early,
    first_part_changes,
    run_spending,
)
from adaptive_eval.store import CommitBatch, PriorTaken, RunReader, Store
from adaptive_eval.store.spending import spent_on_greedy

FOLDER = "greedy"
SUFFIX = ".greedy"
NEXT_TO_NOTHING = 1e-9


async def ask_greedily(
    beginning: StartingPoint, store: Store, ask: AskRun, stopped: Callable[[], bool]
) -> FirstPartFound:
    """Have a greedy answer to each question from every model, and keep their categories in the run as R0.

    A model that cannot be had now is left to the run itself, which takes its answers at a later start.
    """
    directory, names = store.directory / FOLDER, beginning.prepared.models
    left = _left_for_it(beginning.prepared.config, store.reader)
    greedy = load_starting_point(_greedy_run(beginning.prepared, left), directory)
    ended = await ask(greedy)
    if stopped() or ended.reason is None or ended.reason in SPENT:
        return ended_early(ended, store, stopped=stopped())
    with open_run(directory) as asked:
        found, spent = first_outcomes(asked, names), run_spending(asked.reader)
    if not found:
        return ended_early(ended, store)
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
    return FirstPartFound(beginning._replace(prepared=beginning.with_prior(event_prior(event, section)), prior=event))


def _greedy_run(prepared: PreparedRun, left: BudgetConfig) -> PreparedRun:
    """One trial a question at temperature 0, graded as the run is; it decides nothing."""
    config = prepared.config
    changes = {**first_part_changes(config, SUFFIX, 1, left), "models": tuple(map(_greedily, config.models))}
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
    spent, budget, first = run_spending(reader, without=FOLDER), config.budget, spent_on_greedy(reader.events())
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
