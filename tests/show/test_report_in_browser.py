"""The report in a real browser: it works for every objective, is accessible, and is quick."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from browsing import Tabs, open_question, unfold
from page_views import model_verdicts, simulated, world
from result_rows import rows_of

from adaptive_eval.core.types import Reason
from adaptive_eval.notes import AnswersLost, ModelSetAside, RunFinished
from adaptive_eval.report.finding import finding
from adaptive_eval.report.lines import Scale
from adaptive_eval.report.results import Caution, MetricRow, OtherCostRow, ServerRow
from adaptive_eval.report.view import RunView, event_view
from adaptive_eval.show.page.documents import report_page
from adaptive_eval.simulate.worlds import World

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

MODELS = tuple(f"model-{letter}" for letter in "abcdefgh")
ASKED: dict[str, dict[str, object]] = {
    "ranking": {"stopping": {"delta": "2%"}, "budget": {"trials": 5000, "wall_time": "1h"}},
    "best": {"objective": "best"},
    "top_k": {"objective": {"kind": "top_k", "k": 3}},
    "baseline": {"objective": {"kind": "baseline", "baseline": MODELS[3]}, "stopping": {"familywise": "holm"}},
    "pairs": {"objective": {"kind": "pairs", "pairs": [[MODELS[0], MODELS[1]], [MODELS[4], MODELS[2]]]}},
    "threshold": {"objective": {"kind": "threshold", "value": 0.6}},
    "precision": {"objective": {"kind": "precision", "half_width": 0.05}},
    "before the first look": {"looks": 0},
    "stopped": {"looks": 3},
    "set aside": {"set_aside": MODELS[2]},
    "alone": {"objective": {"kind": "precision", "half_width": 0.12}},
}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202etxt.exe\u0007\n\u2028{{7*7}}"


def asked(kind: str) -> RunView:
    return simulated(world(MODELS[:1] if kind == "alone" else MODELS, 8), **ASKED[kind])  # type: ignore[arg-type]


def test_what_several_models_have_lost_is_one_line(tabs: Tabs) -> None:
    view = asked("ranking")
    assert view.results is not None
    lost = [OtherCostRow("lost", name, 0, 500, 0.0, 0.0, 0.0, answers=12) for name in MODELS[:3]]
    verdicts = OtherCostRow("lost_verdicts", MODELS[1], 0, 64, 0.0, 0.0, 0.0)
    leftover = OtherCostRow("left", "gone", 3, 90, 0.0, 0.0, 0.0, answers=2)
    cost = replace(view.results.cost, beside=(lost[0], verdicts, *lost[1:], leftover))
    page = tabs.report(report_page(replace(view, results=replace(view.results, cost=cost))))
    also = "lost answers of 3 models; lost verdicts on answers of model-b; gone, no longer in the run"
    assert f"Also: 3 trials, 1,654 tokens on {also}." in page.inner_text("#cost")


FIRST_SCREEN = """() => {
  const seen = (one) => {
    const { top, bottom, left, right } = one.getBoundingClientRect();
    return top >= 0 && bottom <= innerHeight && left >= 0 && right <= innerWidth && right > left;
  };
  const texts = (of) => [...document.querySelectorAll(of)].filter(seen).map((one) => one.innerText.trim());
  return { lead: texts(".lead b"), scores: texts("#ranking td.digits:not(.each)"), says: texts("#ranking td.says"),
    each: texts("#ranking td.each"), cost: texts("header p.quiet"), order: texts("#ranking tbody th.model") };
}"""


def with_costs(run: RunView) -> RunView:
    """The run with tokens and seconds per answer of every model, and a price of the best."""
    assert run.results is not None
    first, *others = (replace(row, tokens_per_answer=1234.4, seconds_per_answer=4.56) for row in run.results.models)
    return replace(run, results=replace(run.results, models=(replace(first, usd_per_answer=0.0123), *others)))


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
@pytest.mark.parametrize("kind", ["ranking", "stopped"])
def test_the_first_screen_has_the_best_how_surely_and_its_cost(tabs: Tabs, kind: str, width: int, height: int) -> None:
    """Without a scroll or a click: the finding, every model with its interval, cost and verdict, and the answers."""
    run = with_costs(simulated(world(MODELS[:6], 8), **ASKED[kind]))  # type: ignore[arg-type]
    assert run.results is not None
    path = tabs.folder / "first.html"
    path.write_text(report_page(run), encoding="utf-8")
    page = tabs.open(width=width, height=height)
    page.goto(path.as_uri())
    page.wait_for_selector("#cost .tile")
    seen = page.evaluate(FIRST_SCREEN)
    rows, scale = run.results.models, Scale(0.0, 1.0)
    assert seen["lead"] == list(finding(run.results))
    assert seen["order"] == [row.name for row in rows]
    assert seen["says"] == list(model_verdicts(run.results))
    for row, score in zip(rows, seen["scores"], strict=True):
        assert row.lo is not None and row.hi is not None
        bounds = [scale.score(end).removesuffix("%") for end in (max(row.lo, 0.0), min(row.hi, 1.0))]
        assert score.split() == [scale.score(row.score), "–".join(bounds)]
    assert seen["each"] == ["$0.012\n1,234 tokens\n4.6 s", *["1,234 tokens\n4.6 s"] * (len(rows) - 1)]
    cost = run.results.cost
    (cost_text,) = seen["cost"]
    lines = page.evaluate("document.querySelector('header p.quiet').getBoundingClientRect().height / 22")
    assert width < 1280 or lines < 1.5, "one line below the name"
    assert f" · {cost.trials:,} trials (at most {cost.allowed_trials:,} were allowed), " in cost_text
    assert bool(run.next_steps) == (kind != "stopped"), "that goes on"
    for step in run.next_steps:
        assert step.text in page.inner_text(".next")
        assert step.command is None or step.command in page.locator(".next pre.command").all_inner_texts()
    assert page.locator("details.part[open]").count() == 0
    page.click(".top a[href='#questions']")
    assert page.locator("#questions details.part[open]").count() == 1


@pytest.mark.parametrize("kind", ASKED)
def test_every_section_is_drawn_for_every_objective(tabs: Tabs, kind: str) -> None:
    page = tabs.report(report_page(asked(kind)))
    assert [url for url in tabs.requests if not url.startswith(("file:", "data:"))] == []
    empty = page.evaluate(
        "[...document.querySelectorAll('main section:not([hidden]) .body')].filter((one) => !one.textContent).length"
    )
    assert empty == 0
    for word in ("NaN", "undefined", "Infinity", "[object"):
        assert word not in page.inner_text("main"), word
    for bad in page.evaluate("[...document.querySelectorAll('svg [d], svg [x], svg [cx]')].map((it) => it.outerHTML)"):
        assert "NaN" not in bad and "undefined" not in bad and "Infinity" not in bad
    shown = page.evaluate(
        "[...document.querySelectorAll('main > section')].filter((one) => one.checkVisibility()).map(({ id }) => id)"
    )
    always = ["ranking", "cost", "trials", "questions", "traffic", "repeat", "words", "decided"]
    assert kind != "before the first look" or shown == always, "a section without content is left out"
    assert kind != "ranking" or {*shown} == {*always, "details", "stopping", "trajectories", "matrix"}, "no labels"


def test_metrics_recorded_models_and_how_to_repeat_it_are_shown(tabs: Tabs) -> None:
    view = asked("ranking")
    assert view.results is not None
    best, second, *others = view.results.models
    best_metric = MetricRow("pass@4", best.name, 0.875, 0.02, 0.8358, 0.9142)
    metrics = (best_metric, MetricRow("pass@4", second.name, None, None, None, None))
    models = (best, replace(second, recorded="last-week"), *others)
    page = tabs.report(report_page(replace(view, results=replace(view.results, metrics=metrics, models=models))))
    shown = page.locator("#details [aria-label^='Metrics'] tbody tr").all_inner_texts()
    assert shown[0].strip().split("\t") == [best.name, "87.5% (83.6% .. 91.4%)"]
    assert shown[1].strip().split("\t") == [second.name, "-"]
    assert f"{second.name} recorded: last-week" in page.inner_text("#ranking")
    sampling: dict[str, object] = {"temperature": 0.6, "max_tokens": 2000, "top_p": "server default"}
    models = tuple(replace(row, sampling=sampling, prior_depth=4.0) for row in view.results.models)
    servers = (ServerRow(MODELS[0], ("vllm", "serve", "<b>org/model"), "0.9", 2),)
    page = tabs.report(report_page(replace(view, results=replace(view.results, models=models, servers=servers))))
    assert "recorded" not in page.inner_text("#ranking")
    texts = "all 8 models", "Empty settings were not sent", "vllm serve <b>org/model", "Trial i has seed", "name: page"
    for text in (*texts, "correct"):
        assert text in page.inner_text("#repeat"), text
    assert "R0" in page.inner_text("#details")


def test_a_run_that_stopped_says_how_many_more_it_would_need_and_why_it_ended(tabs: Tabs) -> None:
    view = asked("stopped")
    assert view.results is not None
    open_ = replace(view.results.pairs[0], verdict="open", trials_needed=2.5)
    trials = {"min": 1, "max": 1, "draw": 60}
    results = replace(view.results, decisions={**view.results.decisions, "trials": trials}, pairs=(open_,))
    configuration = {**view.configuration, "trials": trials}
    page = tabs.report(report_page(replace(view, results=results, configuration=configuration)))
    details, needed = page.inner_text("#details"), page.inner_text("#stopping")
    assert "Bayes@N" not in details
    assert "questions needed" in needed and f"\t{round(2.5 * results.max_trials_per_model)}\t" in needed
    assert "Bayes@N" in tabs.report(report_page(view)).inner_text("#details")
    given_up = replace(open_, verdict="out_of_reach", deciding_max=637.0)
    page = tabs.report(report_page(replace(view, results=replace(view.results, pairs=(given_up,)))))
    assert "\t637\t" in page.inner_text("#stopping"), "as in the sentence above"
    page = tabs.report(report_page(replace(view, looks=())))  # it was graded again
    assert "The looks are taken anew when the run goes on." in page.inner_text("#stopping")
    assert MODELS[0] in page.inner_text("#ranking")
    error = "Stopped by an error: model-a: 401 <b>refused</b>."
    for stopped in (view, asked("before the first look")):
        page = tabs.report(report_page(replace(stopped, ended=error, next_steps=())))
        assert "stopped" in page.inner_text("h1")
        assert error in page.inner_text(".lead") and "the same command" not in page.inner_text(".lead")


def test_hostile_texts_stay_texts(tabs: Tabs) -> None:
    hostile = tuple(f"{name} {HOSTILE.replace(chr(10), '')}"[:150].replace("\u0007", "") for name in MODELS[:3])
    run = simulated(world(hostile, 4))
    assert run.results is not None
    questions = tuple(replace(each, prompt=HOSTILE, answer=HOSTILE, choices=(HOSTILE,)) for each in run.questions)
    results = replace(run.results, warnings=(Caution("kind<b>", hostile[0], HOSTILE),))
    troubles = (ModelSetAside(hostile[1], HOSTILE), AnswersLost(hostile[1], 3, usd=0.1 + 0.2))
    events = (*run.events, *map(event_view, (*troubles, RunFinished(Reason.OUT_OF_REACH, hostile))))
    view = replace(run, name=HOSTILE, results=results, questions=questions, events=events)
    page = tabs.report(report_page(view))
    open_question(page, 1)
    assert page.evaluate("document.querySelectorAll('img, iframe, object, embed, main script, main b > b').length") == 0
    assert page.evaluate("document.scripts.length") == 3
    prompt = page.inner_text("dialog .foreign >> nth=0")
    assert "<img src=x onerror=alert(2)>" in prompt and "U+202E" in prompt and "U+0007" in prompt and "U+2028" in prompt
    assert "\u202e" not in page.inner_text("body") and "\u0007" not in page.inner_text("body")
    assert "⟨U+202E⟩" in page.inner_text("#cost .warnings")
    assert "model-b </script>" in page.inner_text("#traffic tr:has-text('set aside')")
    assert page.locator("#traffic tr:has-text('answers lost')").count() == 0, "displays show it in another way"


CHECKS = (Path(__file__).parent / "checks.js").read_text()


def check(page: "Page", call: str) -> Any:
    """What one of the checks finds in a page."""
    return page.evaluate(f"() => {{ {CHECKS} return checks.{call}; }}")


@pytest.mark.parametrize("kind", ["ranking", "precision", "before the first look"])
@pytest.mark.parametrize("width", [360, 1280])
def test_elements_are_named_and_headings_and_landmarks_are_in_order(tabs: Tabs, kind: str, width: int) -> None:
    page = tabs.report(report_page(asked(kind)), width=width)
    assert check(page, "nameless()") == []
    if kind != "before the first look":
        open_question(page, 0)
        assert check(page, "nameless()") == []
    assert page.evaluate("document.documentElement.lang") == "en"
    for landmark in ("header", "main", "footer"):
        assert page.locator(landmark).count() == 1
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1 and max(np.diff(levels)) <= 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width


MARKS = [
    [".whisker", "stroke"],
    [".dot", "fill"],
    [".boundary", "stroke"],
    [".large .curve", "stroke"],
    *([f".badge.v-{verdict}", "color"] for verdict in ("resolved", "tied", "open", "out_of_reach", "blocked")),
]


@pytest.mark.parametrize("dark", [False, True])
def test_texts_and_marks_contrast_with_the_background(tabs: Tabs, dark: bool) -> None:
    run = simulated(world(MODELS, 8), looks=4, stopping={"delta": "3%"})
    assert run.results is not None
    verdicts = ("resolved", "tied", "open", "out_of_reach", "blocked", "open", "resolved")
    pairs = tuple(replace(pair, verdict=verdict) for pair, verdict in zip(run.results.pairs, verdicts, strict=True))
    results = replace(run.results, pairs=pairs, warnings=(Caution("truncated", MODELS[0], "12% of its answers"),))
    page = tabs.report(report_page(replace(run, results=results)), dark=dark)
    assert check(page, "faint()") == []
    open_question(page, 0)
    assert check(page, "faint()") == []
    marks = check(page, f"marks({json.dumps(MARKS)})")
    assert len(marks) == len(MARKS)
    assert {name: ratio for name, ratio in marks if ratio < 3.0} == {}


SIGNS = {"resolved": "circle", "open": "circle", "tied": "mhmh", "out_of_reach": "mlml", "blocked": "mhvhzml"}
"""A disc, a ring, an equals sign, a cross, and a box that is struck through: the steps in which each is drawn."""


def test_verdicts_differ_in_shape_and_word(tabs: Tabs) -> None:
    run = simulated(world(MODELS, 8), looks=4)
    assert run.results is not None
    verdicts = (*SIGNS, "open", "resolved")
    pairs = tuple(replace(pair, verdict=verdict) for pair, verdict in zip(run.results.pairs, verdicts, strict=True))
    page = tabs.report(report_page(replace(run, results=replace(run.results, pairs=pairs))))
    signs = check(page, "signs()")
    assert set(signs) == {"resolved", "tied", "open", "out of reach", "blocked"}
    assert len(set(signs.values())) == 5
    for verdict, shape in SIGNS.items():
        tag, steps, radius = page.eval_on_selector(
            f"#stopping .panel .badge .sign.v-{verdict} >> nth=0",
            "one => [one.tagName, (one.getAttribute('d') || '').replace(/[^a-z]/gi, ''), +one.getAttribute('r')]",
        )
        assert (steps if tag == "path" else tag).lower() == shape
        # a ring is drawn on its line, a disc to its rim
        assert tag == "path" or (radius == 4.5) == (verdict == "resolved")


def test_questions_are_sorted_and_filtered(tabs: Tabs) -> None:
    run = asked("ranking")
    assert run.results is not None
    page = tabs.report(report_page(run))

    def shown(rows: int) -> list[str]:
        page.locator("#questions canvas").focus()
        page.keyboard.press("Home")
        readouts = [page.inner_text("#questions .readout")]
        for _ in range(rows):  # once more than there are
            page.keyboard.press("ArrowDown")
            readouts.append(page.inner_text("#questions .readout"))
        return [readout.partition(",")[0] for readout in readouts]

    ids = [question.id for question in run.questions]
    assert shown(len(ids)) == [*ids, ids[-1]]
    page.select_option("[data-order]", f"model:{MODELS[1]}")
    place = [row.name for row in run.results.models].index(MODELS[1])
    order = sorted(rows_of(run.results), key=lambda row: -row.mean[place])
    assert shown(len(ids)) == [*(row.id for row in order), order[-1].id]
    page.fill("[data-filter]", "what is Q7")
    assert "1 of 8 questions" in page.inner_text("#questions [role=status]")
    assert page.evaluate("document.activeElement.hasAttribute('data-filter')")
    assert shown(1) == ["q7", "q7"]


def test_a_chosen_comparison_is_shown_large_with_its_data(tabs: Tabs) -> None:
    run = asked("ranking")
    page = tabs.report(report_page(run))
    page.locator(".panel").nth(2).click()
    assert page.inner_text("#stopping .large h3").startswith(f"{MODELS[2]} over {MODELS[3]}")
    assert page.locator(".panel").nth(2).get_attribute("aria-pressed") == "true"
    page.locator("#stopping .large summary").click()
    rows = page.locator("#stopping .large tbody tr")
    rows.first.wait_for()
    pair_of = {MODELS[2], MODELS[3]}
    assert rows.count() == sum(any({pair.first, pair.second} == pair_of for pair in look.pairs) for look in run.looks)


@pytest.fixture(scope="module")
def large() -> RunView:
    """20 models, 120 questions, up to 80 trials."""
    names = tuple(f"organisation/model-{number}-instruct" for number in range(20))
    drawn: World = world(names, 120)
    return simulated(drawn, trials={"min": 4, "max": 80})


def test_a_large_run_costs_little_to_draw(tabs: Tabs, large: RunView) -> None:
    """Counted in blocks of code that are run, which a slow or busy machine does not change, and in layouts."""
    html = report_page(large)
    assert len(html) < 4_000_000
    page = tabs.open()
    session = page.context.new_cdp_session(page)
    for begin in ("Performance.enable", "Profiler.enable"):
        session.send(begin)
    session.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": True})

    def pieces() -> int:
        """Blocks that were run since the last call."""
        scripts = session.send("Profiler.takePreciseCoverage")["result"]
        functions = [function for script in scripts for function in script["functions"]]
        return sum(piece["count"] for function in functions for piece in function["ranges"])

    path = tabs.folder / "large.html"
    path.write_text(html, encoding="utf-8")
    page.goto(path.as_uri())
    unfold(page)
    assert 100_000 < pieces() < 800_000
    assert "120 of 120 questions" in page.inner_text("#questions [role=status]")
    assert page.evaluate("document.querySelectorAll('*').length") < 6_000
    pieces()
    page.fill("[data-filter]", "q1")
    assert 10_000 < pieces() < 150_000
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    assert metrics["LayoutCount"] < 60, "no row is laid out by itself"


def test_a_printed_report_is_complete_and_light(tabs: Tabs, large: RunView) -> None:
    page = tabs.report(report_page(large), dark=True)
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("details.part:not([open])").count() == 0
    assert len(page.pdf(format="A4", print_background=True)) < 3_000_000
