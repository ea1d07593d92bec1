"""Reading a run: its log for a machine, and rows and sums for everybody else. Nothing is replayed here."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

from adaptive_eval.base.errors import DamagedValue
from adaptive_eval.core.answer_kinds import answer_kinds
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Answer, EarlierTimes
from adaptive_eval.machine.charges import Charge, ChargeKind, sum_costs
from adaptive_eval.machine.facts import MAX_SIZE
from adaptive_eval.machine.records import REGRADED, SETTINGS, Json, LookTaken, Note, Row, SettingsEnd
from adaptive_eval.machine.replay import in_commits
from adaptive_eval.machine.trial import ANSWERED, JUDGING, UNGRADED, AnswerFacts, GradeDetails, Key, Trial, TrialState
from adaptive_eval.store.database import RunDatabase, Values
from adaptive_eval.store.errors import damaged, translate_errors
from adaptive_eval.store.header import RunHeader
from adaptive_eval.store.packing import Parts, decompress, parse_object, unpack_json, unpack_logprobs, unpack_text
from adaptive_eval.store.schema import ANSWER_FIELDS, COVERED

LATEST_ANSWERS = 16_384
"""Answers whose times tell how long those of a later start may take."""
MOST_IN_FLIGHT = 10_000_000
"""Trials of a model in flight: a larger number was never written."""
MOST_LOOKS = 1_000_000
"""Looks before a change of the settings, which a replay takes: a larger number was never written."""
BLOCK = 16_384
"""Rows that a machine is given at a time where commits do not matter."""
READ_AT_ONCE = 256
"""Answers with their texts that are read at a time: a bound for the memory that these take."""
STATES = {state.value: state for state in TrialState}
_PLACE = "seq, model, question, number, round, state, tokens, usd, gpu_seconds, v_tokens, v_usd, v_gpu_seconds"
_SIZE = f"CASE typeof({{0}}) WHEN 'blob' THEN {MAX_SIZE} ELSE ifnull(length(CAST({{0}} AS BLOB)), 0) END"
"""Bytes of a text: a longer one is stored compressed, as a BLOB."""
_FLAG = "CASE json_type(signals, '$.{0}') WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"
_FACTS = (
    f"digest, {_SIZE.format('text')} + {_SIZE.format('reasoning')}, {_FLAG.format('is_correct')}, "
    f"{_FLAG.format('has_answer')}, completion_tokens"
)
_LACKS_GRADE = "(state = ? OR state = ? AND ifnull(flags, '') NOT LIKE '%unanswered%')"
"""An answer came and has no grade; what never came has none either, once that is stored."""
_BRIEF = f"SELECT at, {_PLACE}, category, flags, latency, {_FACTS} FROM trials"
WHOLE_COLUMNS = [column for column in COVERED["trials"] if column not in ("digest", "at")]
_WHOLE = f"SELECT {', '.join(WHOLE_COLUMNS)} FROM trials"
_CHARGES = "SELECT at, seq, kind, what, model, number, tokens, usd, gpu_seconds, estimated FROM charges ORDER BY seq"
_NOTES = "SELECT at, seq, kind, model, body FROM notes ORDER BY seq"
_SUMS = "SELECT {} FROM sums WHERE configuration = (SELECT max(id) FROM configurations)"
_LOOKS = "SELECT at, seq, number, configuration, body FROM looks ORDER BY seq"
_ACCOUNT = """
SELECT model, state, '' AS kind, count(*), sum(tokens), sum(usd), sum(gpu_seconds),
    sum(v_tokens), sum(v_usd), sum(v_gpu_seconds) FROM trials {0} GROUP BY model, state
UNION ALL
SELECT model, '', CASE WHEN estimated THEN 'estimated' ELSE kind END, sum(number), sum(tokens * (what = 'answer')),
    sum(usd * (what = 'answer')), sum(gpu_seconds * (what = 'answer')), sum(tokens * (what = 'verdict')),
    sum(usd * (what = 'verdict')), sum(gpu_seconds * (what = 'verdict')) FROM charges {0} GROUP BY model, 3
"""

_ANSWER_TIMES = f"""
SELECT model, count(latency), ifnull(max(latency), 0.0), count(ttft), ifnull(max(ttft), 0.0) FROM (
    SELECT model, latency, ttft FROM trials
    WHERE state <> 'reserved' AND ifnull(flags, '') NOT LIKE '%timed_out%' ORDER BY seq DESC LIMIT {LATEST_ANSWERS}
) GROUP BY model
"""

TimedRow = tuple[float, Row]


class StoredLook(NamedTuple):
    """A look that was taken."""

    number: int
    configuration: int
    at: float
    body: Json


class StoredReport(NamedTuple):
    """A report as it is stored."""

    look: int
    """The newest look when it was made."""
    seq: int
    """The newest row that it counts."""
    body: bytes
    """JSON without the rows of questions."""
    cells: Parts = ()
    """Counts from which these rows are made."""
    sums: "PackedSums | None" = None
    """Sums to be stored with it, if there are new ones."""


class PackedSums(NamedTuple):
    """Sums over the trials up to a place in the log."""

    seq: int
    body: Parts


class AccountLine(NamedTuple):
    """Sums of a model's trials in one state, or of its charges of one kind."""

    model: int
    state: TrialState | None
    kind: str
    """Of charges; "estimated" if no cap counts them."""
    number: int
    cost: Cost
    """Of answers."""
    verdicts: Cost


class LogReader:
    """Reads everything stored of a run, as immutable values."""

    def __init__(self, directory: Path, database: RunDatabase) -> None:
        self.directory = directory
        self.database, self._rows = database, database.rows

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the run in `directory`; another process may be writing it."""
        return cls(directory, RunDatabase.open_to_read(directory))

    def close(self) -> None:
        """Close a reader that was opened by `open`."""
        self.database.close()

    # -- what the run is -------------------------------------------------------------------------------------------

    def header(self) -> RunHeader:
        """The header of the run with its newest configuration."""
        return RunHeader(
            name=str(self._value("name")),
            configuration=self.configurations()[-1],
            meaning=parse_object(self._value("meaning"), "what the run means"),
            models={
                str(name): parse_object(meaning, "what a model's trials mean")
                for name, meaning in self._rows("SELECT name, meaning FROM models ORDER BY id")
            },
            questions={
                str(key): parse_object(body, "a stored question")
                for key, body in self._rows("SELECT key, body FROM questions ORDER BY id")
            },
        )

    def configurations(self) -> list[Json]:
        """Every configuration of the run, the newest last."""
        bodies = self._rows("SELECT body FROM configurations ORDER BY id")
        return [parse_object(body, "the stored configuration") for (body,) in bodies]

    def newest_configuration(self) -> int:
        """The number of the newest configuration."""
        ((number,),) = self._rows("SELECT max(id) FROM configurations")
        return _whole_number(number)

    def models(self) -> dict[str, int]:
        """The number of each model, by name, in the order of the numbers."""
        rows = self._rows("SELECT name, id FROM models ORDER BY id")
        return {str(name): _whole_number(number) for name, number in rows}

    def questions(self) -> dict[str, int]:
        """The number of each question, by id, in the order of the numbers."""
        rows = self._rows("SELECT key, id FROM questions ORDER BY id")
        return {str(key): _whole_number(number) for key, number in rows}

    @property
    def created(self) -> float:
        """When the run was begun, in seconds since 1970."""
        return self._seconds("created")

    @property
    def elapsed(self) -> float:
        """Seconds the run has been active, over all its starts."""
        return self._seconds("elapsed")

    def held(self) -> Json:
        """For how long servers were held, as plain values."""
        return parse_object(self._value("held"), "for how long servers were held")

    def newest_at(self) -> float:
        """When the newest row was committed; 0 before the first."""
        tables = ("trials", "charges", "looks", "notes")
        newest = (f"SELECT coalesce(max(at), 0.0) AS at FROM {table}" for table in tables)
        ((at,),) = self._rows(f"SELECT max(at) FROM ({' UNION ALL '.join(newest)})")
        return float(str(at))

    # -- the log ---------------------------------------------------------------------------------------------------

    def log(self, *, in_whole_commits: bool) -> Iterator[Sequence[Row]]:
        """The log in its order, without texts: commit by commit, or in large blocks."""
        rows = merge(self._trials(), self._charges(), self.timed_notes(), self._looks(), key=lambda row: row[1][0])
        yield from in_commits(rows) if in_whole_commits else _in_blocks(rows)

    def notes(self) -> list[tuple[int, Note]]:
        """All notes."""
        return [row for _, row in self.timed_notes()]

    def looks(self, first: int = 0) -> list[StoredLook]:
        """The looks from a number on."""
        rows = self._rows("SELECT number, configuration, at, body FROM looks WHERE number >= ? ORDER BY number", first)
        return [
            StoredLook(
                _whole_number(number),
                _whole_number(configuration),
                float(str(at)),
                unpack_json(body, "a stored look"),
            )
            for number, configuration, at, body in rows
        ]

    def newest_report(self, *, cells: bool = False) -> StoredReport | None:
        """The newest report, with its `cells` if wanted; None before the first look."""
        query = "SELECT look, seq, body FROM reports ORDER BY look DESC LIMIT 1"
        for look, seq, body in self._rows(query):
            counts = [*self._rows("SELECT body FROM cells WHERE look = ?", look)] if cells else []
            unpacked = [decompress(part) if isinstance(part, bytes) else b"" for (part,) in ((body,), *counts)]
            return StoredReport(_whole_number(look), _whole_number(seq), unpacked[0], unpacked[1:])
        return None

    def sums(self) -> PackedSums | None:
        """The stored sums under the newest configuration; None if there are none."""
        for seq, body in self._rows(_SUMS.format("seq, body")):
            return PackedSums(_whole_number(seq), [decompress(body if isinstance(body, bytes) else b"")])
        return None

    def sums_seq(self) -> int:
        """The newest trial that these sums count; 0 if there are none."""
        return max((_whole_number(seq) for (seq,) in self._rows(_SUMS.format("seq"))), default=0)

    def settings_ends(self) -> dict[int, SettingsEnd]:
        """By configuration: where it was changed. A regrade that takes all looks anew leaves none to those before."""
        ends = dict[int, SettingsEnd]()
        for seq, note in self.notes():
            if note.kind == SETTINGS and isinstance(number := note.body.get("configuration"), int):
                looks, has_looked = _whole_number(note.body.get("looks")), note.body.get("has_looked")
                if not (0 <= looks < min(seq, MOST_LOOKS) and isinstance(has_looked, bool)):
                    raise DamagedValue("a change of the settings does not say which looks came before it")
                ends[number - 1] = SettingsEnd(seq, looks, has_looked)
            elif note.kind == REGRADED and note.body.get("opening") is not None:
                ends = {number: SettingsEnd(end.seq, 0, has_looked=False) for number, end in ends.items()}
        return ends

    def ungraded(self) -> Iterator[tuple[int, Trial]]:
        """Stored answers without a grade, with their texts, in their order."""
        for batch in self.batches(_LACKS_GRADE, JUDGING.value, UNGRADED.value):
            yield from batch

    def ungraded_count(self, models: Collection[int]) -> int:
        """Number of these models' stored answers without a grade."""
        query = f"SELECT model, count(*) FROM trials WHERE {_LACKS_GRADE} GROUP BY model"
        rows = self._rows(query, JUDGING.value, UNGRADED.value)
        return sum(_whole_number(number) for model, number in rows if model in models)

    def trials(self, where: str = "seq > 0", *values: object, order: str = "seq") -> Iterator[tuple[int, Trial]]:
        """Trials with their texts, in their order; `where`: an SQL condition."""
        return map(_whole_trial, self._rows(f"{_WHOLE} WHERE {where} ORDER BY {order}", *values))

    def batches(self, where: str = "seq > 0", *values: object) -> Iterator[list[tuple[int, Trial]]]:
        """The same, some at a time: a store can write in between. While a query is unfinished, SQLite does not wait for
        other processes that read."""
        query, after = f"{_WHOLE} WHERE ({where}) AND seq > ? ORDER BY seq LIMIT {READ_AT_ONCE}", 0
        while batch := [_whole_trial(row) for row in self._rows(query, *values, after)]:
            yield batch
            after = batch[-1][0]

    def known_answers(self, models: Collection[int], before: int) -> Iterator[Trial]:
        """Stored answers of models, before a sequence number, without texts."""
        for _, (_, record) in self._trials(f"WHERE seq < {int(before)}"):
            if isinstance(record, Trial) and record.model in models:
                yield record

    def reserved(self) -> set[Key]:
        """The trials that have a row and are in flight, or were when a start ended."""
        rows = self._rows("SELECT model, question, number FROM trials WHERE state = 'reserved'")
        return {(_whole_number(model), _whole_number(question), _whole_number(n)) for model, question, n in rows}

    def in_flight(self) -> dict[int, int]:
        """By model: trials that have no row and are in flight, or were when a start ended."""
        counts = parse_object(self._value("in_flight"), "what is in flight")
        models = {str(model): model for model in self.models().values()}
        if not models.keys() >= counts.keys():
            raise DamagedValue("what is in flight is not counted by model")
        numbers = {models[model]: _whole_number(number) for model, number in counts.items()}
        if not all(type(number) is int and 0 <= number <= MOST_IN_FLIGHT for number in numbers.values()):
            raise DamagedValue(f"what is in flight is not between 0 and {MOST_IN_FLIGHT:,} trials")
        return numbers

    def has_grades(self) -> bool:
        """Whether any answer has a grade."""
        return any(self._rows("SELECT 1 FROM trials WHERE category IS NOT NULL LIMIT 1"))

    def answer_times(self) -> dict[str, EarlierTimes]:
        """By name of each model with answers: how long the latest of them took."""
        times = {line.model: EarlierTimes() for line in self.account() if line.state in ANSWERED}
        for model, answers, longest, streams, latest in self._rows(_ANSWER_TIMES):
            times[_whole_number(model)] = EarlierTimes(
                _whole_number(answers), float(str(longest)), _whole_number(streams), float(str(latest))
            )
        return {name: times[number] for name, number in self.models().items() if number in times}

    def account(self, models: Collection[int] | None = None) -> list[AccountLine]:
        """Paid, reserved and charged costs of all models or of these; the only place where the store sums costs."""
        lines = []
        condition = "" if models is None else f"WHERE model IN ({', '.join(map(str, models))})"
        for model, state, kind, number, *costs in self._rows(_ACCOUNT.format(condition)):
            answers, verdicts = _cost(costs[:3]), _cost(costs[3:])
            line = (_whole_number(model), STATES.get(str(state)), str(kind), _whole_number(number), answers, verdicts)
            lines.append(AccountLine(*line))
        return lines

    def spent(self) -> Cost:
        """The costs that caps count."""
        counted = [line for line in self.account() if line.kind != "estimated"]
        return sum_costs(cost for line in counted for cost in (line.cost, line.verdicts))

    # -- rows ------------------------------------------------------------------------------------------------------

    def _trials(self, where: str = "") -> Iterator[TimedRow]:
        states, kinds, booleans = STATES, answer_kinds, {None: None, 0: False, 1: True}
        with translate_errors(self.directory):
            for (
                at, seq, model, question, number, round_, state, tokens, usd, gpu, v_tokens, v_usd, v_gpu,
                category, flags, latency, digest, size, is_right, has_answer, completion_tokens,
            ) in self.database.connection.execute(f"{_BRIEF} {where} ORDER BY seq"):  # fmt: skip
                verdict = Cost(v_tokens, v_usd, v_gpu) if v_tokens or v_usd or v_gpu else NO_COST
                facts = None
                if completion_tokens is not None:
                    facts = AnswerFacts(digest, size, booleans[is_right], booleans[has_answer], completion_tokens)
                trial = Trial(
                    model, question, number, round_, states[state], Cost(tokens, usd, gpu), verdict, category,
                    kinds(flags) if flags else 0, latency or 0.0, None, None, facts,
                )  # fmt: skip
                yield at, (seq, trial)

    def _charges(self) -> Iterator[TimedRow]:
        for at, seq, kind, what, model, number, *cost, estimated in self._rows(_CHARGES):
            charge = Charge(
                ChargeKind(str(kind)),
                str(what),
                _whole_number(model),
                _whole_number(number),
                _cost(cost),
                bool(estimated),
            )
            yield float(str(at)), (_whole_number(seq), charge)

    def timed_notes(self) -> Iterator[tuple[float, tuple[int, Note]]]:
        """All notes, each with the time of its commit."""
        for at, seq, kind, model, body in self._rows(_NOTES):
            about = None if model is None else _whole_number(model)
            note = Note(str(kind), about, parse_object(body, f"an event of the kind {kind}"))
            yield float(str(at)), (_whole_number(seq), note)

    def _looks(self) -> Iterator[TimedRow]:
        for at, seq, number, _, body in self._rows(_LOOKS):
            look = LookTaken(_whole_number(number), unpack_json(body, "a stored look"))
            yield float(str(at)), (_whole_number(seq), look)

    def _value(self, key: str) -> object:
        rows = [*self._rows("SELECT value FROM run WHERE key = ?", key)]
        if not rows:
            raise damaged(self.directory, f"it has no {key!r}")
        return rows[0][0]

    def _seconds(self, key: str) -> float:
        value = self._value(key)
        if not isinstance(value, float | int):
            raise damaged(self.directory, f"{key!r} is not a number")
        return float(value)


def _in_blocks(rows: Iterable[TimedRow]) -> Iterator[list[Row]]:
    block: list[Row] = []
    for _, row in rows:
        block.append(row)
        if len(block) == BLOCK:
            yield block
            block = []
    if block:
        yield block


def _whole_number(value: object) -> int:
    if not isinstance(value, int):
        raise DamagedValue(f"a stored number is of type {type(value).__name__}")
    return value


def _cost(values: Sequence[object]) -> Cost:
    tokens, usd, gpu_seconds = values
    return Cost(_whole_number(tokens), float(str(usd)), float(str(gpu_seconds)))


def _whole_trial(values: Values) -> tuple[int, Trial]:
    """A trial with its texts."""
    row = dict(zip(WHOLE_COLUMNS, values, strict=True))
    places = (_whole_number(row[name]) for name in ("seq", "model", "question", "number", "round"))
    seq, model, question, number, round_ = places
    cost = _cost([row[name] for name in ("tokens", "usd", "gpu_seconds")])
    verdict = _cost([row[name] for name in ("v_tokens", "v_usd", "v_gpu_seconds")])
    flags = str(row["flags"] or "")
    answer, grade = _answer(row, flags), _grade(row)
    trial = Trial(
        model,
        question,
        number,
        round_,
        state=STATES[str(row["state"])],
        cost=cost,
        verdict=verdict,
        category=None if row["category"] is None else _whole_number(row["category"]),
        kinds=answer_kinds(flags) if flags else 0,
        seconds=_optional(row["latency"]) or 0.0,
        answer=answer,
        grade=grade,
    )
    return seq, trial


_FIELD_TYPES = {name: get_args(kind) or (kind,) for name, kind in ANSWER_FIELDS.items()}


def _answer(row: Mapping[str, object], flags: str) -> Answer | None:
    if row["finish_reason"] is None:
        return None
    fields: dict[str, Any] = {name: row[name] for name in ANSWER_FIELDS}
    for name, value in fields.items():
        if type(value) not in _FIELD_TYPES[name]:
            raise DamagedValue(f"a stored {name} is of type {type(value).__name__}")
    return Answer(
        text=unpack_text(row["text"]) or "",
        reasoning=unpack_text(row["reasoning"]),
        signals=frozenset(flags.split()),  # type: ignore[arg-type]
        token_logprobs=unpack_logprobs(row["logprobs"]),
        **fields,
    )


def _grade(row: Mapping[str, object]) -> GradeDetails | None:
    signals, extracted, error = row["signals"], row["extracted"], row["grader_error"]
    if row["category"] is None and error is None:
        return None
    parsed = parse_object(signals, "the signals of a grader") if signals is not None else {}
    return GradeDetails(parsed, None if extracted is None else str(extracted), None if error is None else str(error))


def _optional(value: object) -> float | None:
    return float(value) if isinstance(value, float | int) else None
