"""The demonstration: a file that needs nothing else, whose numbers are scorio's."""

import json
import re
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from browsing import Tabs, hold_clock
from command_line import typed

import scorio.eval
from adaptive_eval.show.page.documents import demo_page, script
from scorio.convergence import Study, trajectory
from scorio.rank import rank_scores
from scorio.sinf import WangTsiatis

if TYPE_CHECKING:
    from playwright.sync_api import Page

LARGEST = 300_000
EXACT = 1e-9
CHECKS = Path(__file__).with_name("checks.js")


def test_the_demo_is_one_small_file_that_may_request_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    path = tmp_path / "page.html"
    assert typed("demo", "-o", path, "--no-open").exit_code == 0 and not opened
    text = path.read_text()
    assert text == demo_page() and len(text.encode()) < LARGEST
    assert "default-src 'none'" in text and "connect-src" not in text
    assert typed("demo", "-o", path).exit_code == 0 and opened == [path.as_uri()]
    assert typed("demo", "-o", tmp_path / "no" / "page.html", "--no-open").exit_code == 1


def evaluated(tabs: Tabs, module: str, expression: str) -> object:
    page = tabs.open()
    return page.evaluate(
        f"() => {{ {script(module)}; const it = $_{module.removesuffix('.js')}; return {expression}; }}"
    )


@pytest.mark.browser
def test_numbers_of_the_demo_are_those_of_scorio(tabs: Tabs) -> None:
    rng = np.random.default_rng(8)
    fixtures = []
    for questions, n in ((1, 4), (3, 7), (30, 80), (100, 200)):
        R = (rng.random((5, questions, n)) < rng.random((5, questions, 1))).astype(int)
        fixtures.append((R, n))
    data = json.dumps([[R.sum(axis=2).tolist(), n] for R, n in fixtures])
    results = evaluated(
        tabs,
        "demo_stats.js",
        f"""{data}.map(([rights, n]) => {{
          const [a, mu] = [rights.map((one) => it.avg(one, n)), rights.map((one) => it.bayes(one, n))];
          const means = a.map((one) => one[0]);
          const pass = [1, 2, 4].map((k) => rights.map((one) => it.passAtK(one, n, k)));
          return {{ a, mu, pass, ranks: it.ranks(means),
            z: it.zScore(mu[0], mu[1]) }};
        }})""",
    )
    assert isinstance(results, list)
    for (R, n), result in zip(fixtures, results, strict=True):
        near: Callable[[object], object] = lambda value: pytest.approx(value, rel=0, abs=EXACT)  # noqa: E731
        mu = [tuple(scorio.eval.bayes(model)) for model in R]
        assert [tuple(estimate) for estimate in result["mu"]] == [near(estimate) for estimate in mu]
        assert [tuple(estimate) for estimate in result["a"]] == [near(tuple(scorio.eval.avg(model))) for model in R]
        for k, values in zip((1, 2, 4), result["pass"], strict=True):
            assert values == near([scorio.eval.pass_at_k(model, k) for model in R])
        assert result["ranks"] == rank_scores([scorio.eval.avg(model)[0] for model in R]).tolist()
        assert result["z"] == near((mu[0][0] - mu[1][0]) / np.hypot(mu[0][1], mu[1][1]))
        assert n > 0


@pytest.mark.browser
def test_convergence_and_boundary_of_the_demo_are_those_of_scorio(tabs: Tabs) -> None:
    rng = np.random.default_rng(3)
    tensors = [(rng.random((3, 4, 12)) < np.array([0.7, 0.5, 0.2])[:, None, None]).astype(int) for _ in range(30)]
    moved = [trajectory(Study.of(tensor)) for tensor in tensors]
    histories = json.dumps([history.ranks.tolist() for history in moved])
    module = "demo_stats.js"
    assert evaluated(tabs, module, f"{histories}.map(it.convergenceAt)") == [history.converged_at for history in moved]
    assert {history.converged_at == 0 for history in moved} == {True, False}
    rule = WangTsiatis(0.25, 0.05)
    c = rule.critical(0.1)
    at = [0.05, 0.25, 0.7, 1.0]
    boundaries = evaluated(tabs, module, f"{at}.map((t) => it.boundary(t, {{c: {c!r}, kappa: 0.25, start: 0.05}}))")
    assert boundaries == pytest.approx(rule.at(np.array(at), c).tolist(), rel=EXACT)
    (sent,) = re.findall(r'"c":([\d.]+)', demo_page())
    assert float(sent) == pytest.approx(c, rel=EXACT)


def asked_where_open(R: np.ndarray, rule: WangTsiatis, c: float) -> list[tuple[list[int], int]]:
    """Trials of each model and neighbours told apart, round by round, from the definitions alone."""
    models, _, limit = R.shape
    trials, apart, rounds = [1] * models, set(), []
    while True:
        now = [scorio.eval.avg(R[model, :, :n]) for model, n in enumerate(trials)]
        order = sorted(range(models), key=lambda model: (-now[model][0], model))
        pairs = [frozenset(pair) for pair in zip(order, order[1:], strict=False)]
        for a, b in map(sorted, pairs):
            share = 2 / limit / (1 / trials[a] + 1 / trials[b])
            z = abs(now[a][0] - now[b][0]) / np.hypot(now[a][1], now[b][1])
            if share >= 0.05 * (1 - 1e-9) and z > rule.at(share, c):
                apart.add(frozenset((a, b)))
        still = [pair for pair in pairs if pair not in apart]
        rounds.append((list(trials), len(pairs) - len(still)))
        asked = {model for pair in still for model in pair if trials[model] < limit}
        if not asked:
            return rounds
        for model in asked:
            trials[model] += 1


@pytest.mark.browser
def test_the_demo_asks_only_where_the_ranking_is_open(tabs: Tabs) -> None:
    rng = np.random.default_rng(11)
    rule = WangTsiatis(0.25, 0.05)
    c = rule.critical(0.1)
    tensors = [(rng.random((4, 6, 40)) < scores[:, None, None]).astype(int) for scores in rng.random((12, 4))]
    played = evaluated(
        tabs,
        "demo_play.js",
        f"""{json.dumps([tensor.tolist() for tensor in tensors])}.map((answers) =>
          it.onlyWhereOpen(it.history({{ names: [], answers, truth: null }}), {{c: {c!r}, kappa: 0.25, start: 0.05}})
            .map((round) => [round.trials, round.told]))""",
    )
    assert isinstance(played, list)
    expected = [asked_where_open(tensor, rule, c) for tensor in tensors]
    assert [[(trials, apart) for trials, apart in rounds] for rounds in played] == expected
    assert {rounds[-1][1] for rounds in expected} > {3}, "some are told apart to the end, some are not"
    assert min(sum(rounds[-1][0]) for rounds in expected) < 0.5 * 4 * 40


@pytest.mark.browser
@pytest.mark.parametrize(("width", "dark"), [(1280, True), (360, False)])
def test_the_demo_is_played_by_mouse_and_keyboard(tabs: Tabs, tmp_path: Path, width: int, dark: bool) -> None:
    page = opened(tabs, tmp_path, width=width, dark=dark)
    assert page.text_content("#told") == "1 of 80"
    assert page.evaluate("document.querySelector('.demo-race').getBoundingClientRect().top") < 200, "it begins there"
    page.click("#step")
    assert page.text_content("#told") == "2 of 80"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert page.text_content("#told") == "3 of 80"
    page.keyboard.press(" ")
    page.clock.run_for(2 * STEP)
    assert page.text_content("#told") == "5 of 80" and page.text_content("#play") == "Pause"
    page.keyboard.press(" ")
    assert page.text_content("#play") == "Play"
    page.fill("#scores", "90, 10")
    page.click("form button")
    page.fill("#n", "80")
    assert page.locator("tbody tr").first.inner_text().startswith("model 1")
    assert "the ranking stays that of all 80 trials from trial" in str(page.text_content("#settled"))
    spent = re.search(r"(\d+) trials per question instead of 160 .* 1 of 1", str(page.text_content("#spent")))
    assert spent is not None and 8 <= int(spent[1]) < 60, "two models far apart need few of their trials"
    before = page.locator("tbody tr").first.inner_text().split("\t")
    page.fill("#prior", "10")
    page.fill("#wrong", "0.5")
    assert [page.inner_text(f"output[for={moved}]") for moved in ("prior", "wrong")] == ["10", "0.5"]
    after = page.locator("tbody tr").first.inner_text().split("\t")
    column = page.locator("thead th").all_inner_texts().index("average")
    score, worth = (float(cells[column].rstrip("%")) for cells in (before, after))
    assert worth == pytest.approx(50.0 + score / 2, abs=0.11), "a wrong answer is worth half of a right one"
    bayes = float(after[column + 2].rstrip("%"))
    assert bayes < worth - 2.0, "ten imagined answers of each kind draw it to the middle"
    below = page.evaluate("[...document.querySelectorAll('.scroll')].map((one) => one.scrollWidth - one.clientWidth)")
    assert max(below) <= 1, "its tables fit"
    page.click("#many")
    shares = [
        float(share) for share in page.evaluate("document.getElementById('tally').textContent.match(/[\\d.]+(?=%)/g)")
    ]
    assert shares[0] > 20.0 and shares[1] < 14.0, "peeking calls equals apart, and the sequential rule seldom"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    for check in ("nameless()", "faint()"):
        assert page.evaluate(f"() => {{ {CHECKS.read_text()} return checks.{check}; }}") == []
    page.fill("#scores", "all")
    page.click("form button")
    assert "true scores: 2 to 20 numbers" in str(page.text_content("#problem"))
    assert tabs.requests == [page.url]


STEP, STILL_STEP = 150, 1500
"""Milliseconds of a step that is played, and of one for those who want reduced motion."""


def opened(tabs: Tabs, folder: Path, **how: bool | int) -> "Page":
    """The demonstration, drawn; its clock goes on only when it is told to."""
    path = folder / "demo.html"
    path.write_text(demo_page())
    page = tabs.open(**how)  # type: ignore[arg-type]
    hold_clock(page)
    page.goto(path.as_uri())
    page.wait_for_selector("#told:text-is('1 of 80')")
    return page


STEPS_SEEN = """
window.seen = [];
new MutationObserver(() => {
  seen.push(parseInt(document.getElementById("told").textContent));
}).observe(document.getElementById("told"), { childList: true });
"""


@pytest.mark.browser
@pytest.mark.parametrize(("still", "stride"), [(True, 10), (False, 1)])
def test_those_who_want_reduced_motion_see_few_steps(tabs: Tabs, tmp_path: Path, still: bool, stride: int) -> None:
    page = opened(tabs, tmp_path, still=still)
    page.evaluate(STEPS_SEEN)
    page.click("#play")
    page.clock.run_for(3 * (STILL_STEP if still else STEP))
    page.click("#play")
    assert page.evaluate("seen") == [1 + stride, 1 + 2 * stride, 1 + 3 * stride]
    moving = """[...document.querySelectorAll("*")].filter((one) => {
      const { transitionDuration: turn, animationDuration: play, animationName: name } = getComputedStyle(one);
      return parseFloat(turn) > 0.01 || (name !== "none" && parseFloat(play) > 0.01);
    }).length"""
    assert not still or page.evaluate(moving) == 0


@pytest.mark.browser
def test_the_whole_demo_works_by_keyboard(tabs: Tabs, tmp_path: Path) -> None:
    page = opened(tabs, tmp_path)
    reached = []
    for _ in range(13):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "() => { const it = document.activeElement;"
            " return [it.id || it.textContent, getComputedStyle(it).outlineStyle]; }"
        )
        reached.append(name)
        assert outline != "none" or name == "", f"{name} does not show that it is reached"
        if name == "scores":
            page.keyboard.press("Control+A")
            page.keyboard.type("90, 10")
            page.keyboard.press("Enter")
            page.wait_for_selector("tbody tr:nth-child(2):last-child")
        if name == "play":
            page.keyboard.press("Space")
            page.clock.run_for(2 * STEP)
            page.keyboard.press("Space")
            assert page.text_content("#told") == "3 of 80"
            page.keyboard.press("ArrowRight")
            assert page.text_content("#told") == "4 of 80"
            page.keyboard.press("ArrowLeft")
            assert page.text_content("#told") == "3 of 80"
        if name == "n":
            page.keyboard.press("End")
            assert page.text_content("#told") == "80 of 80"
            page.keyboard.press("ArrowLeft")
            assert page.text_content("#told") == "79 of 80"
            break
        if name == "many":
            tally = page.text_content("#tally")
            page.keyboard.press("Enter")
            assert page.text_content("#tally") != tally
    expected = ["again", "many", "scores", "questions", "difficulty", "most", "prior", "wrong", "New draw"]
    expected += ["play", "step", "n"]
    assert [name for name in reached if name in expected] == expected
