"""`adaptive-eval preferences`: tables of votes between two models' answers."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.errors import ExitCode

HEAD = "question,model_a,model_b,winner"
VOTES = [
    {"question_id": at // 2, "model_a": "cedar" if at % 2 else "birch", "model_b": "birch" if at % 2 else "cedar"}
    | {"winner": "tie (bothbad)" if at % 10 == 9 else "birch" if at % 4 else "cedar"}
    for at in range(80)
]


def ranked(path: Path, *options: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["preferences", str(path), *options])
    return found.exit_code, found.output


def table(folder: Path, text: str) -> Path:
    path = folder / "votes.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_is_the_same_as_csv_json_lines_and_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    with (tmp_path / "votes.csv").open("w", newline="") as handle:
        handle.write("\ufeff")  # as spreadsheets write it
        writer = csv.writer(handle)
        writer.writerow(["Question ID", "Model A", "model b", "Winner"])
        writer.writerows(vote.values() for vote in VOTES)
    (tmp_path / "votes.jsonl").write_text("\n".join(map(json.dumps, VOTES)))
    parquet.write_table(pyarrow.Table.from_pylist(VOTES), tmp_path / "votes.parquet")
    code, said = ranked(tmp_path / "votes.csv")
    assert code == ExitCode.REACHED
    assert "80 votes between 2 models on 40 questions; 8 ties." in said
    assert (
        "birch" in said and "better than cedar" in said and "other votes on other questions" in " ".join(said.split())
    )
    assert ranked(tmp_path / "votes.jsonl")[1] == said == ranked(tmp_path / "votes.parquet")[1]
    assert "| tier |" in ranked(tmp_path / "votes.csv", "--format", "md")[1]


def test_the_side_shown_first_is_told_and_taken_out(tmp_path: Path) -> None:
    rows = [f"{at},{'a,b' if at % 2 else 'b,a'},{'model_b' if at % 5 == 0 else 'model_a'}" for at in range(100)]
    code, said = ranked(table(tmp_path, "\n".join([HEAD, *rows])))
    assert code == ExitCode.REACHED and "not told apart from" in said
    assert "the first side wins 79." in said and "corrected for that" in said
    one_side = [f"{at},new,old,{'tie' if at % 3 else 'a'}" for at in range(30)]
    assert "cannot be told from who won" in ranked(table(tmp_path, "\n".join([HEAD, *one_side])))[1]


def test_without_questions_votes_are_independent_and_that_is_said(tmp_path: Path) -> None:
    code, said = ranked(table(tmp_path, "model_a,model_b,winner\n" + "x,y,a\ny,x,b\nx,y,tie\n" * 9))
    assert code == ExitCode.REACHED and "27 votes between 2 models; 9 ties." in said
    assert "for other votes of this kind" in " ".join(said.split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD, "has no row"),
        ("", "has no row"),
        (f"{HEAD}\n1,x,x,a", "on both sides"),
        (f"{HEAD}\n1,x,y,z", "winner must be"),
        (f"{HEAD}\n1,x,y,", "must have winner"),
        (f"{HEAD}\n1,model_b,y,model_b", "no word for both"),
        (f"{HEAD}\n1,x,,a", "must have model_b"),
        ("question,first,second,winner\n1,x,y,a", "must have model_a, but has the columns first, question"),
        ("question,model_a,model_b,won\n1,x,y,a", "must have winner, but has the columns model_a, model_b"),
        (f"{HEAD}\n1,x,y,a\n,x,y,b", "line 3: must have a question"),
        (f"{HEAD}\n1,x,y,a\n1,v,w,b", "v, w never met x, y"),
        (f"{HEAD}\n1,x,y", "has 3 values"),
        ("question,model_a,model_a,winner\n1,x,y,a", "must name each column once"),
        (f"{HEAD}\n" + "\n".join(f"1,m{at},m{at + 1},a" for at in range(600)), "more than 500 models"),
        ('{"model_a": ["x"], "model_b": {"y": 1}, "winner": "c"}', "winner must be"),
        ('{"model_a": "x"', "JSON"),
    ],
)
def test_an_odd_table_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    code, output = ranked(table(tmp_path, text))
    assert code == ExitCode.CONFIGURATION and "Traceback" not in output
    assert said in output.replace("\n", " "), output


def test_names_that_a_terminal_or_markdown_would_obey_are_harmless(tmp_path: Path) -> None:
    text = f"{HEAD}\n" + "1,\x1b[31mred,a|b,a\n2,a|b,\x1b[31mred,tie\n" * 5
    code, said = ranked(table(tmp_path, text))
    assert code == ExitCode.REACHED and "\x1b" not in said and "a|b" in said
    assert "a\\|b" in ranked(tmp_path / "votes.csv", "--format", "md")[1]


def test_import_says_how_votes_are_ranked(tmp_path: Path) -> None:
    path = table(tmp_path, f"{HEAD}\n1,x,y,a")
    found = CliRunner().invoke(app, ["import", str(path), "--to", str(tmp_path / "run")])
    assert found.exit_code == ExitCode.CONFIGURATION and "adaptive-eval preferences" in found.output
