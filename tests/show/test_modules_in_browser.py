"""The page's own functions, asked one by one: numbers and foreign texts."""

from collections.abc import Callable

import pytest
from browsing import Tabs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_eval.report.lines import count
from adaptive_eval.show.page.documents import script

pytestmark = pytest.mark.browser
Call = Callable[[str, str], object]


@pytest.fixture
def call(tabs: Tabs) -> Call:
    """Evaluates an expression in which a module is called `it`."""
    page, loaded = tabs.open(), set[str]()

    def worth(module: str, expression: str) -> object:
        name = f"$_{module.removesuffix('.js')}"
        if module not in loaded:
            page.evaluate(f"() => {{ {script(module)}; window.{name} = {name}; }}")
            loaded.add(module)
        return page.evaluate(f"() => {{ const it = window.{name}; return {expression}; }}")

    return worth


TEXTS_OF = {
    "count(4321)": "4,321",
    "count(1234567)": "1.23M",
    "count(null)": "–",
    "count(0)": "0",
    "number(-1.234)": "−1.23",
    "number(-0.001)": "0.00",
    "number(2, 0)": "2",
    "name('org/model/a').innerHTML": "org/<wbr>model/<wbr>a",
    "percent(0.1234, 1)": "12.3%",
    "chance(0.0001)": "< 0.001",
    "chance(0.99999)": "> 0.999",
    "chance(1)": "1.000",
    "usd(0.0042)": "$0.0042",
    "usd(1234.5)": "$1,234.50",
    "duration(7.75)": "7.8s",
    "duration(75)": "1m 15s",
    "duration(9000)": "2h 30m",
    "duration(864000)": "10d 0h",
    "plural(1, 'look')": "1 look",
    "plural(0, 'look')": "0 looks",
    "plain('a\\u202eb\\u0000c\\nd')": "a⟨U+202E⟩b⟨U+0000⟩c d",
    "plain('abcdefghij', 7)": "abcd…ij",
    "plain('\\ud800x')": "⟨U+D800⟩x",
    "plain('می‌خواهم 👩‍🚀')": "می‌خواهم 👩‍🚀",
    "plain('\\u{e0041}')": "⟨U+E0041⟩",
}


def test_numbers_and_names_read_well(call: Call) -> None:
    assert call("text.js", f"[{', '.join(f'it.{expression}' for expression in TEXTS_OF)}]") == list(TEXTS_OF.values())


HALVES = st.builds(lambda k, n: k / 2**n, st.integers(-(10**7), 10**7), st.integers(0, 12))


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(HALVES | st.floats(-1e9, 1e9), st.integers(0, 4))
def test_a_number_is_rounded_as_every_other_report_rounds_it(call: Call, value: float, digits: int) -> None:
    text = call("text.js", f"it.number({value!r}, {digits})")
    assert isinstance(text, str) and text.replace("−", "-") in (f"{value:.{digits}f}", f"{abs(value):.{digits}f}")
    assert (text[0] == "−") == (float(f"{value:.{digits}f}") < 0)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(HALVES | st.integers(-(10**13), 10**13) | st.sampled_from([112_500, 999_499, 999_500, 999_999, 1_125_000]))
def test_a_count_is_that_of_every_other_report(call: Call, value: float) -> None:
    assert call("text.js", f"it.count({value!r})") == count(value)


TICKS = {
    "0, 1, 5": [0, 0.2, 0.4, 0.6, 0.8, 1],
    "0.61, 0.64, 3": [0.61, 0.62, 0.63, 0.64],
    "1, 48, 10, true": [5, 10, 15, 20, 25, 30, 35, 40, 45],
    "1, 3, 10, true": [1, 2, 3],
    "2, 2, 5": [2],
    "-4.7, 5.2, 6": [-4, -2, 0, 2, 4],
}


def test_ticks_are_round(call: Call) -> None:
    assert call("chart.js", f"[{', '.join(f'it.ticks({interval})' for interval in TICKS)}]") == list(TICKS.values())


STAYS = """(() => {
  const old = document.createElement("div");
  document.body.append(old);
  const version = (key) =>
    it.h("div", null, it.h("p", { "data-key": key }), it.h("details", null, it.h("summary", null, "Data")));
  it.update(old, version("one"));
  const [details] = old.getElementsByTagName("details");
  details.open = true;
  details.firstChild.focus();
  it.update(old, version("two"));
  const kept = document.activeElement === details.firstChild && old.lastChild === details && details.open;
  const found = [kept, old.children.length, old.firstChild.dataset.key];
  old.remove();
  return found;
})()"""


def test_elements_after_a_new_one_are_kept(call: Call) -> None:
    assert call("dom.js", STAYS) == [True, 2, "two"]
