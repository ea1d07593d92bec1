"""Whatever happens to a run, it buys nothing twice, loses nothing, and ends with the ranking of an undisturbed one."""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import wraps
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from ledger_check import Books, Trial, stored_looks, stored_rows
from lives import QUESTIONS, SKILLS, Fate, Start, World

from adaptive_eval.base.errors import ConfigError, ExitCode
from adaptive_eval.config.load import load_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Reason
from adaptive_eval.exchange.configure import ImportRequest
from adaptive_eval.exchange.export import export
from adaptive_eval.report.reader import RunReader

FATES = st.sampled_from([Fate.NOTHING, Fate.KILL, Fate.KILL, Fate.STOP, Fate.STOP_AT_ONCE])
MOMENTS = st.one_of(st.integers(1, 12), st.integers(1, 250))
FAILING = st.one_of(st.just({}), st.dictionaries(st.sampled_from(sorted(SKILLS)), st.integers(1, 20), max_size=1))
"""Now and then a model whose server goes away after some answers."""

WAYS = [
    {},
    {"objective": {"kind": "top_k", "k": 1}},
    {"objective": "best"},
    {"objective": {"kind": "threshold", "value": 0.45}},
    {"stopping": {"rule": "anytime"}},
]
"""To decide, besides the usual one."""
LONGEST = 10
"""Horizons are few: the boundary of each is solved for once, which takes longer than a whole run here."""
MEMORY = Path("/dev/shm")
"""Processes die here, not machines: the disk need not be a real one."""


def only_if(met: "Callable[[Lives], object]") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule that else does nothing: a precondition may not depend on how far a start comes before it is killed, which
    is another thing each time."""

    def only(really: Callable[..., None]) -> Callable[..., None]:
        @wraps(really)
        def step(life: "Lives", *arguments: Any, **named: Any) -> None:
            if met(life):
                really(life, *arguments, **named)

        return step

    return only


def by_model(looks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Looks with their lists as mappings: a model that joined later has a later place."""
    listed = ("scores", "sigmas", "tiers", "trials")
    return [
        {**look, "models": None, **{key: dict(zip(look["models"], look[key], strict=True)) for key in listed}}
        for look in looks
    ]


class Lives(RuleBasedStateMachine):
    """The lives of one run."""

    @initialize(
        run_seed=st.integers(0, 2**31 - 1),
        consecutive=st.booleans(),
        slots=st.sampled_from([1, 3, 16]),
        samples=st.sampled_from([1, 1, 2, 5]),
        min_trials=st.integers(1, 2),
        horizon=st.sampled_from([1, 2, 4]),
        pace=st.sampled_from(["cost", "time"]),
        budget=st.one_of(st.none(), st.integers(36, 120)),
        broken=st.sets(st.sampled_from(QUESTIONS), max_size=2),
        published=st.sampled_from([False, False, True]),
        benchmarks=st.booleans(),
        decisions=st.sampled_from(WAYS),
    )
    def begin(
        self,
        run_seed: int,
        consecutive: bool,
        slots: int,
        samples: int,
        min_trials: int,
        horizon: int,
        pace: str,
        budget: int | None,
        broken: set[str],
        published: bool,
        benchmarks: bool = False,
        decisions: dict[str, Any] | None = None,
    ) -> None:
        self.stack = ExitStack()
        place = MEMORY if MEMORY.is_dir() else None
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(dir=place)))
        self.settings: dict[str, Any] = {
            "seed": run_seed,
            "sampling": {"temperature": 0.6, "max_tokens": 100},
            "grader": "exact",
            "trials": {
                "min": min_trials,
                "max": min_trials * horizon,
                "optimize": pace,
                "seeds": "consecutive" if consecutive else "hashed",
            },
            "concurrency": {"in_flight": slots, "samples_per_request": samples},
        }
        if published:
            self.settings["stopping"] = {"rule": "published"}
            self.settings["trials"] |= {"policy": "unresolved_pairs", "optimize": "cost"}
        self.settings |= {} if budget is None else {"budget": {"trials": budget}}
        self.settings |= decisions or {}
        self.models = list(SKILLS)
        self.extended = False
        self.moves = 0
        self.steady = not broken
        """Nothing that looks depend on has changed since it began."""
        self.has_ended = True
        """The newest start was not killed, which leaves answers that no look has judged."""
        self.sound = True
        self.world = World(broken=broken)
        self.directory = self.folder / "run"
        self.books = Books(self.directory, run_seed, consecutive)
        if benchmarks:
            parts = [{"name": name, "questions": f"{name}.jsonl"} for name in ("main", "side")]
            self.settings["benchmarks"] = parts
            self.books.shares = {"main/q0": 1 / 6, "main/q1": 1 / 6, "main/q2": 1 / 6, "side/q3": 1 / 2}
            self.books.answers = dict.fromkeys(self.books.shares, "right")
        else:
            self.settings["questions"] = "questions.jsonl"
        self.write_questions(self.books.answers)

    def write_questions(self, answers: Mapping[str, str]) -> None:
        for name, rows in groupby(answers, key=lambda key: key.rpartition("/")[0]):
            lines = ({"id": key[-2:], "prompt": f"ask {key}", "answer": answers[key]} for key in rows)
            (self.folder / f"{name or 'questions'}.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def config(self) -> RunConfig:
        models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in self.models]
        path = self.folder / "run.yaml"
        path.write_text(json.dumps(self.settings | {"models": models}))
        return load_config(path)

    @rule(fate=FATES, at=MOMENTS, failing=FAILING)
    def start(self, fate: Fate, at: int, failing: dict[str, int]) -> None:
        self.sound = False
        before = frozenset(self.books.rows)
        results = self.directory / "results.json"
        written = results.stat().st_mtime_ns if results.exists() else None
        self.has_ended = self.world.run(self.config(), self.directory, Start(fate, at, failing)) is not None
        self.books.check(self.world, fate, self.models)
        self.steady = self.steady and not self.world.aside
        if fate is not Fate.STOP_AT_ONCE or written != results.stat().st_mtime_ns:  # stopped before it was replayed
            self.books.check_results(fate, self.steady)
        self.within_caps(before)
        self.sound = True

    def within_caps(self, before: Collection[Trial]) -> None:
        """A cap that was changed, or that models bear together which join, leave and come back, is never exceeded.

        What was asked for while another model was away, and no round wants since, comes on top of the horizon.
        """
        rows = self.books.rows
        assert len(rows) <= max(self.settings.get("budget", {}).get("trials", len(rows)), len(before))
        limit = self.settings["trials"]["max"] * len(QUESTIONS)
        stored = Counter(trial[0] for trial in rows).values()
        judged = [number for look in self.books.looks for number in look["trials"]]
        # rounds that are composed anew, as once a model is back, may want other trials than are there
        assert max([*judged, *(stored if self.steady else ())], default=0) <= limit, "beyond the horizon"
        asked = Counter(trial[0] for trial in rows.keys() - before)
        assert max(asked.values(), default=0) <= limit, "asked for beyond the horizon"

    @precondition(lambda self: self.world.broken)
    @rule()
    def mend_the_grader(self) -> None:
        self.world.broken = set()

    @rule(question=st.sampled_from(QUESTIONS))
    def break_the_grader(self, question: str) -> None:
        self.world.broken, self.steady = {question}, False

    @rule(number=st.one_of(st.none(), st.integers(0, 3)), killed=st.booleans(), at=st.integers(1, 60))
    @only_if(lambda life: life.books.rows)
    def regrade(self, number: int | None, killed: bool, at: int) -> None:
        """`adaptive-eval regrade --config`, perhaps with another answer key for one question; it refuses models of
        which the run has nothing."""
        with RunReader.intact(self.directory) as reader:
            known = set(reader.model_names.values())
        if not known.issuperset(self.models):
            with pytest.raises(ConfigError):
                self.world.regrade(self.directory, Start(Fate.NOTHING, at), self.config())
            return
        answers = dict(self.books.answers)
        if number is not None:
            key = list(answers)[number]
            answers[key] = "wrong" if answers[key] == "right" else "right"
        self.write_questions(answers)
        before = len(self.world.log)
        self.world.regrade(self.directory, Start(Fate.KILL if killed else Fate.NOTHING, at), self.config())
        assert len(self.world.log) == before, "a regrade asks for nothing"
        self.books.check_regraded(answers, self.world.broken, killed=killed)
        self.write_questions(self.books.answers)
        self.steady, self.extended = False, self.extended or self.books.begins_with_all

    @rule()
    @only_if(lambda life: life.books.rows)
    def read(self) -> None:
        """`adaptive-eval verify` and `report`, also of a run that was killed."""
        done = typed("verify", self.directory, code=ExitCode.REACHED)
        done = typed("report", self.directory, "--format", "json", "-o", "-", code=ExitCode.REACHED)
        if (results := json.loads(done.stdout)["run"]["results"]) is not None:
            self.books.check_sums(results, self.steady and self.has_ended)
        self.books.check_unchanged()

    @rule(
        parts=st.sampled_from([1, 1, 2]),
        killed=st.booleans(),
        at=st.integers(1, 60),
        form=st.sampled_from(["jsonl", "jsonl", "csv"]),
    )
    @only_if(lambda life: life.books.rows)
    def go_on_elsewhere(self, parts: int, killed: bool, at: int, form: str = "jsonl") -> None:
        """Export the run and import it, perhaps from two files, under the configuration of now."""
        self.sound = False
        self.moves += 1
        log, directory = self.folder / f"exported_{self.moves}.{form}", self.folder / f"run_{self.moves}"
        export(self.directory, form, log, texts=True)
        self.models, files = list(SKILLS), [log]
        if form == "jsonl":
            self.books.check_export(log)
            lines = log.read_text().splitlines()
            files = [self.folder / f"part_{self.moves}_{part}.jsonl" for part in range(min(parts, len(lines)))]
            for part, file in enumerate(files):
                file.write_text("\n".join(lines[part::parts]))
        request = ImportRequest(list(map(str, files)), directory, self.config())
        before = len(self.world.log)
        if self.world.import_logs(request, Start(Fate.KILL if killed else Fate.NOTHING, at)):
            self.directory = directory
            self.extended = False  # its looks are those of a run that has had this configuration all along
            self.books.move(directory)
            self.books.check_results(Fate.NOTHING, self.steady)
        else:
            assert not directory.exists()
        assert len(self.world.log) == before, "an import asks for nothing"
        self.sound = True

    @precondition(lambda self: self.settings["trials"]["max"] < LONGEST)
    @rule()
    def double_the_horizon(self) -> None:
        self.settings["trials"]["max"] *= 2
        self.extended, self.steady = True, False

    @rule(decisions=st.sampled_from(WAYS))
    def decide_otherwise(self, decisions: dict[str, Any]) -> None:
        self.extended, self.steady = True, False
        for key in ("objective", "stopping"):
            self.settings.pop(key, None)
        self.settings |= decisions

    @rule(slots=st.sampled_from([1, 3, 16]), samples=st.sampled_from([1, 2, 5]))
    def ask_otherwise(self, slots: int, samples: int) -> None:
        self.settings["concurrency"] = {"in_flight": slots, "samples_per_request": samples}

    @precondition(lambda self: "budget" in self.settings)
    @rule(by=st.integers(-40, 60))
    def change_the_budget(self, by: int) -> None:
        """Another cap holds from the next look on; looks that were taken stand."""
        self.steady, self.extended = False, self.extended or bool(by and self.books.looks)
        self.settings["budget"] = {"trials": max(self.settings["budget"]["trials"] + by, len(self.books.rows), 1)}

    @rule(model=st.sampled_from(sorted(SKILLS)))
    def leave_or_come_back(self, model: str) -> None:
        self.steady, self.extended = False, self.extended or bool(self.books.looks)
        if model not in self.models:
            self.models.append(model)
        elif len(self.models) > 2:
            self.models.remove(model)

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            with self.stack:
                if self.sound:  # else an error is on its way already
                    self.mended()

    def mended(self) -> None:
        """In the end everything works, and an undisturbed run of the same settings is the judge."""
        for model in set(SKILLS).difference(self.models):
            self.leave_or_come_back(model)
        self.world.broken, self.models = set(), list(SKILLS)
        before = frozenset(self.books.rows)
        ended = self.world.run(self.config(), self.directory, Start())
        self.books.check(self.world, Fate.NOTHING)
        self.within_caps(before)
        reference = World().run(self.config(), self.folder / "reference", Start())
        assert ended is not None and reference is not None
        if reference.results is None:  # the budget does not pay for a look
            return
        self.books.check_the_end()
        self.books.check_results(Fate.NOTHING, self.steady)
        reference_rows = stored_rows(self.folder / "reference")
        if self.books.rows.keys() - reference_rows.keys() and ended.reason is Reason.BUDGET:
            # spent on what it does not ask for, as while a model was away: looks are its own until one has other trials
            for look, its in zip(
                *map(by_model, (self.books.looks, stored_looks(self.folder / "reference"))), strict=False
            ):
                if self.extended or look["trials"] != its["trials"]:
                    return
                assert look == its
            return
        if self.extended:  # looks stand, whatever has changed after them, and decide what follows
            return
        assert ended.reason == reference.reason
        assert by_model(self.books.looks) == by_model(stored_looks(self.folder / "reference"))
        assert all(
            self.books.rows[trial] == reference_rows[trial] for trial in reference_rows.keys() & self.books.rows.keys()
        )
        if self.settings["trials"]["optimize"] == "cost":  # else how much is asked ahead depends on what took how long
            assert reference_rows.keys() <= self.books.rows.keys()


def stopped_and_regraded(life: Lives) -> None:
    """Its looks begin with all trials of the rounds that were asked for without the grades that came then."""
    life.begin(4442250, True, 1, 2, 1, 2, "cost", 81, {"q3"}, False)
    life.start(Fate.STOP_AT_ONCE, 239, {})
    life.break_the_grader("q0")
    life.regrade(None, False, 2)
    life.regrade(None, False, 1)
    life.start(Fate.KILL, 134, {})


def without_the_best(life: Lives) -> None:
    """The other two need fewer trials than were asked for while the first was there."""
    life.begin(7876133, False, 16, 5, 2, 2, "cost", None, set(), False)
    life.start(Fate.KILL, 159, {"cyd": 4})
    life.leave_or_come_back("ada")
    life.start(Fate.STOP_AT_ONCE, 209, {})


def with_one_who_comes_back(life: Lives) -> None:
    """The last trial of another was asked for while it was set aside, and no round wants it any more."""
    life.begin(285082, True, 3, 1, 2, 2, "time", None, set(), False)
    life.start(Fate.NOTHING, 5, {"bob": 2})
    life.start(Fate.NOTHING, 3, {})


def with_scores_that_are_equal(life: Lives) -> None:
    """But for the last bit of one."""
    life.begin(43, False, 3, 1, 2, 4, "cost", 69, set(), True)
    life.double_the_horizon()


def over_and_moved(life: Lives) -> None:
    """An import once had its questions in another order, by which the last trials went elsewhere."""
    life.begin(41493413, False, 16, 1, 1, 4, "cost", 76, set(), False)
    life.start(Fate.NOTHING, 7, {})
    life.start(Fate.KILL, 8, {})
    life.go_on_elsewhere(2, False, 35)


def spent_by_two(life: Lives) -> None:
    """The cap bears less of the third, which was away, than where all three were there from the first."""
    life.begin(0, False, 1, 1, 1, 4, "cost", 36, {"q0"}, True)
    life.mend_the_grader()
    life.leave_or_come_back("ada")
    life.start(Fate.NOTHING, 1, {})


def without_grades_at_its_first_look(life: Lives) -> None:
    """Half of the opening had no grade, which was once taken for an opening of half the size."""
    life.begin(72, False, 16, 1, 1, 16, "time", 108, {"q0", "q1"}, False)
    life.start(Fate.NOTHING, 1, {})


def without_a_score(life: Lives) -> None:
    """Models with questions without a grade once had a difference, by the uniform prior."""
    life.begin(51, False, 3, 1, 2, 2, "cost", None, {"q0", "q1"}, True)
    life.start(Fate.STOP, 164, {})


def with_one_who_joins_at_the_end(life: Lives) -> None:
    """The looks of the two who were there from the first stand."""
    life.begin(0, False, 1, 1, 1, 1, "cost", None, set(), False)
    life.leave_or_come_back("ada")
    life.start(Fate.NOTHING, 1, {})


ONCE = [
    stopped_and_regraded,
    without_the_best,
    with_one_who_comes_back,
    with_scores_that_are_equal,
    over_and_moved,
    spent_by_two,
    without_grades_at_its_first_look,
    without_a_score,
    with_one_who_joins_at_the_end,
]


@pytest.mark.slow
@pytest.mark.parametrize("steps", ONCE)
def test_a_life_that_once_failed_passes(steps: Callable[[Lives], None]) -> None:
    life = Lives()
    try:
        steps(life)
    finally:
        life.teardown()


MANY = 2000
CHUNKS = 8


def lives(histories: int, steps: int, number: int = 0) -> None:
    """That many histories, different ones for every number."""
    chosen = settings(
        max_examples=histories,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink] if histories < MANY // CHUNKS else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(type("Lives", (Lives,), {})), settings=chosen)


def test_some_lives_of_a_run() -> None:
    lives(histories=4, steps=6)


@pytest.mark.slow
def test_more_lives_of_a_run() -> None:
    lives(histories=6, steps=6)


@pytest.mark.release
@pytest.mark.parametrize("number", range(1, CHUNKS + 1))
def test_two_thousand_lives_of_a_run(number: int) -> None:
    lives(histories=MANY // CHUNKS, steps=8, number=number)
