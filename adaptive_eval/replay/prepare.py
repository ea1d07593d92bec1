"""From the words of the command line to a replay that could begin."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from adaptive_eval.config.decisions import BudgetConfig, Decisions
from adaptive_eval.config.load import load_decisions
from adaptive_eval.core import Bench, Plan
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.planning import plan_on
from adaptive_eval.replay.recorded_run import read_run
from adaptive_eval.replay.recording import Recording, read_recording
from adaptive_eval.replay.source import Source, source_of_recording, source_of_world
from adaptive_eval.simulate.worlds import WORLDS, World


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be replayed, and with which decisions."""

    what: str
    """A world's name, the path of an .npz file, or a run directory."""
    config: Path | None = None
    overrides: Sequence[str] = ()
    array: str | None = None
    """The array of the file that holds outcomes, where it is not R."""
    top: int | None = None
    """Only the best so many models."""
    timed: bool = False
    in_turn: bool = False
    """The models share a server in turn."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A replay that could begin."""

    source: Source
    plan: Plan
    decisions: Decisions


def prepare(request: Request) -> Prepared:
    """Read the recording and the configuration; raises `ConfigError`."""
    drawn_from = _found(request)
    decisions = load_decisions(request.config, request.overrides, drawn_from.models)
    source = _source(drawn_from, request.what, decisions, request.config)
    if request.top is not None:
        source = source.best(request.top)
        decisions = load_decisions(request.config, request.overrides, source.models)  # which may name those left out
    _require_countable(decisions.budget, request.timed)
    bench = Bench(len(source.models), len(source.questions), source.weights)
    return Prepared(source, plan_on(bench, decisions, source.models, in_turn=request.in_turn), decisions)


def _found(request: Request) -> World | Recording:
    """The world, the file or the run that is meant."""
    what, path = request.what, Path(request.what)
    if what in WORLDS:
        if request.array is not None:
            raise ConfigError(f"--array names an array of a file, but {what} is a world; write ./{what} for a file")
        return WORLDS[what]()
    if not path.exists():
        close = get_close_matches(what, WORLDS, 1)
        mend = f"did you mean {close[0]}?" if close else f"the worlds are {', '.join(WORLDS)}"
        raise ConfigError(f"{what} is neither a file, nor a run, nor a world; {mend}")
    if path.is_dir():
        if request.array is not None:
            raise ConfigError(f"--array names an array of a file, but {what} is a run; leave it out")
        return read_run(path)
    if path.suffix in (".yaml", ".yml"):
        mend = f"name an .npz file, a run or a world, and give this with --config {what}"
        raise ConfigError(f"{what} is a configuration, which has no outcomes; {mend}")
    return read_recording(path, request.array)


def _source(drawn_from: World | Recording, what: str, decisions: Decisions, config: Path | None) -> Source:
    if isinstance(drawn_from, World):
        return source_of_world(drawn_from)
    own = drawn_from.weights if config is None else None
    weights = own if own is not None else np.array(open_rubric(decisions.rubric).weights, dtype=float)
    path = Path(what)
    return source_of_recording(drawn_from, path.name if path.is_dir() else path.stem, weights)


def _require_countable(budget: BudgetConfig, timed: bool) -> None:
    """A cap on what a replay does not have would silently hold nothing back."""
    without = {"tokens": "its trials have no tokens", "usd": "its trials have no price", "gpu_hours": "it has no GPUs"}
    for name, why in without.items():
        if getattr(budget, name) is not None:
            raise ConfigError(f"budget.{name} cannot be kept in a replay, since {why}; --set budget.{name}=null")
    if budget.wall_time is not None and not timed:
        raise ConfigError(
            "budget.wall_time needs --latency: a replay takes no time of its own; or --set budget.wall_time=null"
        )
