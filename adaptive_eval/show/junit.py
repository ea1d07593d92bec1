"""Gate outcomes as JUnit XML, which continuous integration shows with the tests: a test case for each model."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.record.finding import gate_line, gate_pair
from adaptive_eval.record.gate import FAIL, OPEN, PASS, UNDECIDED, gate_baseline
from adaptive_eval.record.lines import Scale, safe_line
from adaptive_eval.record.results import GateRow, Results
from adaptive_eval.record.view import RunView
from adaptive_eval.show.text import number_or_dash

LONGEST = 1000


def junit(view: RunView) -> str:
    """Render the report. An undecided model is an error, so that nobody thinks it has passed."""
    if (baseline := gate_baseline(view.configuration)) is None:
        rule = "only a gate passes or fails, and this run has none"
        raise ConfigError(f"{rule}; set objective.gate in its configuration, or take another --format")
    cases = list(_cases(view, baseline))
    outcomes = [one.get("outcome") for one in cases]
    counted = {
        "name": safe_line(view.name),
        "tests": str(len(cases)),
        "failures": str(outcomes.count(FAIL)),
        "errors": str(len(cases) - outcomes.count(PASS) - outcomes.count(FAIL)),
        "time": f"{view.elapsed:.3f}",
    }
    root = Element("testsuites", counted)
    suite = SubElement(root, "testsuite", counted)
    for case in cases:
        del case.attrib["outcome"]
        suite.append(case)
    indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, encoding="unicode")}\n'


def _cases(view: RunView, baseline: str) -> Iterator[Element]:
    if (found := view.results) is not None:
        for row in found.gate:
            yield _case(view.name, row, gate_line(found, row), _score_text(found, row))
        return
    ended = None if view.ended is None else view.ended.removeprefix(f"{UNDECIDED}: ")
    outcome, why = (OPEN, "the run goes on") if ended is None else (UNDECIDED, ended)
    for model in view.models:
        if model != baseline:
            yield _case(view.name, GateRow(model, baseline, outcome, why), f"{outcome}: {safe_line(why, LONGEST)}", "")


def _case(run: str, row: GateRow, told: str, figures: str) -> Element:
    name = safe_line(f"{row.model} against {row.baseline}")
    case = Element("testcase", {"classname": safe_line(run), "name": name, "outcome": row.outcome})
    if row.outcome == PASS:
        SubElement(case, "system-out").text = f"{told}\n{figures}"
    else:
        kind = "failure" if row.outcome == FAIL else "error"
        SubElement(case, kind, {"message": told, "type": row.outcome}).text = figures
    return case


def _score_text(results: Results, row: GateRow) -> str:
    scale, rows = Scale.of(results.weights), {one.name: one for one in results.models}
    scores = [
        f"{safe_line(name)}: {scale.score(rows[name].score)} ({scale.interval(rows[name].lo, rows[name].hi)})"
        for name in (row.model, row.baseline)
    ]
    scores += [
        f"{safe_line(one.group)}: {one.gate}, {scale.score(one.score)} ({scale.interval(one.lo, one.hi)})"
        for one in results.groups
        if one.model == row.model and one.gate is not None
    ]
    z = number_or_dash(gate_pair(results, row).signed_z(row.model))
    return "\n".join([*scores, f"z of the difference with delta added: {z}"])
