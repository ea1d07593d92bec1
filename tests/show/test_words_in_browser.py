"""Words that explain themselves, by pointer, keyboard and touch; and a page that fits a phone."""

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest
from browsing import Tabs, hold_clock, open_question, unfold
from page_views import simulated, world
from patient_time import HANGS

from adaptive_eval.report.glossary import GLOSSARY
from adaptive_eval.report.view import RunView
from adaptive_eval.show.page.documents import report_page, script

if TYPE_CHECKING:
    from playwright.sync_api import Page

MODELS = ("qwen3-235b-thinking", "deepseek-r1", "gpt-oss-120b", "phi-4-reasoning", "olmo-2-32b")
TERM = "#details [data-term=bayes] >> nth=0"
LEAVING = 200
"""Milliseconds within which the pointer can move to an explanation."""


def early() -> RunView:
    """A run with something of every verdict's surroundings on its page."""
    return simulated(world(MODELS, 8), looks=6, stopping={"delta": "2%"})


@pytest.fixture(scope="module")
def html() -> str:
    return report_page(early())


def explains(page: "Page", word: str | None) -> None:
    """Wait until this word is explained, or no word."""
    from playwright.sync_api import expect

    if word is None:
        expect(page.locator(".bubble")).to_be_hidden()
    else:
        expect(page.locator(".bubble:not([hidden])")).to_contain_text(GLOSSARY[word].text)


def test_every_word_that_a_module_explains_is_in_the_glossary() -> None:
    modules = [path for path in (files("adaptive_eval.show.page") / "static").iterdir() if path.name.endswith(".js")]
    text = "\n".join(path.read_text("utf-8") for path in modules)
    asked = set(re.findall(r'\bterm\("(\w+)"', text)) | set(re.findall(r'\b(?:key|term): "(\w+)"', text))
    verdicts = {"resolved", "tied", "undecided_by_labels", "open", "out_of_reach", "blocked"}
    assert asked | verdicts <= set(GLOSSARY)
    headings = set(re.findall(r': "(\w+)",', script().partition("const TERMS = {")[2].partition("}")[0]))
    assert headings and headings <= set(GLOSSARY) and len(asked | headings) > 15
    assert set(GLOSSARY) - asked - headings - verdicts == set(), "a word that no part of the page explains"


@pytest.mark.browser
def test_the_pointer_explains_a_word_and_can_reach_the_explanation(tabs: Tabs, html: str) -> None:
    page = tabs.report(html)
    hold_clock(page)
    explains(page, None)
    page.hover(TERM)
    explains(page, "bayes")
    page.hover("#details-title")
    page.clock.run_for(LEAVING - 1)
    page.hover(".bubble")
    page.clock.run_for(10 * LEAVING)
    explains(page, "bayes")  # for who points at the explanation reads it
    page.hover("#details-title")
    page.clock.run_for(LEAVING - 1)
    explains(page, "bayes")
    page.clock.run_for(1)
    explains(page, None)


@pytest.mark.browser
def test_the_keyboard_explains_a_word_and_escape_ends_that(tabs: Tabs, html: str) -> None:
    page = tabs.report(html)
    page.locator("#ranking-title").evaluate("(one) => { one.tabIndex = -1; one.focus(); }")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.term") == "tier"
    explains(page, "tier")
    described = "document.getElementById(document.activeElement.getAttribute('aria-describedby')).textContent"
    assert page.evaluate(described) == GLOSSARY["tier"].text
    page.keyboard.press("Escape")
    explains(page, None)
    assert page.evaluate("document.activeElement.dataset.term") == "tier"
    page.keyboard.press("Enter")
    explains(page, "tier")
    page.keyboard.press("Enter")
    explains(page, None)
    open_question(page, 0)
    page.click("dialog [data-term=bayes]")
    explains(page, "bayes")
    page.keyboard.press("Escape")
    explains(page, None)
    assert page.locator("dialog[open]").count() == 1, "the explanation ends before the dialog"
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")


@pytest.fixture
def touched(tabs: Tabs, html: str) -> Iterator["Page"]:
    """The page on a phone."""
    path = tabs.folder / "phone.html"
    path.write_text(html, encoding="utf-8")
    context = tabs.browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    context.set_default_timeout(1000 * HANGS)
    page = context.new_page()
    page.on("pageerror", lambda error: tabs.complaints.append(f"error: {error}"))
    page.goto(path.as_uri())
    unfold(page)
    yield page
    context.close()


@pytest.mark.browser
def test_a_touch_explains_a_word_until_the_next_one(touched: "Page") -> None:
    tier = touched.locator("#ranking th [data-term=tier]")
    tier.tap()  # the click that comes of it is not waited for
    explains(touched, "tier")
    box = touched.locator(".bubble").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    touched.locator("#ranking th [data-term=score]").tap()
    explains(touched, "score")
    touched.locator("#ranking th [data-term=score]").tap()
    explains(touched, None)
    tier.tap()
    explains(touched, "tier")
    touched.locator("h1").tap()
    explains(touched, None)


CLIPPED = """() =>
  ["p", "h2", "h3", "dd", "caption", "figcaption", "li", "a"]
  .flatMap((name) => [...document.querySelectorAll(`main ${name}`)])
  .filter((one) => one.getClientRects().length && !one.closest(".unseen, caption.unseen"))
  .filter((one) => {
    const { left, right } = one.getBoundingClientRect();
    const scroller = one.closest(".scroll");
    return (left < -0.5 && !(scroller?.scrollLeft > 0)) || (right > innerWidth + 0.5 && !scroller);
  })
  .map((one) => one.outerHTML.slice(0, 120))"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 390, 430])
@pytest.mark.parametrize("looks", [0, 6])
def test_tables_that_scroll_on_a_phone_have_a_hint(tabs: Tabs, width: int, looks: int) -> None:
    page = tabs.report(report_page(simulated(world(MODELS, 8), looks=looks)), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CLIPPED) == []
    page.locator("#words").scroll_into_view_if_needed()
    hidden = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 2)"
    wide = page.evaluate(
        f"{hidden}.map((one) => [one.ariaLabel, one.dataset.more, getComputedStyle(one).maskImage !== 'none'])"
    )
    assert wide and [row for row in wide if row[1:] != ["right", True]] == []
    page.locator("#repeat").scroll_into_view_if_needed()
    first = page.evaluate_handle(f"{hidden}[0]").as_element()
    assert first is not None
    first.evaluate("(one) => { one.scrollLeft = 1e6; }")
    page.wait_for_function("(one) => one.dataset.more === 'left'", arg=first)


CROWDED = """() => [...document.querySelectorAll("svg")].flatMap((svg) => {
  const boxes = [...svg.querySelectorAll("text.tick:not(.title)")]
    .filter((one) => one.getAttribute("text-anchor") === "middle" && one.getClientRects().length)
    .map((one) => [one.textContent, one.getBoundingClientRect()]);
  return boxes.flatMap(([text, box], at) =>
    boxes.slice(at + 1)
      .filter(([, other]) => Math.abs(other.bottom - box.bottom) < 2)
      .filter(([, other]) => other.left < box.right + 3 && box.left < other.right + 3)
      .map(([other]) => `${text} and ${other}`));
})"""


@pytest.mark.browser
def test_the_numbers_of_an_axis_do_not_crowd(tabs: Tabs) -> None:
    """Scores from 0.4 to 0.7; a phone has the numbers alone."""
    run = world(MODELS, 8)
    near = replace(run, p=(run.p + 0.5) / 2.0)
    for width in (700, 1200):
        page = tabs.report(report_page(simulated(near)), width=width)
        page.wait_for_function("document.querySelectorAll('#ranking text.tick').length > 0")
        shown = page.evaluate("document.querySelectorAll('#ranking thead text.tick').length")
        assert shown >= 2 and page.evaluate(CROWDED) == [], width
    view = simulated(near)
    assert view.results is not None
    rows = tuple(replace(row, score=0.0, lo=0.0, hi=0.012) for row in view.results.models)
    page = tabs.report(report_page(replace(view, results=replace(view.results, models=rows))))
    page.wait_for_function("document.querySelectorAll('#ranking text.tick').length > 0")
    assert page.locator("#ranking thead text.tick").first.text_content() == "0.0%", "no score is below"


@pytest.mark.browser
def test_what_is_known_of_questions_is_shown_before_the_first_look(tabs: Tabs) -> None:
    run = simulated(world(MODELS, 8), looks=0)
    page = tabs.report(report_page(run))
    text = page.inner_text("#questions")
    assert "no look has judged 40 of them yet: the bars are hollow." in text
    assert "8 of 8 questions" in text
    open_question(page, 0)
    counts = run.posteriors[run.posterior_of[0][0]].counts
    assert f"{counts[1]} of {sum(counts)} correct" in page.inner_text("dialog")


@pytest.mark.browser
def test_counts_stand_beside_the_posterior_mean_and_trials_that_were_never_judged_are_told(tabs: Tabs) -> None:
    run = simulated(world(MODELS, 8), stopping={"delta": "2%"})
    (first, *others), *other_models = run.trials
    page = tabs.report(report_page(replace(run, trials=((first + 3, *others), *other_models))))
    assert page.inner_text(".fresh").endswith(f"; no look has judged 3 of them ({MODELS[0]} 3).")
    box = page.locator("#questions canvas").bounding_box()
    assert box is not None
    page.locator("#questions canvas").hover(position={"x": box["width"] - 20, "y": box["height"] - 8 * 24 + 10})
    last = run.results.models[-1].name if run.results else ""
    posterior = run.posteriors[run.posterior_of[run.models.index(last)][0]]
    readout = page.inner_text("#questions .readout")
    assert f"{last}: {posterior.counts[1]} of {sum(posterior.counts)} correct" in readout
    assert f"posterior {posterior.mean:.1%}" in readout
    assert "which pulls it to the middle of the scale" in page.inner_text("#details")
