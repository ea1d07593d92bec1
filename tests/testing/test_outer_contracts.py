"""The suites for importers, exporters and figures: the built-ins pass them, and each finds the bugs planted here."""

import csv
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contracts import check_exporter, check_figure, check_importer

from adaptive_eval.exchange.detect import TableFormat, log_files, read_records
from adaptive_eval.exchange.export import EXPORTS, ExportFormat
from adaptive_eval.exchange.samples import Record, logged_answer, whole_number
from adaptive_eval.exchange.tables.reader import Rows
from adaptive_eval.notes import ModelSetAside, events_of_kind
from adaptive_eval.questions.load import as_text
from adaptive_eval.report.lines import safe_line
from adaptive_eval.report.log_files import LogFile
from adaptive_eval.report.results import ModelRow
from adaptive_eval.report.view import RunView
from adaptive_eval.show.plots import FIGURES, OVER_LOOKS, grid, plain_name

# -- importers ----------------------------------------------------------------------------------------------------

MINE = {"llm": "small", "item": "q1", "reply": "42", "right": False}


def read_row(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    """A reader of one row without a bug."""
    reply, right = row["reply"], row.get("right")
    missing = None if isinstance(reply, str) else "the log has no reply"
    if row.get("failed") is not None:
        missing = "the request failed"
    model, question = file.model or as_text(row["llm"]), as_text(row["item"])
    yield Record(
        place,
        model,
        question,
        None,
        answer=logged_answer(reply if isinstance(reply, str) else ""),
        has_text=True,
        value=float(right) if isinstance(right, bool) else None,
        missing=missing,
    )


def format_of(read: Callable[..., Iterator[Record]], name: str = "logs of mine") -> TableFormat:
    def rows_of(file: LogFile, rows: Iterable[Any]) -> Iterator[Record]:
        for place, row in rows:
            if not row.keys() >= MINE.keys() - {"right"}:
                raise file.refuse("must have llm, item and reply", place)
            yield from read(file, place, row)

    return TableFormat(name, lambda columns: {"llm", "item", "reply"} <= columns, rows_of)


def try_importer(table: TableFormat) -> None:
    expected = {"model": "small", "question": "q1", "text": "42", "value": 0.0}
    other = MINE | {"llm": "big", "right": True, "attempt": 2}
    check_importer(table, [(MINE, expected), (other, {"model": "big", "value": 1.0})])


def test_an_importer_without_a_bug_passes() -> None:
    try_importer(format_of(read_row))


def test_a_row_may_say_that_its_request_failed() -> None:
    failed = MINE | {"reply": "", "failed": "timeout"}
    check_importer(format_of(read_row), [(MINE, {"text": "42"}), (failed, {"missing": True, "value": None})])


def null_is_empty(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    return read_row(file, place, row | {"reply": row["reply"] or ""})


def null_is_wrong(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    return read_row(file, place, row | {"right": bool(row.get("right"))})


def null_is_a_name(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    return read_row(file, place, row | {"llm": str(row["llm"])})


def passes_over(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from read_row(file, place, row) if isinstance(row["reply"], str) else ()


def counts_on(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    SEEN.append(place)
    yield from (record._replace(trial=len(SEEN)) for record in read_row(file, place, row))


SEEN: list[str] = []


def breaks_down(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    return read_row(file, place, row | {"reply": row["reply"].strip()})


def names_no_line(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    if not isinstance(row["reply"], str):
        raise file.refuse("has no reply")
    return read_row(file, place, row)


def knows_better(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from (record._replace(model=as_text(row["llm"])) for record in read_row(file, place, row))


def costs_less(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from (
        record._replace(cost=record.cost.times(-1).plus(record.cost._replace(usd=-1.0)))
        for record in read_row(file, place, row)
    )


def anything_is_right(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    right = row.get("right")
    return read_row(file, place, row | {"right": None if right is None else bool(right)})


def words_are_right(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    return read_row(file, place, row | ({"right": True} if row.get("right") == "false" else {}))


def the_first_trial(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from (record._replace(trial=whole_number(row.get("attempt")) or 0) for record in read_row(file, place, row))


def counts_without_end(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    attempt = row.get("attempt")
    number = (
        int(attempt)
        if isinstance(attempt, str) and attempt.isdecimal() and len(attempt) < 99
        else whole_number(attempt)
    )
    yield from (record._replace(trial=number) for record in read_row(file, place, row))


def in_lower_case(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from (record._replace(model=record.model.lower()) for record in read_row(file, place, row))


def without_spaces(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from (record._replace(model=record.model.strip()) for record in read_row(file, place, row))


def cut_short(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from (record._replace(question=record.question[:64]) for record in read_row(file, place, row))


def before_a_colon(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from (record._replace(model=record.model.split(":")[-1]) for record in read_row(file, place, row))


def without_a_revision(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from (record._replace(question=record.question.split("@")[0]) for record in read_row(file, place, row))


def with_single_spaces(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from (record._replace(model=re.sub(" +", " ", record.model)) for record in read_row(file, place, row))


def strips_what_is_said(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    reply = row["reply"]
    return read_row(file, place, row | {"reply": reply.strip() if isinstance(reply, str) else reply})


def one_identity(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from (record._replace(identity=record.question) for record in read_row(file, place, row))


def at_no_place(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from (record._replace(place="a row") for record in read_row(file, place, row))


def before_its_time(file: LogFile, place: str, row: dict[str, Any]) -> Iterator[Record]:
    yield from (
        record._replace(answer=logged_answer("42", latency=-1.0 if "right" in row else 0.0))
        for record in read_row(file, place, row)
    )


def reads_some(file: LogFile, rows: Rows) -> Iterator[Record]:
    return islice(format_of(read_row).read(file, rows), 1000)


def carries_on(file: LogFile, rows: Rows) -> Iterator[Record]:
    """Takes what a row lacks from the one before, as in a sheet with merged cells."""
    last: dict[str, Any] = {}
    for place, row in rows:
        last = last | {key: value for key, value in row.items() if value is not None}
        yield from format_of(read_row).read(file, iter([(place, last)]))


def holds_all(file: LogFile, rows: Rows) -> Iterator[Record]:
    return iter(list(format_of(read_row).read(file, rows)))


def drops_repeats(file: LogFile, rows: Rows) -> Iterator[Record]:
    seen = set[str]()
    for record in format_of(read_row).read(file, rows):
        if (key := f"{record.model} {record.question} {record.answer} {record.value} {record.missing}") not in seen:
            seen.add(key)
            yield record


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (format_of(null_is_empty), "reply is null, text must be unknown"),
        (format_of(null_is_wrong), "right is null, value must be unknown"),
        (format_of(null_is_a_name), "model must be a name, but is 'None'"),
        (format_of(passes_over), "a row vanishes where reply is null"),
        (format_of(counts_on), "another record the second time"),
        (format_of(breaks_down), "raises AttributeError"),
        (format_of(names_no_line), "does not name the line"),
        (format_of(counts_without_end), "trial is larger than any table can hold: 99999999999999999"),
        (format_of(knows_better), "the name that the user gives"),
        (format_of(costs_less), "cost is Cost"),
        (format_of(anything_is_right), "right is 5, value is 1.0, as if it were another grade"),
        (format_of(words_are_right), "right is 'false', value must be unknown, but it is 1.0"),
        (format_of(the_first_trial), "attempt is null, trial must be unknown"),
        (format_of(read_row)._replace(read=carries_on), "the row takes something from the one before it"),
        (format_of(read_row)._replace(read=holds_all), "reads the whole table before its first record"),
        (format_of(read_row)._replace(read=drops_repeats), "rows that are read together give other records"),
        (format_of(in_lower_case), "llm 'org/One' and 'org/one' give one model"),
        (format_of(without_spaces), "llm 'one' and ' one' give one model"),
        (format_of(cut_short), "item '.*1' and '.*2' give one question"),
        (format_of(before_a_colon), "llm 'one' and 'a:one' give one model"),
        (format_of(without_a_revision), "item 'one' and 'one@a' give one question"),
        (format_of(with_single_spaces), "llm 'one  1' and 'one 1' give one model"),
        (format_of(strips_what_is_said), r"' 42.n' was written, and '42' would be stored"),
        (format_of(one_identity), "one identity, as if copies"),
        (format_of(at_no_place), "two records have one place"),
        (format_of(before_its_time), "latency must be seconds from 0 on"),
        (format_of(read_row)._replace(read=reads_some), "a table of 3,000 rows gives 1,000 records"),
        (format_of(read_row, "my_logs"), "several plain words, such as 'logs of mine'"),
        (format_of(read_row)._replace(recognises=lambda columns: len(columns) > 1), "claims a table with the columns"),
    ],
)
def test_a_bug_in_an_importer_is_found(table: TableFormat, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        try_importer(table)


# -- exporters ----------------------------------------------------------------------------------------------------

Trials = Iterator[tuple[str, str, int, int | None]]


def of_jsonl(path: Path) -> Trials:
    for row in map(json.loads, path.read_text().splitlines()):
        yield row["model"], row["question"], row["trial"], row["category"]


def of_csv(path: Path) -> Trials:
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            category = int(row["category"]) if row["category"] else None
            yield row["model"], row["question"].removeprefix("'"), int(row["trial"]), category


def of_npz(path: Path) -> Trials:
    arrays = np.load(path)
    for (model, question, trial), category in np.ndenumerate(arrays["R"]):
        if category >= 0:
            yield str(arrays["models"][model]), str(arrays["questions"][question]), trial, int(category)


def test_a_table_that_is_exported_keeps_to_the_contract() -> None:
    check_exporter(EXPORTS["csv"], of_csv)


@pytest.mark.slow
@pytest.mark.usefixtures("another_process")
def test_exported_lines_keep_to_the_contract_in_another_process_too() -> None:
    check_exporter(EXPORTS["jsonl"], of_jsonl)


def test_an_exported_array_keeps_to_the_contract() -> None:
    check_exporter(EXPORTS["npz"], of_npz, ungraded=False)


def of_importers(path: Path) -> Trials:
    for record in (stored for file in log_files([str(path)]) for stored in read_records(file)):
        value = record.category if record.value is None else int(record.value)
        yield record.model, record.question, record.trial or 0, value


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jsonl", "parquet", "inspect"])
def test_what_is_read_back_by_our_importers_keeps_to_the_contract(name: str) -> None:
    check_exporter(EXPORTS[name], of_importers)


def of_tsv(path: Path) -> Trials:
    with path.open(newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        for model, question, trial, category in csv.reader(lines, delimiter="\t"):
            yield model, question, int(trial), int(category) if category else None


def tsv(
    keeps: Callable[[Any, int], bool] = lambda trial, number: True,
    *,
    ungraded: str = "",
    swallows: type[Exception] = ZeroDivisionError,
    beside: bool = False,
    dated: bool = False,
    longest: int = 1000,
) -> ExportFormat:
    """An exporter with at most one bug."""

    def write(source: Any, path: Path, texts: bool, on_progress: Callable[[int], None]) -> None:
        with path.open("w", newline="") as file:
            table = csv.writer(file, delimiter="\t")
            try:
                for number, trial in enumerate(source.reader.trials(), 1):
                    if keeps(trial, number):
                        category = ungraded if trial.category is None else trial.category
                        table.writerow([trial.model[:longest], trial.question, trial.trial, category])
                    on_progress(number)
            except swallows:
                pass
        if dated:
            path.write_text(f"# {time.time()}\n{path.read_text()}")
        if beside:
            path.with_suffix(".meta").write_text("made by mine")

    return ExportFormat("mine.tsv", write)


def numbered_anew() -> ExportFormat:
    """An exporter that counts the trials of a question instead of writing their numbers."""

    def write(source: Any, path: Path, texts: bool, on_progress: Callable[[int], None]) -> None:
        seen = Counter[tuple[str, str]]()
        with path.open("w", newline="") as file:
            table = csv.writer(file, delimiter="\t")
            for number, trial in enumerate(source.reader.trials(), 1):
                category = "" if trial.category is None else trial.category
                table.writerow([trial.model, trial.question, seen[trial.model, trial.question], category])
                seen[trial.model, trial.question] += 1
                on_progress(number)

    return ExportFormat("mine.tsv", write)


def without_the_lost() -> ExportFormat:
    """An exporter that leaves out models that were set aside."""

    def write(source: Any, path: Path, texts: bool, on_progress: Callable[[int], None]) -> None:
        lost = {event.model for event in events_of_kind(source.reader.events(), ModelSetAside)}
        tsv(lambda trial, number: trial.model not in lost).write(source, path, texts, on_progress)

    return ExportFormat("mine.tsv", write)


def of_the_configuration() -> ExportFormat:
    """An exporter that goes by the models of the stored configuration."""

    def write(source: Any, path: Path, texts: bool, on_progress: Callable[[int], None]) -> None:
        named = {model["name"] for model in source.reader.header().configuration["models"]}
        tsv(lambda trial, number: trial.model in named).write(source, path, texts, on_progress)

    return ExportFormat("mine.tsv", write)


def write_a_set(source: Any, path: Path, texts: bool, on_progress: Callable[[int], None]) -> None:
    lines = {(trial.model, trial.question, trial.trial, trial.category) for trial in source.reader.trials()}
    with path.open("w", newline="") as file:
        table = csv.writer(file, delimiter="\t")
        table.writerows([*line[:3], "" if line[3] is None else line[3]] for line in lines)
    on_progress(len(lines))


@pytest.mark.slow
@pytest.mark.usefixtures("another_process")
def test_an_exporter_that_writes_a_set_is_found() -> None:
    with pytest.raises(AssertionError, match="mine.tsv gives something else in another process"):
        check_exporter(ExportFormat("mine.tsv", write_a_set), of_tsv)


def read_by_hash(file: LogFile, rows: Rows) -> Iterator[Record]:
    for record in format_of(read_row).read(file, rows):
        yield record._replace(trial=hash(record.model) % 10**6 if record.model else None)


def is_mine(columns: frozenset[str]) -> bool:
    return {"llm", "item", "reply"} <= columns


@pytest.mark.slow
@pytest.mark.usefixtures("another_process")
def test_an_importer_that_goes_by_hashes_is_found() -> None:
    with pytest.raises(AssertionError, match="logs of mine gives something else in another process"):
        check_importer(TableFormat("logs of mine", is_mine, read_by_hash), [(MINE, {"model": "small"})])


def test_an_exporter_without_a_bug_passes() -> None:
    check_exporter(tsv(), of_tsv)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (tsv(lambda trial, number: trial.category is not None), "lacks 1 trials"),
        (tsv(lambda trial, number: number > 1), "lacks 1 trials"),
        (tsv(ungraded="0"), "lacks 1 trials"),
        (numbered_anew(), "of a run with gaps the file lacks"),
        (without_the_lost(), "of a run with gaps the file lacks"),
        (of_the_configuration(), "of a run with gaps the file lacks"),
        (tsv(swallows=OSError), "cannot be read to its end"),
        (tsv(beside=True), "beside its path"),
        (tsv(dated=True), "another file each time"),
        (tsv(longest=31), "lacks 80 trials"),
        (tsv(ungraded="?"), "the function that reads the file back raises ValueError"),
        (tsv()._replace(place="a/b.tsv"), "must be a plain name"),
        (tsv()._replace(write=lambda source, path, texts, tell: None), "nothing is written"),
    ],
)
def test_a_bug_in_an_exporter_is_found(form: ExportFormat, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_exporter(form, of_tsv)


# -- figures ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES | OVER_LOOKS)
def test_every_figure_keeps_to_the_contract(name: str) -> None:
    check_figure((FIGURES | OVER_LOOKS)[name], name)


def in_order(view: RunView) -> list[str]:
    assert view.results is not None
    return [row.name for row in view.results.models]


def bars(
    names: Callable[[RunView], Iterable[str]] = in_order,
    plain: Callable[[str], str] = plain_name,
    label: str = "trials",
    blot: float = 0.0,
    values: Callable[[Sequence[ModelRow]], Iterable[int]] = lambda rows: [row.trials for row in rows],
) -> Any:
    """A figure with at most one bug: what each model was asked."""

    def trials_of_models(view: RunView) -> Any:
        assert view.results is not None
        rows = view.results.models
        figure, (axes,) = grid(1, 1)
        axes.barh(range(len(rows)), list(values(rows)), color="#0072B2")
        axes.set_yticks(range(len(rows)), [plain(name) for name in names(view)])
        axes.set_xlabel(label)
        if blot:
            axes.plot([blot * random.random()], [0.0])
        return figure

    return trials_of_models


@pytest.mark.slow
def test_a_figure_without_a_bug_passes() -> None:
    check_figure(bars())


@pytest.mark.slow
def test_names_may_be_drawn_without_formulas_and_counts_on_a_scale_of_powers() -> None:
    def trials_of_models(view: RunView) -> Any:
        figure = bars(plain=lambda name: plain_name(name).replace("\\$", "$"))(view)
        for label in figure.axes[0].get_yticklabels():
            label.set_parse_math(False)
        figure.axes[0].set_xscale("log")
        return figure

    check_figure(trials_of_models)


def scores(view: RunView) -> Any:
    """It takes for granted that every model has a score."""
    assert view.results is not None
    figure = bars()(view)
    for at, row in enumerate(view.results.models):
        figure.axes[0].plot([row.score], [at], "o", alpha=min(row.score, 1.0))  # type: ignore[type-var]
    return figure


def with_intervals(bug: str = "") -> Any:
    """A figure of scores with their intervals, with at most one bug."""

    def scores_with_intervals(view: RunView) -> Any:
        assert view.results is not None
        rows = view.results.models
        if bug == "left out":
            rows = rows[:-1]
        figure, (axes,) = grid(1, 1)
        for at, row in enumerate(rows):
            if row.score is None or row.lo is None or row.hi is None:
                if bug == "none is zero":
                    axes.plot([0.0], [at], "o")
                continue
            half = (row.hi - row.lo) / 2.0
            low, high = (row.score - half, row.score + half) if bug == "even" else (row.lo, row.hi)
            if row.score or bug != "zero is none":
                axes.plot([low, high], [at, at], color="black")
                axes.plot([row.score], [at], "o", color="black")
        axes.set_yticks(range(len(rows)), [plain_name(row.name) for row in rows])
        axes.set_xlabel("score")
        if bug == "cut off":
            axes.set_xlim(0.5, 1.0)
        if bug == "cut bars":
            axes.barh(range(len(rows)), [np.nan if row.score is None else row.score for row in rows])
            axes.set_xlim(left=0.2)
        return figure

    return scores_with_intervals


def over_looks(bug: str = "") -> Any:
    """A figure of scores over the looks, a line for each model, with at most one bug."""

    def scores_over_looks(view: RunView) -> Any:
        figure, (axes,) = grid(1, 1)
        names = in_order(view)
        for at, name in enumerate(names):
            scores = [look.scores[look.models.index(name)] for look in view.looks]
            trials = [sum(look.trials) for look in view.looks]
            unknown = 0.0 if bug == "none is zero" else np.nan
            values = [unknown if score is None else score for score in scores]
            axes.plot(trials, values, color=f"C{at}", label=plain_name(name))
        if bug == "sorted":
            axes.legend([plain_name(name) for name in sorted(names)])
        elif bug != "no legend":
            axes.legend()
        if bug == "one colour":
            for line in (*axes.lines, *axes.get_legend().legend_handles):
                line.set_color("black")
        axes.set_xlabel("trials of all models")
        axes.set_ylabel("" if bug == "no label" else "score")
        return figure

    return scores_over_looks


def the_first_ten(what: str) -> Any:
    """A figure that cuts a list: a bar for each model, question or look."""

    def trials_of_ten(view: RunView) -> Any:
        assert view.results is not None
        counts = {
            "models": [row.trials for row in view.results.models],
            "questions": [sum(row[at] for row in view.trials) for at in range(len(view.trials[0]))],
            "looks": [sum(look.trials) for look in view.looks],
        }[what]
        figure, (axes,) = grid(1, 1)
        axes.bar(range(len(counts[:10])), counts[:10])
        axes.set_xlabel("number")
        axes.set_ylabel("trials")
        return figure

    return trials_of_ten


@pytest.mark.slow
@pytest.mark.parametrize("what", ["models", "questions", "looks"])
def test_a_figure_that_cuts_a_list_is_found(what: str) -> None:
    with pytest.raises(AssertionError, match=f"leaves out the last of 13 {what}"):
        check_figure(the_first_ten(what), "trials_of_ten")


@pytest.mark.slow
def test_figures_of_intervals_and_of_lines_pass_without_a_bug() -> None:
    check_figure(with_intervals())
    check_figure(over_looks())


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (with_intervals("left out"), "has the names of some models, and leaves out"),
        (with_intervals("cut off"), "is outside of the axes"),
        (with_intervals("cut bars"), "is outside of the axes"),
        (over_looks("no label"), "the numbers along y have no label"),
        pytest.param(with_intervals("even"), "moves the other end of its interval", marks=pytest.mark.release),
        pytest.param(with_intervals("none is zero"), "as if its score were 0", marks=pytest.mark.release),
        pytest.param(
            with_intervals("zero is none"), "score is 0 is drawn as if it had none", marks=pytest.mark.release
        ),
        pytest.param(over_looks("sorted"), "in the legend", marks=pytest.mark.release),
        pytest.param(over_looks("one colour"), "look alike", marks=pytest.mark.release),
        pytest.param(over_looks("no legend"), "has no name beside it", marks=pytest.mark.release),
        pytest.param(over_looks("none is zero"), "as if its score were 0", marks=pytest.mark.release),
        (bars(lambda view: view.models), "lists the models in another order"),
        (bars(lambda view: in_order(view)[::-1]), "what is known of cyd is drawn by the name of ada"),
        pytest.param(bars(plain=str), "would be a formula", marks=pytest.mark.release),
        pytest.param(
            bars(plain=lambda name: safe_line(name, 28).replace("$", r"\$")),
            "are all drawn as",
            marks=pytest.mark.release,
        ),
        (bars(values=lambda rows: sorted(row.trials for row in rows)[::-1]), "is drawn by the name of"),
        pytest.param(
            bars(values=lambda rows: [rows[at - 1].trials + rows[at - 3].trials for at in range(4)]),
            "by other names",
            marks=pytest.mark.release,
        ),
        (bars(label="n_trials"), "no plain English"),
        pytest.param(
            bars(label="accuracy"), "an axis says accuracy, but shows something else", marks=pytest.mark.release
        ),
        pytest.param(
            bars(label="cost in USD"), "an axis says usd, but shows something else", marks=pytest.mark.release
        ),
        (bars(values=lambda rows: [row.score or 0 for row in rows], label="score"), "as if its score were 0"),
        pytest.param(
            bars(values=lambda rows: [row.tokens for row in rows], label="trials"),
            "says trials, but shows something else",
            marks=pytest.mark.release,
        ),
        pytest.param(
            bars(values=lambda rows: [row.trials for row in rows], label="score"),
            "says score, but shows something else",
            marks=pytest.mark.release,
        ),
        pytest.param(
            bars(label="mean number of tokens"), "says tokens, but shows something else", marks=pytest.mark.release
        ),
        pytest.param(bars(lambda view: sorted(in_order(view))), "by the name of dan", marks=pytest.mark.release),
        pytest.param(bars(plain=lambda name: name.replace("$", "")), "obeys a name", marks=pytest.mark.release),
        pytest.param(bars(plain=lambda name: plain_name(name, 1000)), "is drawn whole", marks=pytest.mark.release),
        pytest.param(bars(label=""), "no axis with a label", marks=pytest.mark.release),
        pytest.param(bars(blot=1.0), "another way each time", marks=pytest.mark.release),
        pytest.param(scores, "raises", marks=pytest.mark.release),
    ],
)
def test_a_bug_in_a_figure_is_found(draw: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_figure(draw, "trials_of_models")


def test_a_figure_has_a_plain_name() -> None:
    with pytest.raises(AssertionError, match="plain lower-case words: 'fig3'"):
        check_figure(bars(), "fig3")
