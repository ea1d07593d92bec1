"""The ranking as CSV."""

import csv
import io
from dataclasses import replace

import pytest
from live_runs import EndedRuns, Site

from adaptive_eval.report.view import read_view
from adaptive_eval.show.markdown import ranking_csv


@pytest.mark.slow
def test_names_cannot_be_formulas_in_a_spreadsheet(site: Site, ended_runs: EndedRuns) -> None:
    view = read_view(ended_runs.copy(site))
    assert view.results is not None
    for name in ("=1+1", " =1+1", "\t@SUM(A1)", "＝1+1", "\n-2"):
        models = tuple(replace(row, name=name, sampling={name: name}) for row in view.results.models)
        text = ranking_csv(replace(view, results=replace(view.results, models=models)))
        header, *rows = csv.reader(io.StringIO(text))
        assert header[-1] == f"'{name}"
        assert [(row[0], row[-1]) for row in rows] == [(f"'{name}", f"'{name}")] * len(models)
