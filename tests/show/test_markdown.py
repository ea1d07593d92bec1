"""The Markdown report: it has everything a reader needs, and no text from outside becomes markup."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from command_line import typed
from live_runs import MODELS, EndedRuns, Site
from page_views import model_verdicts, simulated, world
from played import REPLICA, Played, prepared

from adaptive_eval.config.load import load_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.machine.trial import JUDGING, Trial
from adaptive_eval.notes import BatchPlanned, BatchTaken, ThresholdsFrozen
from adaptive_eval.report.ending import Ending
from adaptive_eval.report.finding import counted_sentence, difference_text, finding
from adaptive_eval.report.next_steps import Advice, hide_folders, next_steps
from adaptive_eval.report.results import CallRow, Caution, GradingCost, GroupRow, OtherCostRow, WastedCost
from adaptive_eval.report.snapshot import run_subject
from adaptive_eval.report.view import RunView, event_view, read_view
from adaptive_eval.show.details import recipe_blocks
from adaptive_eval.show.markdown import markdown, pull_request, questions_digest, ranking_csv, summary
from adaptive_eval.show.text import (
    Table,
    amount,
    as_markdown,
    as_text,
    fenced_block,
    informative_columns,
    markdown_cell,
    markdown_table,
)


@pytest.fixture
def run(site: Site, ended_runs: EndedRuns) -> Path:
    return ended_runs.copy(site, stopping={"delta": "2%"}, seed=7)


@pytest.fixture(scope="module")
def view() -> RunView:
    return simulated(world(MODELS), stopping={"delta": "2%"}, seed=7)


def test_the_ranking_has_what_a_decision_needs_and_the_details_have_the_rest(run: Path) -> None:
    view = read_view(run)
    text, results = markdown(view), view.results
    assert results is not None
    bold = [f"**{markdown_cell(sentence, 1000)}**" for sentence in finding(results)]
    assert text.split("\n\n")[1 : 1 + len(bold)] == bold
    head = [re.sub(" +", " ", line) for line in text.splitlines() if line.startswith("| tier ")]
    assert head == ["| tier | model | score | 95% interval | tokens/answer | s/answer | trials | verdict |"]
    for row, verdict in zip(results.models, model_verdicts(results), strict=True):
        assert row.score is not None and row.bayes is not None and row.sampled_sigma is not None
        (line,) = re.findall(rf"^\| {row.tier} +\| {row.name} .*$", text, re.MULTILINE)
        assert f"{100 * row.score:.1f}%" in line and f"{row.trials:,}" in line and verdict and f"| {verdict}" in line
        (line,) = re.findall(rf"^\| {row.name} .*{row.bayes:.4f}.*$", text, re.MULTILINE)
        assert f"{100 * row.sampled_sigma:.2f}%" in line
    for pair in results.pairs:
        (line,) = re.findall(rf"^\| {pair.first} over {pair.second} .*$", text, re.MULTILINE)
        assert f"{pair.z:.2f}" in line and f"{pair.rho:.4f}" in line and difference_text(results, pair) in line


def test_a_summary_is_text_for_a_mail_and_next_steps_come_before_the_details(view: RunView) -> None:
    command = "adaptive-eval run x.yaml --set stopping.delta=.1"
    shown = replace(view, next_steps=(Advice("do *this*:", command), Advice("then that")))
    text, results = summary(view), view.results
    assert results is not None and view.ended is not None
    assert text.splitlines()[:4] == [view.name, "", *finding(results), view.ended]
    assert "|" not in text and "answers  " not in text and "cost " in text
    assert all(verdict in text for verdict in model_verdicts(results))
    top, _, _ = markdown(shown).partition("## Cost")
    assert f"\n\nNext: do \\*this\\*:\n\n```sh\n{command}\n```\n\nthen that\n\n" in top, "a command is code"
    assert f"\nto do     do *this*:\n          {command}\n          then that\n" in summary(shown)
    for text in (top, summary(shown)):
        assert f"adaptive-eval monitor {view.place} --web\n" in text
    assert view.next_steps and "Next:" not in markdown(replace(view, ended=None, next_steps=())), "it goes on"


def test_the_command_to_go_on_hides_folders_of_this_machine() -> None:
    typed = ("/home/me/x.yaml", "--set", "stopping.error=.1", "--set", "trials.max=4", "--run-dir", "/data/x")
    ending = Ending(reason=None, results=None, trials=0, arguments=typed)
    (typed_step,), (shown_step,) = next_steps(ending), next_steps(hide_folders(ending))
    assert typed_step.command == f"adaptive-eval run {' '.join(typed)}"
    hidden = "adaptive-eval run …/x.yaml --set stopping.error=.1 --set trials.max=4 --run-dir …/x"
    assert shown_step.command is not None and shown_step.command.replace("'", "") == hidden


def test_a_gate_is_reported_as_a_gate() -> None:
    """Its z is of the difference with delta added, its verdicts are outcomes, and it has no confidence in an order."""
    objective = {"kind": "baseline", "baseline": "d", "gate": True}
    view = simulated(world("abcdefgh", 8), objective=objective, stopping={"delta": "4%"})
    text, results = markdown(view), view.results
    assert results is not None and {row.outcome for row in results.gate} == {"PASS", "FAIL", "UNDECIDED"}
    _, _, details = text.partition("## Comparisons")
    head, _, *rows = [line.strip("| ").split("|") for line in details.splitlines() if line.startswith("|")][: 2 + 7]
    columns = [re.sub(" +", " ", cell).strip() for cell in head]
    assert columns[:5] == ["comparison", "verdict", "difference", "z of (difference + 4 points)", "boundary now"]
    assert not {"ρ", "z now", "ties within"} & set(columns)
    scores = {row.name: row.score for row in results.models}
    for cells, gate, pair in zip(rows, results.gate, results.pairs, strict=True):
        name, verdict, gap, z, boundary = (cell.strip() for cell in cells[:5])
        assert name == f"{gate.model} against d"
        called = pair.verdict == "resolved"
        assert verdict == gate.outcome
        apart = 100 * ((scores[gate.model] or 0.0) - (scores["d"] or 0.0))
        assert gap.startswith(f"{apart:.1f} points") and pair.sigma is not None and pair.boundary is not None
        plain = abs(apart + 4.0) / (100 * pair.sigma)
        assert 2 / 3 * plain - 0.02 <= abs(float(z)) <= plain + 0.02, "skewness takes off at most a third"
        assert float(z) * (apart + 4.0) >= 0.0
        assert boundary == ("" if called else f"{pair.boundary:.2f}"), "closed: it has nothing to reach any more"
        assert not called or (float(z) > 0.0) == (verdict == "PASS")


def test_the_report_says_what_the_run_promises_cost_and_was_allowed(view: RunView) -> None:
    text, results = markdown(view), view.results
    assert results is not None
    for sentence in (view.words.rule, view.words.promise, view.words.prior, view.words.seeds):
        assert sentence in text
    assert results.cost.allowed_trials == results.cost.max_trials == 3 * 30 * len(view.questions)
    assert f"{results.cost.trials:,} trials (at most {results.cost.allowed_trials:,} were allowed)" in text
    assert "at most 5%" in text and "shown to be within 2 points" in text
    asked = view.questions
    assert questions_digest(replace(view, questions=asked[::-1])) == questions_digest(view), "whatever their order"
    changed = replace(view, questions=(replace(asked[0], answer="another"), *asked[1:]))
    assert questions_digest(changed) != questions_digest(view)


def test_the_report_shows_calls_events_and_lost_answers_in_words(view: RunView) -> None:
    results = view.results
    assert results is not None
    place, called = next((at, pair) for at, pair in enumerate(results.pairs) if pair.verdict == "resolved")
    assert called.called is not None
    since = replace(called, called=CallRow(2, 3.21, 3.1), z=2.75)
    pairs = (*results.pairs[:place], since, *results.pairs[place + 1 :])
    removed = OtherCostRow("left", "gone", 240, 1000, 0.0, 0.0, 0.0, 19)
    results = replace(results, pairs=pairs, cost=replace(results.cost, beside=(removed,)))
    events = (
        BatchPlanned("ada", "key", ("a", "b"), 1.0),
        BatchTaken("ada", "key", "batch 7", 2, 1.0),
        ThresholdsFrozen(run="old", medians={"q1": 9.0}, models={"ada": 5}),
    )
    shown = replace(view, results=results, events=(*view.events, *map(event_view, events)))
    text = re.sub(" +", " ", markdown(shown).replace("\\", ""))
    assert "look 2: z 3.21, boundary 3.10" in text and "z now" in text
    assert "| gone, no longer in the run (19 of them lost) | 259 | 1,000 |" in text, "lost answers are no trials"
    assert "ada: submitted a batch of 2 requests (batch 7)" in text
    assert ", from 5 trials of the run old: the usual length of" in text


def test_the_configuration_in_it_repeats_the_run(run: Path, site: Site) -> None:
    view = read_view(run)
    (text,) = re.findall(r"```yaml\n(.*?)```", markdown(view), re.DOTALL)
    path = site.folder / "again.yaml"
    path.write_text(text)
    again = load_config(path).model_dump(mode="json", exclude={"folder", "store"})
    was = json.loads(json.dumps({k: v for k, v in view.configuration.items() if k not in ("folder", "store")}))
    assert again == was
    assert str(site.folder) not in text.replace(str(yaml.safe_load(text)["questions"]), "")


def test_hostile_names_are_text() -> None:
    name = "a|b<script>alert(1)</script>[x](javascript:1)`*_\n\x1b[31m\u202e"
    assert not re.search(r"(?<!\\)[|<>\[\]`*_]", markdown_cell(name))
    assert "\n" not in markdown_cell(name) and "\x1b" not in markdown_cell(name) and "\u202e" not in markdown_cell(name)
    assert fenced_block("```\nx", "yaml").startswith("````yaml\n")
    called = markdown_cell("ask @everyone, a@b.c or <@U12>")
    assert "@everyone" not in called and "@U12" not in called and "a@b.c" in called


def test_hostile_words_of_a_stored_report_are_text(view: RunView) -> None:
    """A run directory may come from a stranger, and readers show the report in it."""
    assert view.results is not None
    hostile, results = "<b>\x1b[31m\u202e", view.results
    forged = replace(
        results,
        run=replace(results.run, status=hostile, reason=hostile, updated=hostile, version=hostile),
        models=tuple(replace(row, letters=f"{hostile}{row.name}") for row in results.models),
        pairs=tuple(replace(pair, verdict=hostile) for pair in results.pairs),
    )
    text = markdown(replace(view, results=forged))
    assert text.count("\\<b\\>") >= 3 + len(results.models) + len(results.pairs)
    assert not {"\x1b", "\u202e"} & {*text} and "<b>" not in text


@pytest.mark.parametrize(
    "objective",
    ["best", {"kind": "top_k", "k": 1}, {"kind": "baseline", "baseline": "b"}, {"kind": "threshold", "value": 0.4}],
)
def test_comparisons_that_are_not_of_neighbours_have_a_table(objective: object) -> None:
    view = simulated(world("abc", 4), objective=objective, trials={"min": 4, "max": 8})
    text = markdown(view)
    assert view.results is not None
    table = text[text.index("## Comparisons") :]
    for pair in view.results.pairs:
        assert (pair.first if pair.second is None else f"{pair.first} over {pair.second}") in table


def test_a_run_before_its_first_look_says_so(play: Callable[..., Played]) -> None:
    run = play()
    assert not run.step(5)
    run.close()
    view = read_view(run.directory)
    for text in (markdown(view), summary(view), pull_request(view)):
        assert "Killed: the process died before the run ended." in text
        assert "There is no look yet: 5 trials are graded." in text
        assert "5 trials, 150 tokens, $0.050, 0.00069 GPU hours of requests, " in text
        assert "run the same command again" in text
    assert "```" not in summary(view) and "\\" not in summary(view), "it is plain text"


def test_answers_that_wait_for_a_judge_are_told_before_the_first_look(tmp_path: Path) -> None:
    judge = {"kind": "judge", "server": {"base_url": REPLICA, "model": "judge"}}
    run = Played(tmp_path / "run", prepared(tmp_path, grader=judge))
    answer = Answer("yes", "stop", 1000, REPLICA, 1.5)
    run.commit([Trial(0, at, 0, 0, JUDGING, Cost(30, 0.25), Cost(15), answer=answer) for at in (0, 1)])
    run.close()
    text = markdown(read_view(run.directory))
    assert "There is no look yet: 0 trials are graded." in text
    assert "2 more answers have no grade." in text
    assert "2 trials, 60 tokens, $0.50, " in text


def test_every_format_is_written_completely_and_to_the_right_place(run: Path) -> None:
    for kind in ("md", "json", "csv"):
        assert typed("report", run, "--format", kind, code=0).stdout.strip() == str(run / f"report.{kind}")
    report = json.loads((run / "report.json").read_text())
    assert report["format"] == "adaptive-eval.report/1" and report["run"]["models"] == list(MODELS)
    assert report["run"]["events"][0].keys() == {"at", "kind", "text"}
    rows = (run / "report.csv").read_text().splitlines()
    assert len(rows) == 1 + len(MODELS) and rows[0].startswith("name,rank,tier,score")
    assert "temperature" in rows[0].split(",") and not any(mark in text for text in rows for mark in "{}")
    output = run / "no" / "such" / "folder.md"
    ended = typed("report", run, "--format", "md", "--output", output)
    assert ended.exit_code == 1 and str(output) in ended.stderr and "--output" in ended.stderr
    (empty := run / "no run").mkdir()
    assert "has no run" in typed("report", empty, code=1).stderr and list(empty.iterdir()) == []


@pytest.mark.parametrize(("by", "weighted"), [("benchmark", True), ("topic", False)])
def test_the_scores_say_whether_benchmarks_have_weights(view: RunView, by: str, weighted: bool) -> None:
    assert view.results is not None
    groups = tuple(GroupRow(by, "easy", 0.5, 3, row.name, 9, 0.5, 0.1, 0.3, 0.7) for row in view.results.models)
    text = markdown(replace(view, results=replace(view.results, groups=groups)))
    assert ("avg@N: the mean over questions of each question's mean, weighted by benchmark." in text) is weighted


def test_the_table_needs_as_many_trials_as_the_headline(view: RunView) -> None:
    assert view.results is not None
    *others, last = view.results.pairs
    given_up = replace(last, verdict="out_of_reach", called=None, trials_needed=71.0, deciding_max=637.0)
    text = markdown(replace(view, results=replace(view.results, pairs=(*others, given_up))))
    assert "about 637 trials per question" in text
    assert re.search(rf"^\| {last.first} over {last.second} .* 637 \|", text, re.MULTILINE) and " 71 |" not in text


def test_no_model_is_said_to_have_settings_that_its_requests_did_not_have(view: RunView) -> None:
    """Inspect and commands do not know `sampling`, so that what it lacks is no default of a server."""
    sources = {"inspect": {"model": "x/y", "temperature": 0.7, "args": {"device": 0}}}, {"command": "agent"}
    models = [{"name": str(at), "model": "m", "base_url": ["http://a/v1"], **keys} for at, keys in enumerate(sources)]
    config = RunConfig.model_validate_json(json.dumps({**view.configuration, "models": models}))
    assert run_subject(config, (), 0.0).sampling == ({"temperature": 0.7}, {})
    *_, table, note, _servers = recipe_blocks(replace(view, configuration=config.model_dump(mode="json")))
    assert str(table) == "" and "Inspect samples as" in note and "Commands" in note and "default" not in note


@pytest.mark.parametrize("name", ["=1+1", " =1+1", "\t@SUM(A1)", "＝1+1", "\n-2"])
def test_names_cannot_be_formulas_in_a_spreadsheet(view: RunView, name: str) -> None:
    assert view.results is not None
    models = tuple(replace(row, name=name, sampling={name: name}) for row in view.results.models)
    header, *rows = csv.reader(io.StringIO(ranking_csv(replace(view, results=replace(view.results, models=models)))))
    assert header[-1] == f"'{name}"
    assert [(row[0], row[-1]) for row in rows] == [(f"'{name}", f"'{name}")] * len(models)


def test_every_value_of_the_table_stands_in_its_column(run: Path) -> None:
    view = read_view(run)
    assert view.results is not None
    grading = GradingCost(answers=4, tokens=90, usd=0.5, gpu_seconds=0.0, in_vain=WastedCost(1, 20, 0.1, 0.0))
    models = tuple(
        replace(model, signals={"truncated": 3, "empty": model.rank}, grading=grading if model.rank == 1 else None)
        for model in view.results.models
    )
    text = ranking_csv(replace(view, results=replace(view.results, models=models)))
    for row, model in zip(csv.DictReader(io.StringIO(text), strict=True), models, strict=True):
        assert None not in row and row["name"] == model.name
        assert (float(row["score"]), int(row["trials"])) == (model.score, model.trials)
        judged = model.grading is not None
        assert (row["grading_tokens"], row["grading_usd"]) == (("90", "0.5") if judged else ("", ""))
        assert not any("(" in value for value in row.values()), "no value of the program as Python shows it"
        for signal, times in model.signals.items():
            assert int(row[signal]) == times
        for setting, value in model.sampling.items():
            assert row[setting] == ("" if value is None else str(value))


def test_columns_that_have_nothing_to_say_are_left_out(site: Site) -> None:
    site.run(site.write(objective={"kind": "precision", "half_width": "20%"}, trials={"min": 4, "max": 8}))
    text = markdown(read_view(site.directory()))
    heads = [line for line in text.splitlines() if line.startswith("| score ")]
    assert len(heads) == 1 and "verdict" in heads[0]
    assert not any(word in heads[0] for word in ("difference", " z ", "boundary", "ties within"))
    assert "scores as precise as required." in text and "smallest delta" not in text
    (cost,) = re.findall(r"^\| model +\| answers \|.*$", text, re.MULTILINE)
    assert "tokens" in cost and "USD" not in cost and "GPU" not in cost


def test_costs_that_occur_have_a_column(site: Site) -> None:
    models = [{"name": name, "base_url": site.base_url, "gpus": 2} for name in MODELS]
    site.run(site.write(models=models, trials={"min": 4, "max": 4}))
    (cost,) = re.findall(r"^\| model +\| answers \|.*$", markdown(read_view(site.directory())), re.MULTILINE)
    assert "GPU hours" in cost and "USD" not in cost


def test_tables_are_as_wide_as_what_is_in_them_and_small_costs_add_up_as_they_are_shown() -> None:
    lines = markdown_table(["model", "n"], [["ä", "1"], ["日本", "1,000"]]).split("\n")
    assert lines == ["| model |     n |", "| :---- | ----: |", "| ä     |     1 |", "| 日本  | 1,000 |"]
    filled = informative_columns(["a", "b", "c"], [["x", "-", ""], ["y", "-", "1"]])
    assert filled == (["a", "c"], [["x", ""], ["y", "1"]]), "a single row fills a column"
    assert informative_columns(["a"], []) == ([], [])
    costs = [0.0041, 0.0049, 0.0101, 0.0109]
    shown = [amount(cost, costs) for cost in (*costs, sum(costs))]
    assert shown == ["0.0041", "0.0049", "0.0101", "0.0109", "0.0300"]
    assert amount(1234.5, [1234.5, 0.5]) == "1,234.50" and amount(0.0, ()) == "0.00"
    assert amount(0.000000001, ()) == "0.000000"


def test_a_document_is_text_for_a_terminal_or_markdown() -> None:
    cells = ["a_b", "x|y", r"back\slash", "<b>", "- [1](2)"]
    blocks = [
        Table.of("Runs_of*", ["name", "trials", "no"], [[cell, f"{at}", ""] for at, cell in enumerate(cells)]),
        "8 -> 32",
    ]
    title, head, *body, _, last = as_text(blocks).splitlines()
    assert (title, last) == ("Runs_of*", "8 -> 32") and head.split() == ["name", "trials"]
    assert {line.rindex(str(number)) for number, line in enumerate(body)} == {len(head) - 1}
    assert [line[: line.rindex(" ")].strip() for line in body] == cells
    text = as_markdown("a_b", blocks)
    assert text.startswith("# a\\_b\n\n## Runs\\_of\\*\n\n| name ") and text.endswith("\n\n8 -\\> 32\n")
    assert "x\\|y" in text and as_text([Table("none", (), ()), "x"]) == "x"


def test_the_first_warning_in_a_pull_request_names_its_model_and_is_cut_between_words(view: RunView) -> None:
    assert view.results is not None
    long = Caution("odd", "ada", "many words " * 40)
    text = pull_request(replace(view, results=replace(view.results, warnings=(long,))))
    assert "1 warning in the report, the first: ada: many words" in text
    assert text.endswith(("words many …\n", "many words …\n"))


def test_reports_say_which_answers_count_where_more_were_asked(view: RunView) -> None:
    results = view.results
    assert results is not None
    counted = sum(row.trials for row in results.models)
    (*looks, last) = results.looks
    complete = replace(results, looks=(*looks, replace(last, trials=counted)))
    assert counted_sentence(complete) is None
    ahead = replace(results, looks=(*looks, replace(last, trials=counted - 1)))
    ahead_sentence = "Scores include 1 answer requested ahead of the last look. No verdict uses them."
    first, *others = complete.models
    late = replace(complete, models=(replace(first, stored_trials=first.stored_trials + 2), *others))
    late_sentence = f"Scores leave out 2 of {counted + 2:,} stored answers: no complete round includes them."
    for shown, sentence in ((ahead, ahead_sentence), (late, late_sentence)):
        assert counted_sentence(shown) == sentence
        assert all(sentence in write(replace(view, results=shown)) for write in (markdown, summary, pull_request))
    kills = replace(late, run=replace(late.run, kills=2))
    assert counted_sentence(kills) == f"{late_sentence} The run was killed 2 times."
    running = replace(results.run, status="running")
    assert counted_sentence(replace(complete, run=running)) == f"Scores are of the {counted:,} answers judged so far."
    assert counted_sentence(replace(ahead, run=running)) == ahead_sentence, "it is about to end"


@pytest.mark.parametrize(
    ("reason", "verdict", "advised"),
    [
        ("settled", "resolved", False),
        (None, "resolved", True),
        ("out_of_reach", "resolved", False),
        ("out_of_reach", "out_of_reach", True),
    ],
)
def test_pull_requests_have_a_next_step_if_any(view: RunView, reason: str | None, verdict: str, advised: bool) -> None:
    results = view.results
    assert results is not None
    pairs = tuple(replace(pair, verdict=verdict) for pair in results.pairs)
    ended = replace(results, pairs=pairs, run=replace(results.run, reason=reason))
    text = pull_request(replace(view, results=ended, ended="Stopped.", next_steps=(Advice("go on."),)))
    assert ("\n\nNext: go on.\n\n" in text) == advised
    assert "\n\nStopped.\n\n" in text
