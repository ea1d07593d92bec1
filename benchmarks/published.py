"""What the published procedure calls between exact ties, beside the default, and what each spends on recorded sets.

    python benchmarks/published.py [--quick] [--json PATH] [--markdown PATH] [--data PATH]

The rule `published` judges z of Bayes@N > 1.645 anew at every look. Its 95% is that of one look. Measured: how often it
names a winner between two copies of one model on 30 questions, looking once at 80 trials, and after every round from 4
to 80; how often between two copies in the midst of a leaderboard, whose numbers of trials differ by what their
neighbours need; and on replays of recorded sets and the coins, its cost, calls and wrong calls.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scenarios import CAP, Run, Scenario, recorded, replay, simulated
from tables import Check, add_data, arguments, check_table, machine, markdown, publish

from adaptive_eval.config.load import load_decisions
from adaptive_eval.config.planning import plan_on
from adaptive_eval.core import Bench, Controller, Plan, Verdict
from adaptive_eval.core.tape import Tape
from adaptive_eval.simulate.worlds import World, binary
from adaptive_eval.study.drive import drive_rounds
from scorio.moments import FloatArray

BINARY, QUESTIONS = np.array([0.0, 1.0]), 30
RULE: Mapping[str, object] = {"rule": "published"}
TRIALS: Mapping[str, object] = {"policy": "unresolved_pairs", "optimize": "cost"}
PUBLISHED: Mapping[str, object] = {"stopping": RULE, "trials": TRIALS}
SETTINGS: Mapping[str, Mapping[str, object]] = {
    "published": PUBLISHED,
    "default": {"trials": {"optimize": "cost"}},
}
ONE_LOOK = {"stopping": RULE, "trials": {**TRIALS, "min": CAP, "max": CAP}}


class Ties(NamedTuple):
    """Shares of runs that name a winner between two copies."""

    once: float
    published: float
    default: float


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    add_data(parser)
    options = parser.parse_args()
    runs = 20 if options.quick else 300
    began = time.perf_counter()
    worlds = {"fair coins": np.full(QUESTIONS, 0.5), "coins of 0.9": np.full(QUESTIONS, 0.9)}
    sets = [simulated("coins")]
    if options.data.is_dir():
        sets.append(recorded(options.data, "aime2024"))
        chances = sets[-1].world.p[:, :, 1]
        worlds |= {f"AIME'24, place {place + 1}": chances[place] for place in ((0, 11) if options.quick else range(12))}
    ties = {name: _ties(chances, runs) for name, chances in worlds.items()}
    midst = {scenario.name: _in_the_midst(scenario, _fewer(runs)) for scenario in sets}
    replays = {
        scenario.name: {name: _replays(scenario, name, max(runs // 6, 5)) for name in SETTINGS} for scenario in sets
    }
    checks = _checks(ties, midst, runs)
    publish(options, _document(ties, midst, replays, checks, runs, time.perf_counter() - began), checks)


def _fewer(runs: int) -> int:
    return max(runs // 3, 5)


def plan(settings: Mapping[str, object], models: int, questions: int) -> Plan:
    """The plan that a configuration means."""
    names = [f"model-{number}" for number in range(models)]
    decisions = load_decisions(None, [f"{name}={json.dumps(section)}" for name, section in settings.items()], names)
    return plan_on(Bench(models, questions, BINARY), decisions, names)


def _ties(chances: FloatArray, runs: int) -> Ties:
    """Two copies of one model, compared with each other alone."""
    pair = np.stack([chances, chances])
    return Ties(*(_named(settings, pair, runs) for settings in (ONE_LOOK, *SETTINGS.values())))


def _named(settings: Mapping[str, object], chances: FloatArray, runs: int) -> float:
    chosen = plan(settings, 2, len(chances[0]))
    world = World("tie", binary(chances))
    ended = (_run(chosen, world, seed).latest_look() for seed in range(runs))
    return sum(look.comparisons[0].verdict is Verdict.RESOLVED for look in ended if look is not None) / runs


def _run(chosen: Plan, world: World, seed: int) -> Controller:
    tape = Tape.from_chances(world.p, world.w, np.random.default_rng(seed))
    return drive_rounds(Controller(chosen, keep_looks=False), tape)


def _in_the_midst(scenario: Scenario, runs: int) -> Ties:
    """A leaderboard with a copy of one of its models, another one in each run."""
    chances = scenario.world.p[:, :, 1]
    shares = []
    for settings in (ONE_LOOK, *SETTINGS.values()):
        chosen = plan(settings, len(chances) + 1, chances.shape[1])
        called = 0
        for seed in range(runs):
            twin = seed % len(chances)
            world = World("midst", binary(np.concatenate([chances, chances[twin : twin + 1]])))
            standing = _run(chosen, world, seed).last_look
            assert standing is not None
            at = standing.evidence.plain_positions(np.array([[twin, len(chances)]]))
            called += int(standing.memory.call[at][0] != 0)
        shares.append(called / runs)
    return Ties(*shares)


def _replays(scenario: Scenario, name: str, runs: int) -> list[Run]:
    models, questions, _ = scenario.world.p.shape
    return [replay(scenario, plan(SETTINGS[name], models, questions), seed) for seed in range(runs)]


def _checks(ties: Mapping[str, Ties], midst: Mapping[str, Ties], runs: int) -> list[Check]:
    def mean(of: str) -> float:
        return float(np.mean([getattr(tie, of) for tie in ties.values()]))

    highest, few = max(tie.default for tie in ties.values()), max(tie.default for tie in midst.values())
    bound, few_bound = _allowed(runs), _allowed(_fewer(runs))
    return [
        Check("ties called, published, one look at 80", mean("once"), "0.10 by its z", None),
        Check("ties called, published, a look after every round", mean("published"), "no promise", None),
        Check("ties called, default", mean("default"), "<= 0.10", mean("default") <= 0.10),
        Check("the most of any two copies, default", highest, f"<= 0.10 (Monte Carlo: {bound:.3f})", highest <= bound),
        Check("the most in any midst, default", few, f"<= 0.10 (Monte Carlo: {few_bound:.3f})", few <= few_bound),
    ]


def _allowed(runs: int) -> float:
    """The promise and three standard errors: there are as many worlds as any could lie beyond two."""
    return 0.10 + 3.0 * float(np.sqrt(0.10 * 0.90 / runs))


def _document(
    ties: Mapping[str, Ties],
    midst: Mapping[str, Ties],
    replays: Mapping[str, Mapping[str, Sequence[Run]]],
    checks: Sequence[Check],
    runs: int,
    seconds: float,
) -> str:
    head = ["two copies of", "published, one look", "published, every round", "default"]
    parts = [
        "# The published procedure",
        f"What `benchmarks/published.py` prints. The rule `published` and the default (`trials.optimize: cost`), 4 to "
        f"{CAP} trials a question; {runs} runs for each two copies.",
        check_table(checks),
        "## Winners named between exact ties",
        markdown(head, [(name, *tie) for name, tie in ties.items()]),
        "By z = 1.645 a single look names a winner in 10%. A run that looks after every round and ends where it has an "
        "order takes the first chance that it is given.",
        "## A copy in the midst of a leaderboard",
        markdown(["leaderboard", *head[1:]], [(name, *tie) for name, tie in midst.items()]),
        "There the copies have unequal numbers of trials, which pull Bayes@N to the middle unequally.",
        "## Replays",
        markdown(
            ["set", "procedure", "share of the fixed cost", "called", "wrong calls", "tau-b"],
            [
                (
                    name,
                    procedure,
                    *(
                        float(np.mean([getattr(run, of) for run in ended]))
                        for of in ("share", "called", "wrong", "tau")
                    ),
                )
                for name, by_procedure in replays.items()
                for procedure, ended in by_procedure.items()
            ],
        ),
        f"{machine()}; {seconds:.0f} s.",
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
