"""Questions from files: what is read is what was written, and every bad line is named."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.questions import Question, QuestionsConfig, load_questions
from adaptive_eval.questions.load import content_id
from adaptive_eval.questions.types import FieldsConfig


def jsonl(folder: Path, *rows: dict[str, Any] | str) -> Path:
    path = folder / "questions.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def load(path: Path, **settings: Any) -> tuple[Question, ...]:
    fields = FieldsConfig(**settings.pop("fields", {}))
    seed = settings.pop("seed", 0)
    return load_questions(QuestionsConfig(path=path, fields=fields, **settings), seed=seed)


def refusal(path: Path, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, **settings)
    return str(caught.value)


class TestJsonl:
    def test_byte_order_mark_windows_lines_and_blank_lines(self, tmp_path: Path) -> None:
        path = tmp_path / "q.jsonl"
        path.write_bytes(
            b'\xef\xbb\xbf{"prompt": "\xc3\xa4?", "answer": "1"}\r\n\r\n{"prompt": "b?", "answer": "2"}\r\n'
        )
        assert [question.prompt for question in load(path)] == ["ä?", "b?"]
        path.write_text('{"prompt": "one\u2028two\x85three", "answer": "1"}', encoding="utf-8")
        assert load(path)[0].prompt == "one\u2028two\x85three", "only line feeds end a line"

    @pytest.mark.parametrize(
        ("written", "read"),
        [
            ("42", "42"),
            ("0.10", "0.10"),
            ("1e400", "1E+400"),
            ("true", "true"),
            ("9" * 5000, "9" * 5000),
            ("0.12345678901234567890123", "0.12345678901234567890123"),
            ('["a", "b"]', '["a", "b"]'),
            ('{"x": [0.5, 1, 1e400]}', '{"x": [0.5, 1, "1E+400"]}'),
        ],
    )
    def test_answers_are_kept_as_they_are_written(self, tmp_path: Path, written: str, read: str) -> None:
        assert load(jsonl(tmp_path, f'{{"prompt": "?", "answer": {written}}}'))[0].answer == read

    def test_every_bad_line_is_named_at_once(self, tmp_path: Path) -> None:
        path = jsonl(
            tmp_path,
            {"id": "a", "prompt": "fine", "answer": "1"},
            '{"prompt": "cut',
            "[1, 2]",
            {"id": "b", "prompt": "  ", "answer": "1"},
            {"id": "c", "prompt": "no answer", "answer": None},
            {"id": "d", "prompt": "no field"},
            {"id": "a", "prompt": "again", "answer": "1"},
            {"id": " ", "prompt": "no id", "answer": "1"},
            '{"id": "e", "prompt": "half \\ud800", "answer": "1"}',
            '{"id": "f", "prompt": "?", "answer": NaN}',
            {"id": "g\0", "prompt": "?", "answer": "1"},
        )
        lines = refusal(path).splitlines()
        assert lines[0] == f"{path}: 10 problems"
        expected = {
            2: "is not JSON",
            3: "is a list, not an object",
            4: "the prompt is empty",
            5: "has no answer",
            6: "has no field 'answer'; the fields are id, prompt: set questions.fields.answer, or add the field",
            7: "the id 'a' was used before, by line 1",
            8: "the id is empty",
            9: "half of a surrogate pair",
            10: "NaN is not a JSON value",
            11: "the id 'g\\x00' has a NUL character; remove it",
        }
        for line, (number, problem) in zip(lines[1:], expected.items(), strict=True):
            assert line.startswith(f"  line {number}: ")
            assert problem in line

    def test_bytes_that_are_not_utf8_are_named(self, tmp_path: Path) -> None:
        path = tmp_path / "q.jsonl"
        path.write_bytes(b'{"prompt": "a", "answer": "1"}\n{"prompt": "\xff", "answer": "1"}')
        assert "line 2: is not UTF-8 (byte 13); save the file as UTF-8" in refusal(path)
        path.write_bytes(b'[{"prompt": "\xff", "answer": "1"}]')
        assert refusal(path).endswith("is not UTF-8 (byte 14); save the file as UTF-8")

    def test_many_problems_are_counted_and_one_wrong_field_is_reported_once(self, tmp_path: Path) -> None:
        first, *others = refusal(jsonl(tmp_path, *["{" + " " * spaces for spaces in range(100)])).splitlines()
        assert first.endswith("100 problems") and len(others) == 41 and others[-1] == "  and 60 more"
        rows = [{"prompt": str(n), "answer": "1"} for n in range(50)]
        assert refusal(jsonl(tmp_path, *rows), fields={"prompt": "q"}).splitlines() == [
            f"{tmp_path / 'questions.jsonl'}: 1 problem",
            "  no row has a field 'q'; the fields are prompt, answer: set questions.fields.prompt, or add the field",
        ]

    def test_an_unreadable_file_is_a_configuration_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = jsonl(tmp_path, {"prompt": "?", "answer": "1"})

        def refuse(path: Path) -> bytes:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "read_bytes", refuse)
        denied = "cannot be read: Permission denied; allow access, or use another file"
        assert refusal(path) == f"questions.path: {path} {denied}"

    @pytest.mark.parametrize("name", ["q.json", "q.jsonl"])
    @pytest.mark.parametrize("indent", [None, 2])
    def test_an_array_of_objects_is_read(self, tmp_path: Path, name: str, indent: int | None) -> None:
        path = tmp_path / name
        path.write_text(json.dumps([{"prompt": "a?", "answer": "1"}, {"prompt": "b?", "answer": 2}], indent=indent))
        assert [(question.prompt, question.answer) for question in load(path)] == [("a?", "1"), ("b?", "2")]

    @settings(max_examples=examples(60))
    @given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=5, unique_by=str.strip))
    def test_any_text_comes_back_as_it_was(self, tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
        path = jsonl(
            tmp_path_factory.mktemp("q"),
            *({"id": f"q{number}", "prompt": text, "answer": text} for number, text in enumerate(texts)),
        )
        assert [(question.prompt, question.answer) for question in load(path)] == [(text, text) for text in texts]


class TestIds:
    def test_content_makes_an_id_that_no_order_changes(self, tmp_path: Path) -> None:
        rows = [{"prompt": "a?", "answer": "1"}, {"prompt": "b?", "answer": "2"}]
        questions, reversed_questions = load(jsonl(tmp_path, *rows)), load(jsonl(tmp_path, *reversed(rows)))
        assert {question.id for question in questions} == {question.id for question in reversed_questions}
        assert questions[0].id == content_id("a?", "1", ()) != content_id("a?", "1", ("1",))
        assert "line 2: is the same question as line 1" in refusal(jsonl(tmp_path, rows[0], rows[0]))


class TestFields:
    ROW: dict[str, Any] = {"doc": {"text": "?", "key": "B"}, "a": "one", "b": "two", "a.b": "dotted"}
    ROW |= {"options": ["x", "y"], "passage": "p1", "year": 2025, "weight": 1.5, "big": 2**80}

    def test_dotted_field_names_lead_inwards(self, tmp_path: Path) -> None:
        question = load(jsonl(tmp_path, self.ROW), fields={"prompt": "doc.text", "answer": "doc.key"})[0]
        assert (question.prompt, question.answer) == ("?", "B")
        own = {"prompt": "a.b", "answer": "a"}
        assert load(jsonl(tmp_path, self.ROW), fields=own)[0].prompt == "dotted", "a name with a dot comes first"

    def test_a_conversation_is_no_prompt_and_the_text_in_it_has_a_name(self, tmp_path: Path) -> None:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
        path = jsonl(tmp_path, {"input": messages, "ideal": "4"})
        message = refusal(path, fields={"prompt": "input", "answer": "ideal"})
        assert "line 1: the prompt (field 'input') is not a text, but [{" in message
        assert message.rstrip().endswith("name the text in it, as questions.fields.prompt: input.1.content")
        assert load(path, fields={"prompt": "input.1.content", "answer": "ideal"})[0].prompt == "2 + 2?"
        for name in ("input.2.content", "input.-1.content", "input.x"):
            assert f"has no field '{name}'" in refusal(path, fields={"prompt": name, "answer": "ideal"})

    @pytest.mark.parametrize(("names", "choices"), [("options", ("x", "y")), (("a", "b"), ("one", "two"))])
    def test_choices_are_one_field_or_several(self, tmp_path: Path, names: Any, choices: tuple[str, ...]) -> None:
        fields = {"prompt": "a", "answer": "b", "choices": names}
        assert load(jsonl(tmp_path, self.ROW), fields=fields)[0].choices == choices

    def test_choices_that_are_no_list_are_an_error_and_lists_in_them_have_dotted_names(self, tmp_path: Path) -> None:
        fields = {"prompt": "a", "answer": "b", "choices": "passage"}
        for value, shown in (("p1", "'p1'"), ("[" * 50_000 + "]" * 50_000, "'[[[")):
            message = refusal(jsonl(tmp_path, {**self.ROW, "passage": value}), fields=fields)
            assert f"line 1: the choices are not a list, but {shown}" in message
        many = {"prompt": "?", "answer": "A", "choices": [str(n) for n in range(27)]}
        assert "has 27 choices, but there are 26 letters" in refusal(jsonl(tmp_path, many))
        row = {"prompt": "?", "answer": "B", "choices": {"label": "AB", "text": ["x", "y"]}}
        message = refusal(jsonl(tmp_path, row))
        assert "but a mapping of label, text; name the list in it, as questions.fields.choices: choices.text" in message
        assert load(jsonl(tmp_path, row), fields={"choices": "choices.text"})[0].choices == ("x", "y")

    def test_cluster_and_metadata_are_kept(self, tmp_path: Path) -> None:
        fields = {"prompt": "a", "answer": "b", "cluster": "passage", "metadata": ("year", "weight", "big", "options")}
        question = load(jsonl(tmp_path, self.ROW), fields=fields)[0]
        assert question.cluster == "p1"
        assert question.metadata == {"year": 2025, "weight": 1.5, "big": str(2**80), "options": '["x", "y"]'}

    def test_questions_without_answers_must_be_asked_for(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path, {"prompt": "write a poem"})
        assert "has no field 'answer'" in refusal(path)
        assert load(path, fields={"answer": None})[0].answer == ""


class TestSelection:
    ROWS = tuple(
        {"id": str(n), "prompt": f"q{n}", "answer": "1", "year": 2020 + n % 3, "hard": n > 5} for n in range(9)
    )

    @pytest.mark.parametrize(
        ("condition", "ids"),
        [
            ({"year": 2020}, "036"),
            ({"year": "2020"}, "036"),
            ({"year": (2020, 2022)}, "023568"),
            ({"year": 2020, "hard": True}, "6"),
            ({"hard": False}, "012345"),
        ],
    )
    def test_filter(self, tmp_path: Path, condition: Any, ids: str) -> None:
        bad = {"id": "0", "prompt": "", "year": 1999, "hard": None}  # what is filtered out may have mistakes
        assert "".join(question.id for question in load(jsonl(tmp_path, *self.ROWS, bad), filter=condition)) == ids
        unknown = refusal(jsonl(tmp_path, *self.ROWS), filter={"yaer": 2020})
        assert "no row has a field 'yaer', which questions.filter asks for" in unknown

    def test_shuffle_depends_on_the_seed_alone_and_comes_before_limit(self, tmp_path: Path) -> None:
        path = jsonl(tmp_path, *self.ROWS)
        order = [q.id for q in load(path, shuffle=True, seed=3)]
        assert order == [q.id for q in load(path, shuffle=True, seed=3)] != [q.id for q in load(path, shuffle=True)]
        assert sorted(order) == sorted(row["id"] for row in self.ROWS)
        assert [q.id for q in load(path, shuffle=True, seed=3, limit=4)] == order[:4]


class TestCsv:
    def write(self, folder: Path, text: str) -> Path:
        path = folder / "q.csv"
        path.write_bytes(text.encode())
        return path

    def test_mark_quotes_and_line_ends(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, '\ufeffprompt,answer\r\n"a ""b"",\r\nc",1\r\n\r\nd,002\r\n')
        assert [(q.prompt, q.answer) for q in load(path)] == [('a "b",\r\nc', "1"), ("d", "002")]
        assert len(load(self.write(tmp_path, f'prompt,answer\n"{"x" * 300_000}",1\n'))[0].prompt) == 300_000


class TestParquet:
    def test_rows(self, tmp_path: Path) -> None:
        path = tmp_path / "q.parquet"
        table = pyarrow.table({"prompt": ["a?", "b?"], "answer": [1, 20], "choices": [["x"], ["y", "z"]]})
        pyarrow.parquet.write_table(table, path)
        assert [(q.answer, q.choices) for q in load(path)] == [("1", ("x",)), ("20", ("y", "z"))]


ROW, LINES = '{"prompt": "a?", "answer": "1"}', 'prompt,answer\n"two\nlines",1\nthree,fields,here\n"",1\n'


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("q.json", f"[{ROW}, 5]", "entry 2: is a number, not an object"),
        ("q.json", '[{"prompt": "a?"}]', "entry 1: has no field 'answer'"),
        ("q.json", '[\n{"prompt": "a?"\n', "is not JSON at line .*; write an array of objects, or one object per line"),
        ("q.json", f"[1]\n{ROW}", "is not JSON at .* .extra data.; write an array of objects, or"),
        ("q.json", "[]", "there are no questions"),
        ("q.json", "", "there are no questions"),
        ("q.json", "[" * 100_000, "nested too deeply"),
        ("q.json", '[{"prompt": "a?", "answer": "1", "prompt": "b?"}]', "has an object with the key 'prompt' twice"),
        ("q.json", f'{ROW}\n{{"prompt": "b", "answer": 1, "answer": 2}}', "line 2: .*'answer' twice"),
        ("q.csv", "prompt,prompt\n1,2\n", "line 1: needs a header"),
        ("q.csv", "", "is empty, but must have a header"),
        ("q.csv", "prompt;answer\nWhat?;4\n", "must separate columns by commas, but has semicolons"),
        ("q.csv", "prompt\tanswer\nWhat?\t4\n", "must separate columns by commas, but has tabs"),
        ("q.csv", "prompt,answer\rWhat?,4\r", "line 1: has a carriage return that ends no line; save the file"),
        ("q.csv", LINES, "line 4: has 3 values, but the header has 2"),
        ("q.csv", LINES, "line 5: the prompt is empty"),
        ("q.parquet", "PAR1 not really", "is not a Parquet file"),
    ],
)
def test_a_file_with_mistakes_says_where(tmp_path: Path, name: str, text: str, problem: str) -> None:
    """Lines are counted as an editor does."""
    path = tmp_path / name
    path.write_bytes(text.encode())
    assert re.search(problem, refusal(path))


class TestDataset:
    def config(self, **settings: Any) -> QuestionsConfig:
        return QuestionsConfig(dataset="org/name", split="train", revision="abc", **settings)

    @pytest.fixture
    def hub(self, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
        """Fake libraries and a reachable hub."""
        offline = SimpleNamespace(HF_HUB_OFFLINE=False, ENDPOINT="https://hub.example")
        session = SimpleNamespace(head=lambda url, timeout: None)
        hub = SimpleNamespace(constants=offline, get_session=lambda: session, session=session)
        hub.datasets = SimpleNamespace(config=SimpleNamespace(HF_HUB_OFFLINE=False), load_dataset=None)
        monkeypatch.setitem(sys.modules, "huggingface_hub", hub)  # type: ignore[arg-type]
        monkeypatch.setitem(sys.modules, "datasets", hub.datasets)
        return hub

    def test_a_dataset_is_requested_by_name(self, hub: SimpleNamespace) -> None:
        asked: list[Any] = []
        rows = [{"prompt": "a?", "answer": 7}]
        hub.datasets.load_dataset = lambda *a, **k: asked.append((a, k)) or rows
        assert load_questions(self.config())[0].answer == "7"
        assert asked == [(("org/name",), {"name": None, "split": "train", "revision": "abc"})]
        assert not hub.datasets.config.HF_HUB_OFFLINE

    def test_where_the_hub_cannot_be_reached_only_the_cache_is_looked_at(self, hub: SimpleNamespace) -> None:
        def refuse(url: str, timeout: float) -> None:
            raise ConnectionError(url)

        hub.session.head = refuse
        hub.datasets.load_dataset = lambda *_, **__: [{"prompt": str(hub.datasets.config.HF_HUB_OFFLINE), "answer": 7}]
        assert load_questions(self.config())[0].prompt == "True"
        assert hub.constants.HF_HUB_OFFLINE
        hub.datasets.load_dataset = None
        with pytest.raises(ConfigError, match="could not be loaded: .*; the Hugging Face hub cannot be reached"):
            load_questions(self.config())
        hub.datasets.load_dataset = lambda *_, **__: refuse("no route", 0.0)
        with pytest.raises(ConfigError, match="'org/name' could not be loaded: no route"):
            load_questions(self.config())

    def test_without_the_library_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(ConfigError, match=r"pip install 'adaptive-eval\[hf\]'"):
            load_questions(self.config())


def test_a_world_has_questions_that_can_be_graded() -> None:
    questions = load_questions(QuestionsConfig(world="coins", limit=5))
    assert len(questions) == 5
    assert all(question.id in question.prompt and question.answer.isdecimal() for question in questions)
    with pytest.raises(ConfigError, match="the worlds are coins"):
        load_questions(QuestionsConfig(world="coin"))


FUNCTION = """
from pathlib import Path

def rows(file, times=1):
    return [{"prompt": f"What is {line}?", "answer": line} for line in Path(file).read_text().split() * times]

def broken():
    raise LookupError("no such set")

def lines():
    return ["a line"]
"""


def test_a_function_of_the_user_s_returns_rows_in_the_folder_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_questions.py").write_text(FUNCTION)
    (tmp_path / "words.txt").write_text("red blue green")
    config = QuestionsConfig(function="my_questions:rows", options={"file": "words.txt"}, limit=2)
    assert [question.answer for question in load_questions(config, folder=tmp_path)] == ["red", "blue"]
    for name, options, problem in (
        ("rows", {"file": "none.txt"}, "my_questions:rows raised FileNotFoundError"),
        ("broken", {}, "my_questions:broken raised LookupError: no such set"),
        ("lines", {}, "row 1: is 'a line', not a mapping"),
        ("rows", {"file": "words.txt", "times": 2}, "row 4: is the same question as row 1"),
        ("nothing", {}, "has no attribute nothing"),
    ):
        config = QuestionsConfig(function=f"my_questions:{name}", options=options)
        with pytest.raises(ConfigError, match=problem):
            load_questions(config, folder=tmp_path)
