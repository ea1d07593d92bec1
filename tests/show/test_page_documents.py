"""The documents are complete, load nothing from elsewhere, and turn no text of a run into markup or script."""

import base64
import hashlib
import html
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import orjson
import pytest
from page_views import simulated, world

from adaptive_eval.report.glossary import GLOSSARY
from adaptive_eval.report.view import RunView
from adaptive_eval.show.details import request_blocks
from adaptive_eval.show.markdown import summary
from adaptive_eval.show.page import documents as bundle
from adaptive_eval.show.page.documents import MONITOR_POLICY, assets, monitor_page, report_page
from adaptive_eval.show.page.sent import page_view
from adaptive_eval.show.text import Table

NASTY = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>&amp;\u2028\u2029\u202e\x00\"'"
PACKAGE = Path(bundle.__file__).parents[2]
MODULES = {path.name: path for path in sorted(PACKAGE.rglob("static/*.js"))}


class Elements(HTMLParser):
    """Every start tag with its attributes, and what stands in scripts, styles and the title."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag = self.tags[-1][0] if self.tags else ""
        if tag in ("script", "style", "title"):
            self.texts.append((tag, data))

    def all(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.tags if name == tag)

    def text(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag and text.strip()]


@pytest.fixture(scope="module")
def view() -> RunView:
    return simulated(world(("ann", "bo", "cy")))


@pytest.fixture(scope="module")
def nasty() -> RunView:
    """A run in which every text from outside is hostile."""
    run = simulated(world(("ann", NASTY.replace("\x00", ""), "cy")), name="page")
    questions = tuple(
        replace(question, prompt=NASTY, answer=NASTY, choices=(NASTY,), cluster=NASTY) for question in run.questions
    )
    return replace(run, name=NASTY, questions=questions)


def test_a_report_carries_the_view_as_it_is(view: RunView, nasty: RunView) -> None:
    for run in (view, nasty):
        assert "\u202e" not in report_page(replace(run, name="run")), "its source is in the order in which it is shown"
        _, data, _ = Elements(report_page(run)).text("script")
        assert orjson.loads(data) == orjson.loads(orjson.dumps(page_view(run)))
    still = re.search(r"<noscript>.*<pre>(.*)</pre></noscript>", report_page(view), re.DOTALL)
    assert still is not None and html.unescape(still[1]) == summary(view), "without its script it has the ranking"
    assert view.results is not None and all(row.name in still[1] for row in view.results.models)


def test_nothing_that_a_run_says_becomes_an_element(view: RunView, nasty: RunView) -> None:
    calm, bad = Elements(report_page(view)), Elements(report_page(nasty))
    assert [tag for tag, _ in bad.tags] == [tag for tag, _ in calm.tags]
    title = re.search("<title>(.*?)</title>", report_page(nasty), re.DOTALL)
    assert title is not None and "<" not in title[1]
    assert html.unescape(title[1]) == f"{NASTY} · adaptive-eval"


def test_the_policy_of_a_report_allows_its_own_script_and_style_alone(view: RunView) -> None:
    def hash_of(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    page = Elements(report_page(view))
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and "unsafe" not in policy
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert allowed["default-src"] == "'none'"
    assert set(allowed) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}
    assert allowed["script-src"] == hash_of(page.text("script")[2])
    assert allowed["style-src"] == hash_of(page.text("style")[0])
    assert allowed["img-src"] == "data:"
    assert [tag for tag, _ in page.tags].index("style") > 3  # the policy stands before what it allows


def test_a_report_refers_to_nothing_outside_of_it(view: RunView) -> None:
    page = Elements(report_page(view))
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster", "style"):
            assert (attributes.get(name) or "data:").startswith("data:"), (tag, name)
        assert not [name for name in attributes if name.startswith("on")]
    style, (*_, code) = page.text("style")[0], page.text("script")
    assert not re.search(r"url\(|@import|@font-face", style)
    assert set(re.findall(r"https?://[^\"'\s]*", style + code)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", MODULES)
def test_no_module_makes_markup_or_code_of_texts(name: str) -> None:
    source = MODULES[name].read_text("utf-8")
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", source
    )
    assert not re.findall(r"</script|</style|<!--", source)


def test_the_monitors_page_takes_script_and_style_from_its_server() -> None:
    page = Elements(monitor_page('a/b "c"<d>'))
    assert list(map(orjson.loads, page.text("script"))) == [orjson.loads(orjson.dumps(dict(GLOSSARY)))]
    assert page.text("style") == [] and page.text("title") == ['a/b "c"<d> · adaptive-eval']
    sources = [tag["src"] for tag in page.all("script") if tag.get("type") is None]
    sources += [tag["href"] for tag in page.all("link")]
    assert sources == ["assets/app.js", "assets/icon.svg", "assets/style.css"]
    assert set(assets()) == {"app.js", "icon.svg", "style.css"}
    assert "unsafe" not in MONITOR_POLICY and "default-src 'none'" in MONITOR_POLICY


DEMO = {name for name in MODULES if name.startswith("demo")}
BEGUN = re.compile(r"^const \$_(\w+) = \(\(\) => \{$", re.MULTILINE)


def test_every_module_is_in_a_script() -> None:
    """The monitor and the report have all but those of the demonstration, and what lies elsewhere."""
    page, demo = ({f"{name}.js" for name in BEGUN.findall(bundle.script(entry))} for entry in ("main.js", "demo.js"))
    modules = {name for name, path in MODULES.items() if path.parent == bundle.STATIC}
    assert page == modules - DEMO and demo > DEMO


@pytest.mark.parametrize("entry", sorted({"main.js", "demo.js", "label.js"} & set(MODULES)))
def test_every_module_is_in_the_script_once_and_after_those_it_needs(entry: str) -> None:
    code = bundle.script(entry, MODULES[entry].parent)
    begun = BEGUN.findall(code)
    assert len(set(begun)) == len(begun)
    assert not re.search(r"^(import|export)\b", code, re.MULTILINE)
    for at, name in enumerate(begun):
        source = MODULES[f"{name}.js"].read_text("utf-8")
        for imported, module in re.findall(r'^import \{ (.+) \} from "\./(\w+)\.js";$', source, re.MULTILINE):
            assert module in begun[:at]
            given = re.search(rf"const \$_{module} = .*?\nreturn \{{ (.*?) \}};\n", code, re.DOTALL)
            assert given is not None and set(imported.split(", ")) <= set(given[1].split(", "))


def test_answers_worth_a_note_and_traffic_are_tables(view: RunView) -> None:
    assert view.results is not None
    first, *others = view.results.models
    noted = replace(first, signals={"truncated": 2}, stored_trials=8, ungraded=0, repeats=0)
    plain = tuple(replace(row, signals={}, ungraded=0, repeats=0) for row in others)
    cached = replace(view.traffic[0], cached_tokens=7, ttft=0.25)
    several = replace(view, results=replace(view.results, models=(noted, *plain)), traffic=(cached, *view.traffic[1:]))
    answers, traffic, events = request_blocks(several)
    assert isinstance(answers, Table) and isinstance(traffic, Table) and isinstance(events, Table)
    assert events.rows == (), "that a run has begun, or ended, displays show in another way"
    assert (answers.head, answers.rows) == (("model", "answers", "truncated"), ((noted.name, "8", "2 (25.0%)"),))
    assert traffic.head[-4:] == ("from a cache", "completion tokens", "mean latency", "time to first token")
    assert traffic.rows[0][-4:] == ("7", "700", "1s", "250 ms") and traffic.rows[1][-1] == ""
    quiet = replace(view.results, models=(replace(noted, signals={}), *plain))
    assert str(next(request_blocks(replace(view, results=quiet)))).startswith("No answer was truncated")
