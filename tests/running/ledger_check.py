"""Checks that a history adds up: the database against what the server was asked for.

Written from the format and the promises alone, with no code of the product: SQL, sums, and the seeds' formula.
"""

import json
import math
import sqlite3
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from lives import QUESTIONS, SKILLS, Fate, Request, World, server_answer

Trial = tuple[str, str, int]
TO_BE_GRADED = (
    "SELECT name, count(*) FROM trials JOIN models ON models.id = model WHERE state = 'judging' GROUP BY name"
)
"""Answers that a stop has left to the next start, by model."""
MOST_IN_FLIGHT = 16 * 5
"""Answers that a model may be asked for at a time."""


class Row(NamedTuple):
    """A stored trial."""

    seed: int
    category: int | None
    text: str


@dataclass
class Books:
    """What was true after each start."""

    directory: Path
    seed: int
    consecutive: bool
    answers: dict[str, str] = field(default_factory=lambda: dict.fromkeys(QUESTIONS, "right"))
    """The answer key of each question."""
    shares: dict[str, float] = field(default_factory=lambda: dict.fromkeys(QUESTIONS, 1 / len(QUESTIONS)))
    """Of each question in the score of a model."""
    rows: dict[Trial, Row] = field(default_factory=dict)
    checked: int = 0
    """Requests of the log that were looked at."""
    reported: Counter[str] = field(default_factory=Counter)
    """Answers of each model that the run says it has lost, or has still to come."""
    losses: list[dict[str, Any]] = field(default_factory=list)
    """Its events of lost answers."""

    def base(self, model: str, question: str) -> int:
        """The seed of trial 0."""
        if self.consecutive:
            return self.seed
        digest = blake2b(digest_size=8)
        for part in (str(self.seed), model, question):
            digest.update(len(part.encode()).to_bytes(8, "big") + part.encode())
        return int.from_bytes(digest.digest(), "big") % 2**31

    def trial_of(self, asked: Request) -> Trial:
        """Which trial a request was for."""
        number = (asked.seed - self.base(asked.model, asked.question)) % 2**31
        assert number < 1000, f"a seed of no trial: {asked}"
        return asked.model, asked.question, number

    def check(self, world: World, fate: Fate, models: Sequence[str] = tuple(SKILLS)) -> None:
        """After one start everything stored was asked for once, and nothing is missing or changed."""
        before, self.rows = self.rows, stored_rows(self.directory)
        asked = [self.trial_of(request) for request in world.log[self.checked :]]
        refused = {self.trial_of(request) for request in world.refused if request.start == world.starts}
        self._same_or_graded(before)
        assert max(Counter(asked).values(), default=1) == 1, "asked twice in one start"
        assert not set(asked) & before.keys(), "asked although it was there"
        new = self.rows.keys() - before.keys()
        assert new <= set(asked) - refused, "stored, but never served"
        lost = set(asked) - new - refused
        assert not lost or fate in (Fate.KILL, Fate.STOP_AT_ONCE), f"served and lost: {lost}"
        late = world.log[max(world.entered, self.checked) :] if world.start.dead else []
        untold = Counter(request.model for request in late)
        has_costs = any(model in models for model, _, _ in before)
        self._right_losses(Counter(model for model, _, _ in lost), untold, fate, has_costs=has_costs)
        assert {model for model, _, _ in asked} <= set(models), "a model that is not there was asked"
        for start, model, length in world.aside:
            late = [request for request in world.log[length:] if (request.start, request.model) == (start, model)]
            assert not late, f"asked of a model that was set aside: {late}"
        self._right_rows(new)
        self.checked = len(world.log)

    def _right_losses(self, lost: Counter[str], untold: Counter[str], fate: Fate, *, has_costs: bool) -> None:
        """What is lost is told, but for answers that were asked for since the newest commit of a start that was killed,
        and counts as much as stored answers do, if there are any; what was entered and not sent may be told, too."""
        before, self.reported = self.reported, told_losses(self.directory)
        seen, self.losses = len(self.losses), lost_events(self.directory)
        added = self.reported - before
        told = f"lost: {lost}, of which {untold} are not entered; {added}"
        assert before <= self.reported and lost - untold <= added, told
        unsent = {name: MOST_IN_FLIGHT for name in SKILLS if fate in (Fate.KILL, Fate.STOP_AT_ONCE)}
        assert added <= lost + Counter(unsent), f"told as lost: {added}, of which were {lost}"
        for event in self.losses[seen:]:
            assert event["estimated"] is True
            assert event["tokens"] in (5 * event["answers"], *(() if has_costs else (0,))), event

    def _same_or_graded(self, before: Mapping[Trial, Row]) -> None:
        for trial, row in before.items():
            now = self.rows.get(trial)
            assert now is not None, f"a stored trial is gone: {trial}"
            assert now == row or (row.category is None and now[::2] == row[::2]), f"{trial} was {row}, is {now}"

    def _right_rows(self, new: set[Trial]) -> None:
        for model, question, number in new:
            row = self.rows[model, question, number]
            seed = (self.base(model, question) + number) % 2**31
            assert row.seed == seed
            assert row.text == server_answer(model, question, seed)
        for trial, row in self.rows.items():
            assert row.category in (None, int(row.text == self.answers[trial[1]])), trial

    def check_regraded(self, answers: Mapping[str, str], broken: Collection[str], *, killed: bool) -> None:
        """All grades are by these answer keys, or none where each answer failed or the process was killed."""
        before, self.rows = self.rows, stored_rows(self.directory)
        stored = dict(_select(self.directory, "SELECT key, json_extract(body, '$.answer') FROM questions"))
        old, now = ({trial: row[::2] for trial, row in rows.items()} for rows in (before, self.rows))
        assert now == old
        fails = {trial for trial in self.rows if trial[1].rpartition("/")[2] in broken}
        anew = {at: None if at in fails else int(row.text == answers[at[1]]) for at, row in self.rows.items()}
        if stored == answers and {at: row.category for at, row in self.rows.items()} == anew:
            self.answers = stored
        else:
            assert (stored, self.rows) == (self.answers, before) and (killed or fails == self.rows.keys())

    def check_results(self, fate: Fate, steady: bool) -> None:
        """The results file, where a start was not killed."""
        path = self.directory / "results.json"
        if fate is not Fate.KILL and path.exists():
            self.check_sums(json.loads(path.read_text()), steady)

    def check_sums(self, results: Mapping[str, Any], steady: bool) -> None:
        """Counts, scores and costs are those of the raw rows.

        Counts are of the first trials of a question, as far as rounds go; in a `steady` run, whose looks nothing has
        changed, of all.
        """
        if "cost" not in results:  # before the first look
            return
        trial_counts = Counter(trial[0] for trial in self.rows)
        names = [model["name"] for model in results["models"]]
        to_be_graded = Counter(dict(_select(self.directory, TO_BE_GRADED)))
        assert results["cost"]["trials"] == sum(trial_counts[name] for name in names)
        assert results["cost"]["tokens"] == sum(self.costs()[name] for name in names)
        for place, model in enumerate(results["models"]):
            mine = {trial: row for trial, row in self.rows.items() if trial[0] == model["name"]}
            assert model["stored_trials"] == len(mine)
            without = sum(row.category is None for row in mine.values())
            assert model["ungraded"] == without - to_be_graded[model["name"]]
            assert model["tokens"] == self.costs()[model["name"]]
            score, waiting = 0.0, 0
            for question in results["questions"]:
                counts = question["counts"][place]
                stored = Counter(row.category for trial, row in mine.items() if trial[1] == question["id"])
                context = (model["name"], question["id"], counts, stored)
                assert counts[0] <= stored[0] and counts[1] <= stored[1], context
                if model["set_aside"] is None:  # else what comes later is not counted
                    firsts = [] if steady else self._beginnings(mine, question)
                    assert counts == [stored[0], stored[1]] or counts in firsts, context
                waiting += question["not_judged"][place]
                score += self.shares[question["id"]] * (counts[1] / sum(counts) if sum(counts) else 0.0)
            if model["score"] is not None and not model["prior_depth"] and not waiting:
                assert abs(model["score"] - score) < 1e-9
                self._check_bayes(model, {row["id"]: row["counts"][place] for row in results["questions"]})
        self._check_pairs(results)
        self._check_beside(results["cost"]["beside"], names)

    def _check_beside(self, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
        """What was lost of these models, and all that the others have cost, is told as it is stored."""
        shown = {(row["what"], row["model"]): (row["trials"], row["answers"], row["tokens"]) for row in rows}
        answers, tokens, expected = Counter[str](), Counter[str](), {}
        for event in lost_events(self.directory):
            answers[event["model"]] += event["answers"]
            tokens[event["model"]] += event["tokens"]
        trial_counts, entered = Counter(trial[0] for trial in self.rows), told_losses(self.directory) - answers
        for name in {*answers, *trial_counts, *entered}:
            if name in names and answers[name]:
                expected["lost", name] = 0, answers[name], tokens[name]
            elif name not in names:
                cost = 5 * trial_counts[name] + tokens[name] + (5 * entered[name] if trial_counts[name] else 0)
                expected["left", name] = trial_counts[name], answers[name], cost
        assert {key: row for key, row in shown.items() if row != (0, 0, 0)} == {
            key: row for key, row in expected.items() if row != (0, 0, 0)
        }

    def _check_pairs(self, results: Mapping[str, Any]) -> None:
        """The order is that of what is compared; a comparison is called where it was beyond the boundary of a look."""
        models = {model["name"]: model for model in results["models"]}
        compared = "bayes" if results["decisions"]["stopping"]["rule"] == "published" else "score"
        ranked = sorted(models.values(), key=lambda model: model["rank"])
        values = [round(model[compared], 9) for model in ranked if model["score"] is not None]
        assert values == sorted(values, reverse=True)
        for pair in results["pairs"]:
            better, worse = models[pair["first"]], models.get(pair["second"], {"score": None})
            assert (pair["verdict"] == "resolved") == (pair["called"] is not None), pair
            assert pair["called"] is None or abs(pair["called"]["z"]) >= pair["called"]["boundary"]
            if None not in (better["score"], worse["score"]):
                assert abs(pair["difference"] - (better[compared] - worse[compared])) < 1e-9, pair
                shared = set(better["letters"]) & set(worse["letters"])
                # letters say who differs, picks do not
                is_pick = results["decisions"]["stopping"]["rule"] == "near_best"
                assert shared or pair["verdict"] == "resolved", pair
                assert is_pick or not shared or pair["verdict"] != "resolved", pair
            elif pair["second"] in models:
                assert pair["difference"] is None, pair

    def _check_bayes(self, model: Mapping[str, Any], counts: Mapping[str, Sequence[int]]) -> None:
        """Bayes@N with a uniform prior is what the counts give, and so is its deviation."""
        numbers = [(self.shares[key], right, wrong + right) for key, (wrong, right) in counts.items()]
        parts = [(share, (right + 1) / (number + 2), number + 3) for share, right, number in numbers]
        assert abs(model["bayes"] - sum(share * mean for share, mean, _ in parts)) < 1e-9
        variance = sum(share**2 * mean * (1 - mean) / depth for share, mean, depth in parts)
        assert abs(model["bayes_sigma"] - math.sqrt(variance)) < 1e-9

    def _beginnings(self, rows: Mapping[Trial, Row], question: Mapping[str, Any]) -> list[list[int]]:
        """The counts of the first trials of a question, for every number of them."""
        outcomes = sorted((number, row.category) for (_, key, number), row in rows.items() if key == question["id"])
        firsts = (Counter(category for _, category in outcomes[:end]) for end in range(len(outcomes) + 1))
        return [[first[0], first[1]] for first in firsts]

    def costs(self) -> Counter[str]:
        """Tokens of each model, from the rows."""
        columns = "models.name, tokens, prompt_tokens, completion_tokens"
        query = f"SELECT {columns} FROM trials JOIN models ON models.id = model WHERE state <> 'reserved'"
        spent: Counter[str] = Counter()
        for name, tokens, read, written in _select(self.directory, query):
            assert tokens == read + written == 5
            spent[name] += tokens
        return spent

    @property
    def looks(self) -> list[dict[str, Any]]:
        """The looks so far."""
        return stored_looks(self.directory)

    def check_unchanged(self) -> None:
        """Every trial is as it was."""
        assert self.rows == stored_rows(self.directory)

    def check_export(self, log: Path) -> None:
        """The lines of an export are the stored rows, each once."""
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        exported = {(line["model"], line["question"], line["trial"]): line for line in lines}
        assert len(exported) == len(lines) and exported.keys() == self.rows.keys()
        for trial, row in self.rows.items():
            assert (exported[trial]["seed"], exported[trial]["category"], exported[trial]["text"]) == row, trial

    def move(self, directory: Path) -> None:
        """A run that was made of an export has all rows under their numbers, and nothing else."""
        before, self.rows = self.rows, stored_rows(directory)
        self.directory, self.reported, self.losses = directory, Counter(), []
        assert self.rows.keys() == before.keys()
        self._same_or_graded(before)
        self._right_rows(set())

    @property
    def begins_with_all(self) -> bool:
        """Whether looks begin with all trials of rounds that rules asked for by other grades."""
        bodies = _select(self.directory, "SELECT body FROM notes WHERE kind = 'regraded'")
        return any(json.loads(body).get("opening") is not None for (body,) in bodies)

    def check_the_end(self) -> None:
        """The last look follows from the trials: scores are means of means."""
        look = stored_looks(self.directory)[-1]
        assert None not in {row.category for row in self.rows.values()}, "something has no grade in the end"
        scores = dict(zip(look["models"], look["scores"], strict=True))
        for name, trials in zip(look["models"], look["trials"], strict=True):
            mine = {trial: row for trial, row in self.rows.items() if trial[0] == name}
            if mine and len(mine) == trials:  # the look has all of them
                assert abs(scores[name] - self._score(mine)) < 1e-9

    def _score(self, rows: Mapping[Trial, Row]) -> float:
        score = 0.0
        for question, share in self.shares.items():
            right = [row.category or 0 for trial, row in rows.items() if trial[1] == question]
            score += share * sum(right) / len(right)
        return score


def stored_rows(directory: Path) -> dict[Trial, Row]:
    """Every stored trial."""
    query = (
        "SELECT models.name, questions.key, number, seed, category, text FROM trials "
        "JOIN models ON models.id = model JOIN questions ON questions.id = question WHERE state <> 'reserved'"
    )
    rows: dict[Trial, Row] = {}
    for name, key, trial, *columns in _select(directory, query):
        assert (name, key, trial) not in rows, "one trial twice"
        rows[name, key, trial] = Row(*columns)
    return rows


def told_losses(directory: Path) -> Counter[str]:
    """Answers of each model that are charged as lost, or stored as in flight."""
    losses = Counter(dict(_select(directory, TO_BE_GRADED.replace("judging", "reserved"))))
    counted = (
        "SELECT name, number.value FROM run, json_each(run.value) AS number JOIN models ON models.id = number.key "
        "WHERE run.key = 'in_flight'"
    )
    losses.update(dict(_select(directory, counted)))
    for event in lost_events(directory):
        losses[event["model"]] += event["answers"]
    return losses


def lost_events(directory: Path) -> list[dict[str, Any]]:
    """The charges of lost answers, in their order."""
    query = (
        "SELECT name, number, tokens, estimated FROM charges JOIN models ON models.id = model WHERE what = 'answer' "
        "ORDER BY seq"
    )
    names = ("model", "answers", "tokens", "estimated")
    return [dict(zip(names, (*row[:3], bool(row[3])), strict=True)) for row in _select(directory, query)]


def stored_looks(directory: Path) -> list[dict[str, Any]]:
    """The looks, in their order."""
    query = "SELECT body FROM looks ORDER BY number"
    return [json.loads(zlib.decompress(body)) for (body,) in _select(directory, query)]


def _select(directory: Path, query: str) -> list[Any]:
    path = directory / "run.sqlite"
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():  # killed before it had tables
            return []
        return connection.execute(query).fetchall()
