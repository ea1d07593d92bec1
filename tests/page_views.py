"""Views of runs on simulated worlds, without servers or stores, from which these tests draw pages."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml
from checked_text import check_text
from scipy.special import expit

from adaptive_eval.config.planning import core_caps, plan_on
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Bench, Controller, Outcome
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Cost, SetAside
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.machine.repeats import Sampled
from adaptive_eval.machine.usage import TrialUsage
from adaptive_eval.notes import Event, RunFinished, RunStarted
from adaptive_eval.report.build import build_results
from adaptive_eval.report.ending import find_ending
from adaptive_eval.report.finding import has_tiers
from adaptive_eval.report.looks import plain_look
from adaptive_eval.report.next_steps import next_steps
from adaptive_eval.report.records import ReplicaTraffic, Spending
from adaptive_eval.report.results import Results
from adaptive_eval.report.snapshot import RunSubject, complete, take_state
from adaptive_eval.report.status import Used, standings, used_caps
from adaptive_eval.report.view import (
    QuestionView,
    RunView,
    event_view,
    look_views,
    objective_view,
    posterior_views,
    z_matrix,
)
from adaptive_eval.report.words import decisions_in_words
from adaptive_eval.simulate.worlds import World, binary, with_mean
from adaptive_eval.store.read import StoredLook

START = 1.8e9
COST = Cost(tokens=800, usd=0.0012, gpu_seconds=1.5)
SECONDS_A_TRIAL = 0.02
AT_ONCE = 40


def world(models: Sequence[str], questions: int = 6, seed: int = 3) -> World:
    """Models whose true scores fall evenly from 0.85 to 0.3."""
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(0.0, 1.5, questions)
    means = np.linspace(0.85, 0.30, len(models)) if len(models) > 1 else [0.6]
    profiles = [with_mean(expit(rng.normal(0.0, 0.5, questions) - difficulty), mean) for mean in means]
    ids = tuple(f"q{number + 1}" for number in range(questions))
    return World("page", binary(np.array(profiles)), models=tuple(models), questions=ids)


def simulated(
    drawn_from: World, *, looks: int | None = None, set_aside: str | None = None, name: str = "page", **sections: object
) -> RunView:
    """A run on a simulated world, to its end or up to a number of looks; `sections` go into its configuration."""
    config = configuration(drawn_from.models, name, sections)
    bench = Bench(len(drawn_from.models), len(drawn_from.questions), drawn_from.w)
    controller = Controller(plan_on(bench, config, drawn_from.models))
    tape = Tape.from_chances(drawn_from.p, drawn_from.w, np.random.default_rng(1))
    used = Spending()
    if set_aside is not None:
        controller.tell([SetAside(drawn_from.models.index(set_aside), "no replica is left")])
    while controller.finished is None and (looks is None or len(controller.looks) < max(looks, 1)):
        requests = controller.ask(AT_ONCE)
        controller.tell([Outcome(*ask[:3], tape.at(*ask[:3]), COST) for ask in requests])
        used = spent(used, len(requests))
        if looks == 0:
            break
    return view_of(config, drawn_from, controller, used)


def simulated_results(drawn_from: World, **how: object) -> Results:
    """The results of such a run, which has taken a look."""
    results = simulated(drawn_from, **how).results  # type: ignore[arg-type]
    assert results is not None
    return results


def model_verdicts(results: Results) -> tuple[str, ...]:
    """How each model compares with the others, best model first."""
    return tuple(standing.verdict for standing in standings(results))


def configuration(models: Sequence[str], name: str, sections: dict[str, object]) -> RunConfig:
    """The configuration of a run whose servers are never asked."""
    settings: dict[str, object] = {
        "name": name,
        "questions": "questions.jsonl",
        "models": [{"name": model, "base_url": "http://127.0.0.1:8000/v1"} for model in models],
        "sampling": {"temperature": 0.6, "max_tokens": 2000},
        "grader": "numeric",
        "trials": {"min": 4, "max": 30, "optimize": "cost"},
    }
    checked = check_text(yaml.safe_dump(settings | sections), Path("run.yaml"), (), {})
    assert checked.config is not None, checked.problems
    return checked.config


def spent(before: Spending, trials: int) -> Spending:
    """What had been spent after that many more trials."""
    return Spending(
        before.trials + trials,
        before.tokens + trials * COST.tokens,
        before.usd + trials * COST.usd,
        before.gpu_seconds + trials * COST.gpu_seconds,
    )


def view_of(config: RunConfig, drawn_from: World, controller: Controller, used: Spending) -> RunView:
    """The view as `adaptive_eval.report` makes it of a stored run."""
    rubric, trials = open_rubric(config.rubric), controller.arrived.sum(axis=-1)
    elapsed = used.trials * SECONDS_A_TRIAL
    results = _results(config, drawn_from, controller, elapsed)
    events: list[Event] = [RunStarted(version="0.1.0", host="host", pid=1, at=START)]
    if controller.finished is not None:
        events.append(RunFinished(controller.finished, at=START + elapsed))
    ending = find_ending(events, results, int(trials.sum()), config)
    plain = [
        StoredLook(look.index, 0, START + look.index, plain_look(look, drawn_from.models, capped_opening=False))
        for look in controller.looks
    ]
    posteriors, places = posterior_views(controller.arrived.astype(np.int64), rubric.weights)
    return RunView(
        results=results,
        name=config.name,
        objective=objective_view(config.stated()),
        words=decisions_in_words(config, {}, began_at=config.trials.max, imported=False),
        configuration=config.model_dump(mode="json", exclude={"folder"}),
        weights=rubric.weights,
        categories=rubric.names,
        models=drawn_from.models,
        questions=tuple(QuestionView(key, f"What is {key}?", "42", (), None) for key in drawn_from.questions),
        trials=tuple(tuple(row) for row in trials.tolist()),
        posteriors=posteriors,
        posterior_of=places,
        looks=tuple(look_views(plain, compared=objective_view(config.stated()).compares)),
        z=z_matrix(results),
        traffic=tuple(
            ReplicaTraffic(model, "http://127.0.0.1:8000/v1", int(count), 2, 100, 700, 1.25, None)
            for model, count in zip(drawn_from.models, trials.sum(axis=1), strict=True)
        ),
        events=tuple(map(event_view, events)),
        has_tiers=results is None or has_tiers(results),
        elapsed=elapsed,
        ended=None if controller.finished is None else ending.why,
        next_steps=() if controller.finished is None else tuple(next_steps(ending)),
        caps=used_caps(core_caps(config.budget), Used(used), elapsed),
    )


def _results(config: RunConfig, drawn_from: World, controller: Controller, elapsed: float) -> Results | None:
    usages = [
        TrialUsage(trials=count, tokens=count * COST.tokens, usd=count * COST.usd, gpu_seconds=count * COST.gpu_seconds)
        for count in controller.arrived.sum(axis=(1, 2)).tolist()
    ]
    subject = RunSubject(
        name=config.name,
        models=drawn_from.models,
        questions=drawn_from.questions,
        sampled=(Sampled(1.0),) * len(drawn_from.models),
        created=START,
        decisions=config.stated(),
    )
    if (state := take_state(subject, controller, subject.find_repeats(usages))) is None:
        return None
    stopped = controller.finished is None
    return build_results(complete(subject, state, usages, elapsed=elapsed, now=START + elapsed, stopped=stopped))
