"""Tables with one row a trial, and arrays; and what `export` writes of a run comes back as it was."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from live_runs import EndedRuns, Site
from logs import imported, lines, outcomes, refusal, taken
from small_run import MODELS, QUESTIONS, make_run, make_trial
from stored_runs import stored_header, stored_trials

from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.exchange.export import export
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.report.results_file import read_results

ROWS = [
    {"model": model, "question": key, "trial": trial, "category": (trial + (model == "b")) % 2}
    for model in ("a", "b")
    for key in ("q1", "q2")
    for trial in range(4)
]
EXPECTED = {(str(row["model"]), str(row["question"]), int(str(row["trial"]))): row["category"] for row in ROWS}


def as_csv(rows: list[dict[str, object]]) -> str:
    columns = list(rows[0])
    return "\n".join([",".join(columns), *(",".join(str(row[name]) for name in columns) for row in rows)]) + "\n"


def test_csv_and_json_lines(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("\ufeff" + as_csv(ROWS))  # as spreadsheets write it
    for number, path in enumerate([table, lines(tmp_path / "t.jsonl", ROWS)]):
        run = tmp_path / str(number)
        done = taken(path, "--to", run)
        assert outcomes(run) == EXPECTED
        assert "for more" not in done.stdout  # there are no prompts


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"question": "q", "score": value} for value in ("0", "1.0")], {"q": [0, 1]}),
        ([{"question": "q", "correct": value} for value in ("false", "true")], {"q": [0, 1]}),
        (
            [{"question": key, "category": value} for key in "xy" for value in (1, 0, 1)],
            {"x": [1, 0, 1], "y": [1, 0, 1]},
        ),
        (
            [{"question": "q", "trial": at, "category": value} for at, value in {7: 1, 3: 0, 20: 1, 4: 1}.items()],
            {"q": [0, 1, 1, 1]},  # gaps are closed up
        ),
    ],
)
def test_trials_are_in_the_order_of_their_numbers_or_else_of_the_rows(
    tmp_path: Path, rows: list[dict[str, object]], expected: dict[str, list[int]]
) -> None:
    """A first record that is no trial of its model changes nothing."""
    of_b = [{"model": "b", "question": "q", **last} for last in ({"grader_error": "it took too long"}, {"category": 1})]
    named = [of_b[0], *({"model": "a", **row} for row in rows), of_b[1]]
    taken(lines(tmp_path / "t.jsonl", named), "--to", tmp_path / "run")
    numbered = {("a", key, at): value for key, values in expected.items() for at, value in enumerate(values)}
    assert outcomes(tmp_path / "run") == numbered | {("b", "q", 0): 1}


def test_texts_are_graded_and_questions_kept(tmp_path: Path) -> None:
    rows = [
        {"model": "a", "question": "q", "prompt": "2+2?", "answer": "4", "cluster": "sums", "text": text}
        for text in ("4", "five")
    ]
    taken(lines(tmp_path / "t.jsonl", rows), "--to", tmp_path / "run", "--grader", "exact")
    assert list(outcomes(tmp_path / "run").values()) == [1, 0]
    assert json.loads((tmp_path / "run" / "questions.jsonl").read_text()) == {
        "id": "q", "prompt": "2+2?", "answer": "4", "cluster": "sums"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"model": "a", "question": "q"}, "must have a category, a score, correct, or a text"),
        ({"model": "a", "question": " ", "category": 1}, "question must be given"),
        ({"model": "a", "question": "q", "category": 1.5}, "category must be a whole number, but got 1.5"),
        ({"model": "a", "question": "q", "category": -1}, "category must not be negative"),
        ({"model": "a", "question": "q", "category": 2}, "the category must be one of the rubric's (0 wrong, 1"),
        ({"model": "a", "question": "q", "score": 0.3}, "a score must be the weight of one category"),
        ({"model": "a", "question": "q", "score": "well"}, "score must be a number"),
        ({"model": "a", "question": "q", "score": float("nan")}, "score must be a number, or true or false, but got"),
        ({"model": "a", "question": "q", "category": 1, "trial": 1e300}, "trial must be a whole number"),
        ({"model": "a", "question": "q", "category": 1, "trial": -1}, "trial must not be negative"),
        ({"model": "a", "question": "q", "category": 1, "seed": 2**40}, "seed must be from -1 to 2147483648, but got"),
        ({"model": "a", "question": "q", "category": 1, "round": 2**40}, "round must be from 0 to 2147483648, but got"),
        ({"model": "a", "question": "q", "category": 1, "text": "x", "prompt_bpt": -2}, "prompt_bpt must be from -1"),
        ({"model": "a", "question": "q", "category": 1, "signals": "{"}, "signals is not JSON"),
        ({"model": "a", "question": "q", "category": 1, "text": "x", "flags": "bad"}, "flags must be some of"),
        ({"model": "a", "question": "q", "category": 1, "choices": {"a": 1}}, "choices must be a list"),
        ({"model": "x\u0007y", "question": "q", "category": 1}, "'x\\x07y' is not a valid model name"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_named(tmp_path: Path, row: dict[str, object], problem: str) -> None:
    good = {"model": "a", "question": "q", "category": 0, "trial": 9}
    for at, rows in enumerate(([row, good], [good, row]), 1):
        path = lines(tmp_path / "t.jsonl", rows)
        assert f"{path}: line {at}: {problem}" in refusal(path, "--to", tmp_path / "run")


def test_an_array_of_outcomes_or_of_counts(config: Path, tmp_path: Path) -> None:
    """A trial that it lacks is asked for by its number where the run goes on, and no other has that."""
    outcome = np.array([[[0, -1, 1], [1, 1, 1]], [[1, 0, 1], [-1, -1, -1]]])
    np.savez(tmp_path / "r.npz", R=outcome, models=["a", "b"], questions=["q0", "q1"])
    taken(tmp_path / "r.npz", "--to", tmp_path / "run", "--config", config)
    cells = {(m, q, t): outcome[m, q, t] for m, q, t in np.ndindex(outcome.shape) if outcome[m, q, t] >= 0}
    assert outcomes(tmp_path / "run") == {("ab"[m], f"q{q}", t): c for (m, q, t), c in cells.items()}
    np.savez(tmp_path / "c.npz", correct=np.array([[30, 2]]), count=np.array([[60, 4]]))
    taken(tmp_path / "c.npz", "--to", tmp_path / "counts")
    first = [category or 0 for (_, question, _), category in outcomes(tmp_path / "counts").items() if question == "q1"]
    assert sum(first) == 30 and 5 < sum(first[:30]) < 25, "the order of counts means nothing"
    np.savez(tmp_path / "r.npz", R=np.full((2, 2, 3), -1))
    assert "r.npz: there are no trials" in refusal(tmp_path / "r.npz", "--to", tmp_path / "none")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    questions = [{"id": f"q{n}", "prompt": f"{n}?", "answer": "4"} for n in range(2)]
    lines(tmp_path / "questions.jsonl", questions)
    models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in ("a", "b")]
    tree = {"questions": "questions.jsonl", "models": models, "grader": "exact", "trials": {"min": 3, "max": 30}}
    (tmp_path / "config.yaml").write_text(json.dumps(tree))
    return tmp_path / "config.yaml"


def stored(run: Path) -> list[TrialRecord]:
    return sorted(stored_trials(run), key=lambda record: (record.model, record.question, record.trial))


def alike(folder: Path) -> Path:
    """A run many of whose answers are the same, some of them long, as those of a model at a low temperature are."""
    rng = np.random.default_rng(0)
    texts = [r"\boxed{1}", r"So it is \boxed{2}.", "because of this " * 20, 'é\U0001f600\n,"x"']
    records = []
    for model, question in itertools.product(MODELS, QUESTIONS):
        for trial in range(int(rng.integers(1, 12))):
            graded, cut = rng.random() > 0.05, rng.random() < 0.2
            record = make_trial(
                *(model, question, trial, int(rng.integers(2)) if graded else None),
                text=texts[int(rng.integers(4))],
                round=int(rng.integers(3)),
                ttft=0.25 if rng.random() < 0.5 else None,
                attempts=2,
                reasoning=None if cut else "hm",
                finish_reason="length" if cut else "stop",
                signals={"is_correct": True, "score": float(rng.random()), "why": "so"} if graded else {},
                extracted=str(trial) if graded else None,
            )
            signals = frozenset({"truncated"} if cut else ())
            records.append(replace(record, answer=replace(record.answer, signals=signals)))
    return make_run(folder, records)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_what_is_exported_comes_back_the_same_also_of_answers_that_are_alike(tmp_path: Path, form: str) -> None:
    run = alike(tmp_path)
    done = taken(export(run, form, texts=True).path, "--to", tmp_path / "again")
    assert "repeats   " not in done.output
    assert stored(tmp_path / "again") == stored(run)


def test_names_and_ids_are_those_of_the_configuration(config: Path, tmp_path: Path) -> None:
    rows = [{"model": "a", "question": "q0", "category": 1}, {"model": "z", "question": "q1", "category": 1}]
    path = lines(tmp_path / "t.jsonl", rows)
    words = (path, "--to", tmp_path / "run", "--config", config)
    assert "line 2: the configuration has no model 'z', but a, b" in refusal(*words)
    taken(*words, "--leave-out", "z")
    assert list(outcomes(tmp_path / "run")) == [("a", "q0", 0)]
    path.write_text(json.dumps({"model": "a", "question": "q9", "category": 1}))
    other = (path, "--to", tmp_path / "other")
    unknown = refusal(*other, "--config", config)
    assert "has no question with the id 'q9'; leave it out with --leave-out" in unknown
    mistyped = refusal(*other, "--leave-out", "y")
    assert "--leave-out names y, but there is no such model or question" in mistyped


def test_the_configuration_that_is_written_is_that_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"model": model, "question": key, "category": 1, "prompt": f"${{HOME}} {key} é\u0085?", "answer": "no"}
        for model in ("org/${a}: x", "1e5", "1e5 ", "1e5.", "1e5-", "é\U0001f600") for key in ("yes", "2")
    ]  # fmt: skip
    rows = [{**row, "trial": number} for number, row in enumerate(rows)]
    taken(lines(tmp_path / "t.jsonl", rows), "--to", tmp_path / "run")
    text = (tmp_path / "run" / "config.yaml").read_text()
    for name in ("ORG_A_X_URL", "MODEL_1E5_URL", "MODEL_1E5_URL_2", "MODEL_1E5_URL_3", "MODEL_URL"):
        assert f"base_url: ${{{name}}}" in text
        monkeypatch.setenv(name, "http://127.0.0.1:9/v1")
    header = prepare(load_config(tmp_path / "run" / "config.yaml")).header
    before = stored_header(tmp_path / "run")
    assert (header.meaning, header.models, header.questions) == (before.meaning, before.models, before.questions)


def test_of_categories_with_one_weight_the_rubric_finds_its_own(config: Path, tmp_path: Path) -> None:
    cut = {"name": "cut off", "weight": 0, "when": {"truncated": True}}
    right = {"name": "right", "weight": 1, "when": {"is_correct": True}}
    rubric = {"categories": [cut, right, {"name": "wrong", "weight": 0}]}
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rubric": rubric}))
    row = {"model": "a", "question": "q0", "finish_reason": "x"}
    scores = {"truncated": 0.0, "": 0.0, "empty": 1.0}
    path = lines(tmp_path / "t.jsonl", [{**row, "score": score, "flags": flags} for flags, score in scores.items()])
    taken(path, "--to", tmp_path / "run", "--config", config)
    assert list(outcomes(tmp_path / "run").values()) == [0, 2, 1]


@pytest.mark.parametrize("weights", ["1", "1,1", "a,b", "0,nan"])
def test_weights_must_differ(tmp_path: Path, weights: str) -> None:
    words = (lines(tmp_path / "t.jsonl", ROWS), "--to", tmp_path / "run", "--weights", weights)
    assert "--weights must be" in refusal(*words)


OWN = {"categories": [{"name": "good", "weight": 1, "when": {"is_correct": True}}, {"name": "rest", "weight": 0}]}


@pytest.mark.parametrize("form", ["jsonl", "csv", "npz"])
def test_where_the_best_category_is_the_first_the_scores_stay(site: Site, ended_runs: EndedRuns, form: str) -> None:
    """By a rubric of one's own 0 may be the best: the number alone would turn the ranking around."""
    run = ended_runs.copy(site, rubric=OWN, trials={"min": 4, "max": 4})
    exported, again = export(run, form, site.folder / f"out.{form}").path, site.directory("again")
    taken(exported, "--to", again, "--finished")
    before, after = ({row.name: row.score for row in read_results(path).models} for path in (run, again))
    assert before == after and len(set(before.values())) > 1


def test_of_a_rubric_that_is_declared_numbers_count_where_its_weights_are_others(site: Site) -> None:
    row = {"model": "ada", "question": "q0", "trial": 0, "category": 1, "label": "fair", "value": 0.5}
    log = lines(site.folder / "log.jsonl", [row])
    assert "name all scores with --weights" in refusal(log, "--to", site.directory("plain"))
    rubric = {"categories": [{"name": "no", "weight": 0}, {"name": "yes", "weight": 2, "when": {"is_correct": True}}]}
    alone = {"models": [{"name": "ada", "base_url": site.base_url}]}
    config = site.write(rubric=rubric, objective={"kind": "precision", "half_width": 0.1}, **alone)
    taken(log, "--config", config, "--to", site.directory())
    assert outcomes(site.directory()) == {("ada", "q0", 0): 1}


@pytest.mark.parametrize("form", ["csv", "npz", "folder"])
def test_a_name_is_for_files_of_one_model(tmp_path: Path, form: str) -> None:
    rows = [{"model": model, "question": "q", "category": 1} for model in "ab"]
    path = tmp_path / "logs"
    path.mkdir()
    if form == "npz":
        np.savez(path / "t.npz", R=np.ones((2, 1, 1), int), models=["a", "b"])
    else:
        (path / "t.csv").write_text(as_csv(rows if form == "csv" else rows[:1]))
        (path / "u.csv").write_text(as_csv(rows[1:]))
    given = path if form == "folder" else path / f"t.{form}"
    refused = refusal(f"x={given}", "--to", tmp_path / "run")
    assert "has the models 'a' and 'b', and NAME=FILE names the model of a file that has one" in refused
    if form == "folder":
        taken(f"x={path / 'u.csv'}", "--to", tmp_path / "run")
        assert list(outcomes(tmp_path / "run")) == [("x", "q", 0)]


def test_other_numbers_of_trials_are_told(tmp_path: Path) -> None:
    rows = [{**row, "trial": int(str(row["trial"])) + 1} for row in ROWS]
    done = imported(lines(tmp_path / "t.jsonl", rows), "--to", tmp_path / "run")
    assert outcomes(tmp_path / "run") == EXPECTED
    assert "trial 4 of q1 by a is trial 3 here, and 3 more such cells; labels need these" in done.stdout, done.output
    for number, others in enumerate((ROWS, [{**row, "trial": None} for row in ROWS])):
        assert "labels need" not in imported(lines(tmp_path / "o.jsonl", others), "--to", tmp_path / f"{number}").stdout


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"score": 1, "correct": 0}, "score is 1, and correct 0"),
        ({"category": 1, "label": "wrong"}, "has category 1, which is correct, and label wrong"),
        ({"category": 0, "correct": "true"}, "has category 0, which is wrong, and a score of 1"),
        ({"category": 1, "label": "right", "correct": 1}, None),
        ({"score": 1, "correct": ""}, None),
    ],
)
def test_columns_that_contradict_are_refused(tmp_path: Path, columns: dict[str, object], problem: str | None) -> None:
    path = tmp_path / "t.csv"
    path.write_text(as_csv([{"model": "a", "question": "q", **columns}]))
    if problem is None:
        taken(path, "--to", tmp_path / "run")
    else:
        message = refusal(path, "--to", tmp_path / "run")
        assert f"line 2: {problem}; remove the wrong one of these columns" in message


@pytest.mark.parametrize("signals", ["", ', "signals": {"x": 1, "x": 2}'])
def test_a_key_twice_in_a_row_is_refused(tmp_path: Path, signals: str) -> None:
    repeated = "" if signals else ', "correct": false'
    path = tmp_path / "t.jsonl"
    rows = ['{"model": "a", "question": "q", "correct": true}']
    path.write_text("\n".join([*rows, rows[0][:-1] + repeated + signals + "}"]))
    message, key = refusal(path, "--to", tmp_path / "run"), "x" if signals else "correct"
    assert f"line 2: has an object with the key '{key}' twice; remove one of them" in message
