"""A board as people see it: nothing that came from outside is markup, and the page reads everywhere."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browsing import Tabs
from live_runs import MODELS, EndedRuns, Site, kill, wait_for_trials
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.record.board import Board, board_of
from adaptive_eval.record.board_runs import BoardRun, RunOnBoard, RunScore, UnreadRun
from adaptive_eval.show.board import board_markdown
from adaptive_eval.show.page.board import board_page

HOSTILE = '<img src=x onerror="alert(1)"><script>alert(1)</script>|`[x](http://evil.invalid)\x1b[31m\u202e\n# big'
CHECKS = Path(__file__).with_name("checks.js")


def run_of(name: str, week: int, benchmark: str, means: dict[str, float]) -> BoardRun:
    models = tuple(
        RunScore(model, name, rank, rank, mean, 0.02, mean - 0.04, mean + 0.04, 0.05, 240, False, False)
        for rank, (model, mean) in enumerate(sorted(means.items(), key=lambda one: -one[1]), start=1)
    )
    line = RunOnBoard(name, f"2026-03-{week:02d}T08:00:00+00:00", "finished", True, "settled", 720, models)
    return BoardRun(line, benchmark, benchmark, 30, frozenset(), ("wrong", "right"), (0.0, 1.0), "{}", ())


def hostile_board() -> Board:
    """Everything that has a name has an evil one; one benchmark has a history of eight weeks."""
    models = {f"{HOSTILE} {number}": 0.3 + 0.04 * number for number in range(12)}
    weeks = [
        run_of(
            f"week {week} {HOSTILE}",
            week,
            f"aime {HOSTILE}",
            {name: mean + 0.01 * week for name, mean in models.items()},
        )
        for week in range(1, 9)
    ]
    other = run_of("math", 1, "math", models)
    return board_of([*weeks, other], [UnreadRun(f"bad {HOSTILE}", f"it is {HOSTILE}")])


class Elements(HTMLParser):
    """Which elements and attributes a page has."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name in ("style", "srcdoc")]


def test_names_are_texts_on_the_page_and_in_markdown() -> None:
    board = hostile_board()
    page = board_page(board, "now")
    found = Elements()
    found.feed(page)
    assert not found.seen & {"script", "img", "iframe", "object", "a", "form"} and not found.handlers
    assert "default-src 'none'; style-src 'sha256-" in page and "script-src" not in page
    text = board_markdown(board)
    assert not {"\x1b", "\u202e"} & set(page + text)
    assert "\n# big" not in text and not re.search(r"(?<!\\)<|(?<!\\)\[x", text)


def test_all_that_a_board_has_is_shown() -> None:
    board = hostile_board()
    text = board_markdown(board)
    assert text.startswith("# Board\n\n12 models, 2 benchmarks, 9 runs.\n")
    first = board.average[0]
    assert first.score is not None and f"{100 * first.score:.1f}%" in text
    assert "2 earlier runs not shown" in text and "is left out" in text and "+1.00% (-4.54% .. +6.54%)" in text
    assert board_page(board, "now").count("<circle") == 8 * 10 and "The first 10 of 12 models" in board_page(
        board, "now"
    )


@pytest.mark.slow
def test_the_command_writes_what_is_asked_for(site: Site, ended_runs: EndedRuns, tmp_path: Path) -> None:
    folder = site.folder / "runs"
    for name, changes in (("a", {}), ("b", {"seed": 3})):
        ended_runs.copy(site, folder / name, trials={"min": 12, "max": 12}, **changes)
    told = CliRunner().invoke(app, ["board", str(folder)])
    assert told.exit_code == 0 and "3 models, 1 benchmark, 2 runs" in told.stdout and "by run" in told.stdout
    told = CliRunner().invoke(app, ["board", str(folder), "--format", "html"])
    assert told.stdout.strip() == str(folder / "board.html")
    path = tmp_path / "board.json"
    CliRunner().invoke(app, ["board", str(folder / "a"), str(folder / "b"), "--format", "json", "-o", str(path)])
    whole = json.loads(path.read_text())
    assert whole["format"] == "adaptive-eval.board/1" and str(site.folder) not in path.read_text()
    (benchmark,) = whole["board"]["benchmarks"]
    assert [run["name"] for run in benchmark["runs"]] == ["a", "b"] or benchmark["runs"][0]["name"] == "b"
    assert len(benchmark["changes"]) == 3 and whole["board"]["no_average"] == "there is one benchmark with scores"
    failed = CliRunner().invoke(app, ["board", str(folder), "-o", str(tmp_path / "no" / "board.md"), "--format", "md"])
    assert failed.exit_code == 1 and "give another --output" in failed.stderr


@pytest.mark.slow
def test_a_weekly_board_over_the_life_of_a_run(site: Site, ended_runs: EndedRuns, slow_url: str) -> None:
    """Begun, killed, resumed: the board has it at every moment, and the week before counts until it is over."""
    folder = site.folder / "runs"
    ended_runs.copy(site, folder / "week1", trials={"min": 12, "max": 12})
    week2: dict[str, object] = {"seed": 5, "trials": {"min": 12, "max": 12}}
    models = [{"name": name, "base_url": site.base_url} for name in MODELS]
    models[-1]["base_url"] = slow_url  # so that it is not over before it is killed

    def standing() -> dict[str, str]:
        told = CliRunner().invoke(app, ["board", str(folder), "--format", "json"])
        assert told.exit_code == 0, told.stderr
        (benchmark,) = json.loads(told.stdout)["board"]["benchmarks"]
        assert {row["run"] for row in benchmark["models"]} == {counts}
        return {run["name"]: run["status"] for run in benchmark["runs"]}

    counts = "week1"
    assert standing() == {"week1": "finished"}
    process = site.start(site.write("week2", **week2, models=models), "--run-dir", str(folder / "week2"))
    assert wait_for_trials(folder / "week2", 30, process)
    assert standing() == {"week1": "finished", "week2": "running"}
    kill(process)
    assert standing() == {"week1": "finished", "week2": "stopped"}
    site.run(site.write("week2", **week2), "--run-dir", str(folder / "week2"))
    counts = "week2"
    assert standing() == {"week1": "finished", "week2": "finished"}


@pytest.mark.browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (360, False)])
def test_the_page_reads_everywhere(tabs: Tabs, tmp_path: Path, width: int, dark: bool) -> None:
    path = tmp_path / "board.html"
    path.write_text(board_page(hostile_board(), "2026-03-09"), encoding="utf-8")
    page = tabs.open(width=width, dark=dark)
    page.goto(path.as_uri())
    assert page.locator("h1").inner_text() == "Board" and page.locator("figure svg[role=img]").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    regions = page.locator('.scroll[tabindex="0"]')
    assert regions.count() == page.locator("table").count()
    for check in ("nameless()", "faint()"):
        assert page.evaluate(f"() => {{ {CHECKS.read_text()} return checks.{check}; }}") == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "scroll"
    assert tabs.requests == [path.as_uri()]
