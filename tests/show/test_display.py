"""What a person and a program see of a run."""

import asyncio
import io
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest
from page_views import model_verdicts, simulated_results, world
from rich.cells import cell_len
from rich.console import Console

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.config.decisions import Decisions
from adaptive_eval.core.types import Cause, Look, Lost, PairVerdict, Reason, Verdict
from adaptive_eval.notes import (
    BaselineAsked,
    Change,
    Event,
    ModelSetAside,
    OnlyFailures,
    ReplicaBack,
    ReplicaLost,
    RunResumed,
    RunStarted,
    SettingsChanged,
    ThresholdsFrozen,
    TrialsImported,
    TrialsRegraded,
)
from adaptive_eval.report.ending import Ended, find_ending
from adaptive_eval.report.event_words import event_sentence
from adaptive_eval.report.finding import Clause, counted_sentence, finding, has_tiers, main_findings
from adaptive_eval.report.lines import Scale, count, duration, safe_line
from adaptive_eval.report.records import Spending
from adaptive_eval.report.results import Caution, GateRow, Results
from adaptive_eval.report.status import CurrentTraffic, Standing, Status, Used, results_in_progress, standings
from adaptive_eval.running.watching import Display
from adaptive_eval.show import displays
from adaptive_eval.show.displays import JsonDisplay, PlainDisplay, open_display
from adaptive_eval.show.live import LiveDisplay
from adaptive_eval.show.ranking import abbreviate, ranking_text
from adaptive_eval.show.summary import last_screen, untimed_findings
from adaptive_eval.show.text import Rates, fit_columns, wrap_lines

HOSTILE = "[bold red]x[/] \x1b]0;title\x07\x1b[2J\u202eevil\nline"


NAMES = ("ada", "bob", "cyd")
OPEN = PairVerdict(0, 1, Verdict.OPEN, 1.0, 0.8, 2.0, 0.3, 0.5, 20.0, False)
FIRST = Look(0, (48, 48, 48), (0, 1, 2), (1, 1, 1), (0.8, 0.6, 0.4), (0.1, 0.1, 0.1), (OPEN, OPEN))
"""The first look of a run of three models, none of which are told apart."""


@cache
def status() -> Status:
    """The status of a run of three models at its end."""
    results = simulated_results(world(NAMES))
    cost, running = results.cost, results_in_progress(results)
    used = Used(Spending(cost.trials, cost.tokens, cost.usd, cost.gpu_seconds))
    return Status(3, running, (), CurrentTraffic(0, 0, 0, 0, 0), used, cost.trials, 0, 3.0)


def how_it_ended(
    reason: Reason | None,
    status: Status,
    directory: Path,
    results: Results | None = None,
    lost: Mapping[str, Lost] = MappingProxyType({}),
) -> Ended:
    fields = {"reason": reason, "results": results, "trials": status.used.spent.trials, "lost": lost, "status": status}
    return Ended(**fields, directory=directory, place=str(directory), arguments=("my run.yaml",))


TEN = tuple(f"model-{number:02}" for number in range(10))
LONG = tuple(f"organisation/a-long-name-{'instruct' * (number % 2)}-step-{number:02}000" for number in range(10))
WIDE = tuple(f"通义千问二点五七十二亿参数指令{number}" for number in range(10))


@cache
def ten_models(names: tuple[str, ...] = TEN) -> Results:
    """Results of ten models of which no neighbours are told apart."""
    results = simulated_results(world(names, 4), looks=1)
    pairs = tuple(
        replace(pair, verdict="out_of_reach", trials_needed=200.0, deciding_max=600.0) for pair in results.pairs
    )
    return replace(results, pairs=pairs)


@pytest.mark.parametrize("names", [TEN, LONG, WIDE])
def test_results_of_ten_models_fit_the_width_of_a_small_terminal(names: tuple[str, ...]) -> None:
    results = ten_models(names)
    results = replace(results, warnings=tuple(Caution("odd", None, "a warning " * at) for at in (40, 41, 42)))
    results = replace(results, looks=(replace(results.looks[-1], trials=1),))  # most answers were asked ahead of it
    assert counted_sentence(results) is not None
    ended = how_it_ended(Reason.OUT_OF_REACH, status(), Path("runs/ten"), results)
    _, *lines = last_screen(ended, 80).splitlines()
    assert all(cell_len(line) <= 80 for line in lines)
    head = lines.index(next(line for line in lines if line.startswith("tier  model")))
    assert " ".join(lines[: head - 1]) == " ".join(finding(results)) and lines[head - 1] == ended.why
    rows = [line.split() for line in lines[head + 1 : head + 11]]
    assert len({row[1] for row in rows}) == 10, "names stay apart"
    assert [row[-1] for row in rows[:-1]] == [row[1] for row in rows[1:]], "each is abbreviated in one way"
    assert (rows[0][1] == names[0]) == (names is TEN)
    assert sum(line.startswith("warning   a warning") for line in lines) == 3
    assert lines[-6].startswith("to do     raise trials.max to 600 (up to ")
    assert lines[-5:] == [
        "          adaptive-eval run 'my run.yaml' --set trials.max=600",
        "          read the answers:",
        "          adaptive-eval monitor runs/ten --web",
        "          write a report:",
        "          adaptive-eval report runs/ten",
    ]


LETTERS = tuple(f"model-{letter}" for letter in "abcdefgh")


@pytest.mark.parametrize(
    ("asked", "stopping", "expected"),
    [
        ("best", {"delta": 0.2}, r"model-. is the best, or less than 20 points behind the best: .*"),
        ("best", {"rule": "optimal", "confidence": 0.55}, r"model-. is best: .*"),
        ({"kind": "top_k", "k": 2}, {"delta": 0.2}, r".* are the best 2, or less than 20 points behind any of the o.*"),
        ({"kind": "threshold", "value": 0.6}, {}, r".* above 60\.0%.*"),
        ({"kind": "precision", "half_width": 0.05}, {}, r"\d of 8 scores (is|are) as precise as requested\."),
    ],
)
def test_the_finding_answers_what_was_asked(asked: object, stopping: dict[str, object], expected: str) -> None:
    results = simulated_results(world(LETTERS, 8), objective=asked, stopping=stopping)
    (sentence,) = main_findings(results)
    assert re.fullmatch(expected, sentence), sentence
    assert has_tiers(results) is not ("less than" in expected), "rivals of a pick are compared with it alone"
    if asked == "best" and "less than" in expected:
        pick, *rivals = model_verdicts(results)
        assert pick == "ahead of 7 models, or less than 20 points behind"
        assert set(rivals) == {f"behind {results.models[0].name}, or less than 20 points ahead"}


def test_a_sentence_that_an_earlier_start_left_in_place_of_a_reason_is_no_reason() -> None:
    results = simulated_results(world(LETTERS, 8))
    run = replace(results.run, reason="its answers were graded again; resume the run to judge them")
    killed = find_ending([RunStarted(), RunResumed()], replace(results, run=run), 10, Decisions())
    assert killed.reason is None and killed.why.startswith("Killed")


def test_outcomes_of_comparisons_with_a_baseline_are_counted_in_the_right_words() -> None:
    baseline = LETTERS[3]
    results = simulated_results(world(LETTERS, 8), objective={"kind": "baseline", "baseline": baseline})
    verdicts = ("resolved", "tied", "tied", "open", "out_of_reach", "blocked", "open")
    others = [name for name in LETTERS if name != baseline]
    pairs = tuple(
        replace(pair, verdict=verdict, first=baseline, second=other)
        for pair, verdict, other in zip(results.pairs, verdicts, others, strict=True)
    )
    (sentence,) = main_findings(replace(results, pairs=pairs))
    assert "2 equal, 2 open, 1 out of reach, 1 blocked." in sentence and "1 worse" in sentence


def test_the_same_warning_about_several_models_is_shown_once() -> None:
    results = ten_models()
    cut = [
        Caution("truncated", row.name, f"{9 + at}.0% of its 1,{at}00 stored answers ended at max_tokens")
        for at, row in enumerate(results.models)
    ]
    away = [Caution("set_aside", name, "it is set aside") for name in ("ada", "bob")]
    warnings = [
        line for line in untimed_findings(replace(results, warnings=(*cut, *away)), None) if line.startswith("warning")
    ]
    assert warnings == [
        f"warning   {results.models[0].name}: 9.0% of its 1,000 stored answers ended at max_tokens "
        "(also 9 more models: see the report)",
        "warning   ada: it is set aside",
        "warning   bob: it is set aside",
    ]
    six = tuple(Caution("odd", None, f"a warning {number}") for number in range(6))
    assert "          and 1 more warning in results.json" in [*untimed_findings(replace(results, warnings=six), None)]


def test_each_build_of_a_gate_has_an_outcome_and_the_baseline_has_none() -> None:
    results = ten_models()
    first, base, last = (row.name for row in results.models[:3])
    above = replace(results.pairs[0], first=first, second=base, verdict="resolved")
    pairs = above, replace(above, first=base, second=last)
    gate = GateRow(first, base, "PASS", "better than it"), GateRow(last, base, "FAIL", "worse than it")
    decisions = {**results.decisions, "objective": {"kind": "baseline", "baseline": base, "gate": True}}
    shown = standings(replace(results, models=results.models[:3], pairs=pairs, gate=gate, decisions=decisions))
    assert [str(row.clauses[0]) for row in shown] == ["PASS", "the baseline", "FAIL"]
    text = ranking_text(shown, Scale(0.0, 1.0), None, without_tiers=True)
    assert text.head.split()[0] == "model" and text.lines[1][0].split()[0] == base, "it puts nobody in a tier"


async def test_plain_prints_of_looks_in_quick_succession_only_those_with_news(monkeypatch: pytest.MonkeyPatch) -> None:
    out, now = io.StringIO(), [100.0]
    monkeypatch.setattr(displays, "time", SimpleNamespace(monotonic=lambda: now[0]))
    display = PlainDisplay(out)
    display.opened("run", NAMES, status)
    display.looked([replace(FIRST, index=index) for index in range(3)])
    called = replace(FIRST, index=3, comparisons=(OPEN._replace(verdict=Verdict.RESOLVED), OPEN))
    display.looked([called, replace(called, index=4)])
    now[0] += displays.MIN_LOOK_SECONDS
    display.looked([replace(called, index=5), replace(called, index=6)])
    display.closed()
    headings = [line.partition(":")[0] for line in out.getvalue().splitlines() if line.startswith("look ")]
    assert headings == ["look 1", "look 4", "look 6"]


async def test_displays_of_a_look_have_the_outcome_of_the_newest_gate_and_the_best_model_first() -> None:
    out, lines, results = io.BytesIO(), io.StringIO(), status().results
    assert results is not None and len(results.looks) > 1
    newest, gate = results.looks[-1], (GateRow("ada", "bob", "FAIL", "worse than it"),)
    for display in (PlainDisplay(lines), JsonDisplay(out)):
        display.opened("run", NAMES, lambda: replace(status(), results=replace(results, gate=gate)))
        display.looked([replace(FIRST, order=(2, 0, 1))])
        display.closed()
    assert f"look {newest.look}: {newest.trials:,} trials, 1 FAIL; " in lines.getvalue()
    (look,) = (record for record in map(json.loads, out.getvalue().splitlines()) if record["record"] == "look")
    assert [model["name"] for model in look["models"]] == ["cyd", "ada", "bob"]


@pytest.mark.parametrize("make", [lambda: LiveDisplay(Scale(0.0, 1.0)), PlainDisplay], ids=["rich", "plain"])
async def test_hostile_names_and_messages_cannot_control_the_terminal(
    tmp_path: Path, make: Callable[[], Display], capsys: pytest.CaptureFixture[str]
) -> None:
    display, results = make(), status().results
    assert results is not None
    named = replace(results, models=(replace(results.models[0], name=HOSTILE), *results.models[1:]))
    display.opened(HOSTILE, (HOSTILE, *NAMES[1:]), lambda: replace(status(), results=named))
    display.looked([replace(FIRST, tiers=(1, 2, 2))])
    display.happened(ModelSetAside(model="m", reason=HOSTILE))
    display.closed()
    display.ended(how_it_ended(Reason.SETTLED, status(), tmp_path, named))
    shown = capsys.readouterr().out
    assert "[bold red]x[/]" in shown
    assert "\x1b]0" not in shown and "\x1b[2J" not in shown and "\u202e" not in shown and "\x07" not in shown


def standing(name: str, verdict: Verdict, relation: str, other: str, tier: int = 1) -> Standing:
    """A model of many trials."""
    plain = {"usd_per_answer": None, "tokens_per_answer": None, "seconds_per_answer": None}
    score = {"score": 0.875, "sigma": 0.027, "lo": 0.822, "hi": 0.928, "trials": 12_345, "stored_trials": 12_345}
    row = replace(ten_models().models[0], name=name, rank=tier, tier=tier, **score, **plain)
    return Standing(row, (Clause(verdict, relation, (other,)),))


def test_a_narrow_terminal_cuts_names_and_never_scores() -> None:
    rows = [standing("a" * 60, Verdict.OPEN, "open against", "b" * 60), standing("b" * 60, Verdict.OPEN, "", "a" * 60)]
    head, ((before, verdict), _), names, _ = ranking_text(rows, Scale(0.0, 1.0), 80, without_tiers=False)
    for word in ("87.5%", "82.2% .. 92.8%", names["a" * 60]):
        assert word in before.split("  ")
    assert verdict == f"open against {names['b' * 60]}"
    assert "95% interval" in head and len(before + verdict) <= 80 and "trials" not in head


def priced(name: str, other: str, usd: float | None) -> Standing:
    """A model with price, tokens and seconds per answer."""
    row = standing(name, Verdict.RESOLVED, "better than", other)
    return row._replace(row=replace(row.row, usd_per_answer=usd, tokens_per_answer=1234.4, seconds_per_answer=0.456))


def test_ranking_has_price_tokens_and_seconds_per_answer_beside_the_score_or_below() -> None:
    rows = [priced("ada", "bob", 0.0123), priced("bob", "ada", None)]
    head, ((ada, _), (bob, _)), _, apart = ranking_text(rows, Scale(0.0, 1.0), None, without_tiers=False)
    columns = re.split("  +", head.strip())
    assert columns[2:8] == ["score", "95% interval", "$/answer", "tokens/answer", "s/answer", "trials"]
    assert ada.split()[5:9] == ["92.8%", "0.012", "1,234", "0.46"] and bob.split()[6] == "-" and apart == ()
    unpriced = [row._replace(row=replace(row.row, usd_per_answer=None)) for row in rows]
    head, *_ = ranking_text(unpriced, Scale(0.0, 1.0), None, without_tiers=False)
    assert "$/answer" not in head and "tokens/answer" in head, "no price, no column"
    nothing = [standing("ada", Verdict.OPEN, "open against", "bob")]
    assert "answer" not in ranking_text(nothing, Scale(0.0, 1.0), None, without_tiers=False).head

    names = [f"organisation/a-long-model-name-{number}" for number in range(2)]
    rows = [priced(names[0], names[1], 0.0123), priced(names[1], names[0], 0.5)]
    head, lines, short, apart = ranking_text(rows, Scale(0.0, 1.0), 80, without_tiers=False)
    assert "answer" not in head and all(cell_len(before + verdict) <= 80 for before, verdict in lines)
    assert [line.split() for line in apart] == [
        ["model", "$/answer", "tokens/answer", "s/answer"],
        [short[names[0]], "0.012", "1,234", "0.46"],
        [short[names[1]], "0.500", "1,234", "0.46"],
    ], "a narrow terminal has a table of its own"


def test_ten_models_fit_a_terminal_of_24_lines_and_no_word_is_cut() -> None:
    names = [f"Qwen3-8B-step-{number}000" for number in range(10)]
    rows = [
        standing(name, Verdict.RESOLVED, "better than", following, tier)
        for tier, (name, following) in enumerate(zip(names, [*names[1:], names[0]], strict=True), 1)
    ]
    console = Console(file=io.StringIO(), width=80, height=24)
    display = LiveDisplay(Scale(0.0, 1.0), console=console)
    running = status().results
    assert running is not None
    pair = replace(running.pairs[0], verdict="resolved", difference=None)  # a finding of one line
    pairs = tuple(replace(pair, first=row.row.name, second=row.clauses[0].others[0]) for row in rows)
    decisions = {"objective": {"kind": "ranking"}}
    results = replace(running, models=tuple(row.row for row in rows), pairs=pairs, decisions=decisions)
    display._name, display._status = "run", replace(status(), results=results)
    words = [f"word{number}" for number in range(60)]
    for _ in range(9):
        display.happened(ModelSetAside(model="m", reason=" ".join(words)))
    console.print(display._draw())
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= 24 and all(any(name in line for line in lines) for name in names)
    shown = {word for line in lines for word in line.split() if word.startswith("word")}
    assert shown and shown <= set(words) and "question" not in "".join(lines)


@pytest.mark.parametrize(
    ("reason", "last"),
    [
        (None, "to do     to continue:"),
        (Reason.BLOCKED, "to do     start the servers, or fix the cause, then:"),
        (Reason.BUDGET, "to do     raise the budget, then:"),
    ],
)
def test_the_summary_says_what_may_come_next(tmp_path: Path, reason: Reason | None, last: str) -> None:
    *_, advice, command = last_screen(how_it_ended(reason, status(), tmp_path)).splitlines()
    assert advice == last and command == "          adaptive-eval run 'my run.yaml'"
    ended = how_it_ended(
        Reason.GPU_TIME,
        replace(status(), used=replace(status().used, held_seconds=900.0, held_gpu_seconds=1800.0)),
        tmp_path,
    )
    assert "servers held for 15m00s in total (0.50 GPU hours)" in last_screen(ended)
    assert "held" not in last_screen(how_it_ended(Reason.WALL_TIME, status(), tmp_path))


SERVER = Lost(Cause.SERVER, "it died\n  a line of a log")
EXCESS = Lost(Cause.EXCESS, "an answer used 9000 tokens with its prompt")
GRADER = Lost(Cause.GRADER, "no grade on question q3: too slow")


@pytest.mark.parametrize(
    ("lost", "code", "mend"),
    [
        ({"ada": SERVER}, ExitCode.ENDPOINTS, False),
        ({"ada": GRADER}, ExitCode.SPENT, True),
        ({"ada": GRADER, "bob": SERVER}, ExitCode.ENDPOINTS, True),
    ],
)
def test_blocked_runs_name_the_lost_and_why(tmp_path: Path, lost: dict[str, Lost], code: ExitCode, mend: bool) -> None:
    ended = how_it_ended(Reason.BLOCKED, status(), tmp_path, lost=lost)
    assert ended.exit_code is code
    assert all(f"{name} ({loss.headline})" in ended.why for name, loss in lost.items())
    assert "line of a log" not in ended.why
    assert ended.why.startswith("Finished" if SERVER not in lost.values() else "Stopped")
    last = last_screen(ended)
    assert (("fix that server, then:\n" in last) and (f"regrade {tmp_path} --config 'my run.yaml'" in last)) == mend
    assert ("grader" in last.partition("to do")[2]) == mend
    assert ("start the servers, or fix the cause, then:\n" in last) == (SERVER in lost.values())
    assert "raise trials.max" not in last


@pytest.mark.parametrize("reason", [Reason.BLOCKED, Reason.BUDGET])
def test_a_server_that_ignores_max_tokens_is_to_be_fixed_before_a_new_run(tmp_path: Path, reason: Reason) -> None:
    last = last_screen(how_it_ended(reason, status(), tmp_path, lost={"ada": EXCESS, "bob": SERVER}))
    step = "fix the servers that do not keep to max_tokens, and start over"
    assert f"{step}:\n          adaptive-eval run 'my run.yaml' --fresh" in last
    assert last.count("adaptive-eval run") == 1


@pytest.mark.patient
async def test_the_plain_display_breaks_a_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
    monkeypatch.setattr(displays, "MAX_SILENCE_SECONDS", 0.02)
    out, down = (
        io.StringIO(),
        replace(status(), looks=0, used=Used(Spending(7)), traffic=CurrentTraffic(5, 12, 15, 1, 2)),
    )
    display = PlainDisplay(out)
    display.opened("run", ("ada",), lambda: down)
    await asyncio.sleep(0.1)
    display.closed()
    lines = out.getvalue().splitlines()
    assert lines[0] == "run: running"
    prefix = "look 1 is not complete yet: 7 trials, 5 in flight, 12 retries, 15 errors, 1 of 2 replicas down; "
    assert 2 <= len(lines) <= 6 and all(line.startswith(prefix) for line in lines[1:])
    await asyncio.sleep(0.05)
    assert len(out.getvalue().splitlines()) == len(lines)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_last_screen_that_cannot_be_shown_is_not_missing_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(displays.sys, "stdout", full)
        display = open_display("plain", (0.0, 1.0))
        display.ended(how_it_ended(Reason.BUDGET, status(), tmp_path))
        monkeypatch.undo()
    assert capsys.readouterr().err == "nothing more is shown (No space left on device)\n"


def test_what_does_not_fit_goes_on_below_the_text() -> None:
    table = "tier  alike  model      score\n   1  a      ada        50.0%"
    text = f"\nFinished.\n\n{table}\n\npromise   one two three four five six\n          seven eight nine ten eleven"
    assert wrap_lines(text, 120) == text
    assert wrap_lines(text, 30) == (
        f"\nFinished.\n\n{table}\n\n"
        "promise   one two three four\n          five six\n          seven eight nine ten\n          eleven"
    )
    for before in ("Next: ", "answers   ", "          "):
        command = f"one two\n{before}adaptive-eval report {'long/' * 30}run"
        assert wrap_lines(command, 20) == command, "a command is never wrapped"


def test_names_of_wide_characters_keep_the_columns() -> None:
    names = ("模型一", "bob", "long-" * 12)
    rows = [standing(name, Verdict.OPEN, "open against", "bob") for name in names]
    head, lines, *_ = ranking_text(rows, Scale(0.0, 1.0), None, without_tiers=False)
    column = cell_len(head[: head.index("score")])
    assert {cell_len(before[: before.index("%") + 1]) for before, _ in lines} == {column + len("score")}
    assert fit_columns("模型一", 4) == "模… " and fit_columns("模型", 6) == "模型  "
    assert fit_columns("模型一二", 6) == "模…二 " and fit_columns("model-step-1000", 9) == "mode…1000"


def test_abbreviated_names_are_told_apart() -> None:
    checkpoints = [f"organisation/a-long-model-step-{step}000" for step in range(1, 4)]
    assert list(abbreviate(checkpoints, 15).values()) == [f"organis…ep-{step}000" for step in range(1, 4)]
    sizes = [f"organisation/model-{size}b-instruct-final" for size in (7, 8)]
    assert list(abbreviate(sizes, 22).values()) == [f"orga…{size}b-instruct-final" for size in (7, 8)]
    inside = [f"{'a' * 30}{at}{'b' * 30}" for at in range(2)]
    assert list(abbreviate(inside, 9).values()) == ["aaaaaa…#1", "aaaaaa…#2"], "no cut shows it"


def test_the_cost_says_how_many_trials_were_allowed(tmp_path: Path) -> None:
    results = ten_models()
    allowed = {900: "900 trials (at most 1,800 were allowed)", 2484: "2,484 trials (1,800 are allowed now)"}
    for trials, sentence in allowed.items():
        cost = replace(results.cost, trials=trials, allowed_trials=1800)
        assert any(sentence in line for line in untimed_findings(replace(results, cost=cost), tmp_path))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (ModelSetAside(model="m", reason="it died\n  of this"), "m is set aside: it died"),
        (
            OnlyFailures(model="m", seconds=31, errors={"server_error": 4, "reset": 1}, last="HTTP 500: on fire\nno"),
            "m: no answer for 31 s, requests are being retried "
            "(errors so far: server error 4, reset 1; the last one: HTTP 500: on fire)",
        ),
        (
            OnlyFailures(model="", seconds=12, errors={"reset": 2}, judge="my-judge (2 of 3)"),
            "judge my-judge (2 of 3): no answer for 12 s, requests are being retried (errors so far: reset 2)",
        ),
        (
            ReplicaLost(model="m", replica="http://a/v1", reason="no connection"),
            "m: http://a/v1 is lost (no connection); its requests go elsewhere or wait until it is back",
        ),
        (ReplicaBack(model="", replica="http://a/v1", judge="mild"), "judge mild: http://a/v1 is back"),
        (
            TrialsImported(trials=9, files=("a.eval", "b", "c", "d\x1b")),
            "started with 9 trials imported from a.eval, b, c and 1 more",
        ),
        (
            ThresholdsFrozen(run="old", values={"high": 0.25}, medians={"q1": 9.0}, models={"ada": 12, "bob": 12}),
            "thresholds frozen, from 24 trials of the run old: high 0.25, the usual length of 1 question",
        ),
        (
            BaselineAsked(scores=(-0.6931471805599453, -1.3862943611198906, -2.772588722239781)),
            "without content, the verifier gives its labels A, B and C the probabilities 0.5, 0.25, 0.0625",
        ),
        (
            TrialsRegraded(trials=120, so_far=120, of=120, failed=120),
            "graded 0 of 120 stored answers again; 120 got no grade",
        ),
        (TrialsRegraded(trials=9, answers=9, changed=2, failed=0), "graded 9 stored answers again"),
        (ThresholdsFrozen(run="old", models={"ada": 12}), "thresholds frozen, from 12 trials of the run old"),
        (
            SettingsChanged(
                changes=(
                    Change("models", [{"name": "ada", "gpus": 1}, {"name": "bob"}], [{"name": "ada", "gpus": 2}]),
                    Change("report.group_by", [], ["topic"]),
                    Change("models", [{"name": "ada"}, {"name": "bob"}], [{"name": "bob"}, {"name": "ada"}]),
                )
            ),
            "settings changed: models.ada.gpus, models.bob (removed), report.group_by, models",
        ),
    ],
)
def test_events_are_described_in_words(event: Event, expected: str) -> None:
    assert event_sentence(event) == expected


def test_names_numbers_and_intervals_are_short_and_on_one_line() -> None:
    assert [safe_line("naïve 模型 α"), safe_line("a\nb\tc\u2028d"), safe_line("x" * 500, 4)] == [
        "naïve 模型 α",
        "a b c d",
        "xxx…",
    ]
    assert [count(0), count(4321), count(1_234_567), count(2.5e9)] == ["0", "4,321", "1.23M", "2.5G"]
    assert [count(999_999), count(999_499), count(112_500), count(9.9996e15)] == ["1M", "999k", "112k", "10000T"]
    assert [duration(5), duration(75), duration(9000)] == ["5s", "1m15s", "2h30m"]
    shares = (-0.2, 0.3), (0.9, 1.1), (math.nan, math.nan), (1.05, 1.4)
    within = ["0.0% .. 30.0%", "90.0% .. 100.0%", "- .. -", "100.0% .. 100.0%"]
    assert [Scale.of((1.0, 0.0)).interval(*ends) for ends in shares] == within
    assert Scale.of((-1.0, 2.0)).interval(-1.5, 1.5) == "-1.000 .. 1.500"


def test_a_rate_can_be_read_while_another_thread_adds_to_it() -> None:
    """The drawing thread reads while the loop adds: here, where it compares the latest time."""
    rates = Rates()

    class Latest(float):
        def __le__(self, other: float) -> bool:
            rates.add(1000.0, 70, 0)
            return float(self) <= other

    rates.add(0.0, 0, 0)
    rates._seen.append((Latest(10.0), 50, 0))
    assert rates.eta(50.0) == 10.0 and len(rates._seen) == 1
