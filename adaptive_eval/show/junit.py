"""Gate outcomes as JUnit XML, which continuous integration shows with the tests: a test case for each model."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.core.types import Reason
from adaptive_eval.report.alarms import alarm_sentences
from adaptive_eval.report.finding import gate_line, gate_pair
from adaptive_eval.report.gate import FAIL, OPEN, PASS, UNDECIDED, GateTerms, gate_terms
from adaptive_eval.report.lines import Scale, safe_line
from adaptive_eval.report.results import GateRow, Results
from adaptive_eval.report.view import RunView
from adaptive_eval.show.text import number_or_dash

MAX_REASON = 1000


def junit(view: RunView) -> str:
    """Render the report; an undecided model, and an alarm that has ended the run, is an error, not a pass."""
    if (terms := gate_terms(view.configuration, view.weights)) is None:
        raise ConfigError("this run has no gate; set objective.gate in its configuration, or choose another --format")
    cases = list(_cases(view, terms))
    if view.results is not None and view.results.run.reason == Reason.ALARM:  # which no outcome may hide
        row = GateRow(view.name, None, UNDECIDED, " ".join(alarm_sentences(view.results)))
        cases.append((row, _case(view.name, "no alarm", row, safe_line(row.why, MAX_REASON), "")))
    outcomes = [row.outcome for row, _ in cases]
    counted = {
        "name": safe_line(view.name),
        "tests": str(len(cases)),
        "failures": str(outcomes.count(FAIL)),
        "errors": str(len(cases) - outcomes.count(PASS) - outcomes.count(FAIL)),
        "time": f"{view.elapsed:.3f}",
    }
    root = Element("testsuites", counted)
    suite = SubElement(root, "testsuite", counted)
    suite.extend(case for _, case in cases)
    indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, encoding="unicode")}\n'


def _cases(view: RunView, terms: GateTerms) -> Iterator[tuple[GateRow, Element]]:
    def case(row: GateRow, message: str, figures: str = "") -> tuple[GateRow, Element]:
        return row, _case(view.name, f"{row.model} against {terms.against}", row, message, figures)

    if (results := view.results) is not None:
        for row in results.gate:
            yield case(row, gate_line(results, row), _score_text(results, row))
        return
    outcome, why = (OPEN, "open: the run goes on") if view.ended is None else (UNDECIDED, view.ended)
    for model in view.models:
        if model != terms.baseline:
            row = GateRow(model, terms.baseline, outcome, why)
            yield case(row, safe_line("; ".join(why.splitlines()), MAX_REASON))


def _case(run: str, name: str, row: GateRow, message: str, figures: str) -> Element:
    case = Element("testcase", {"classname": safe_line(run), "name": safe_line(name)})
    if row.outcome == PASS:
        SubElement(case, "system-out").text = f"{message}\n{figures}"
    else:
        kind = "failure" if row.outcome == FAIL else "error"
        SubElement(case, kind, {"message": message, "type": row.outcome}).text = figures
    return case


def _score_text(results: Results, row: GateRow) -> str:
    scale, rows = Scale.of(results.weights), {model.name: model for model in results.models}
    scores = [
        f"{safe_line(name)}: {scale.score(rows[name].score)} ({scale.interval(rows[name].lo, rows[name].hi)})"
        for name in (row.model, row.baseline)
        if name is not None
    ]
    scores += [
        f"{safe_line(group.group)}: {group.gate}, {scale.score(group.score)} ({scale.interval(group.lo, group.hi)})"
        for group in results.groups
        if group.model == row.model and group.gate is not None
    ]
    z = number_or_dash(gate_pair(results, row).signed_z(row.model))
    return "\n".join([*scores, f"z of the difference with delta added: {z}"])
