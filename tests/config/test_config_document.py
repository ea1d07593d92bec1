"""YAML as it is meant: scalars of YAML 1.2, the line of every value, variables that add nothing but text."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.config.document import VARIABLE, read_document

HUGE = "too large for a number; put a text in quotes"


def tree(text: str, **environment: str) -> Any:
    document = read_document(text, environment)
    assert document.problems == []
    return document.tree


def problems(text: str, **environment: str) -> list[str]:
    return [str(problem) for problem in read_document(text, environment).problems]


class TestScalars:
    @pytest.mark.parametrize(
        ("written", "value"),
        [
            ("1", 1),
            ("-1", -1),
            ("010", 10),
            ("2_000_000", 2_000_000),
            ("1e-3", 0.001),
            ("2E6", 2e6),
            (".5", 0.5),
            ("1.", 1.0),
            ("true", True),
            ("False", False),
            ("null", None),
            ("~", None),
            ("", None),
            ("'1'", "1"),
            ('"true"', "true"),
            *((text, text) for text in ("1:30", "12:30:45", "no", "on", "Y", "2024-01-31", "0x1F", ".inf", ".nan")),
            *((text, text) for text in ("=", "2h30m", "1%")),
        ],
    )
    def test_plain_values(self, written: str, value: Any) -> None:
        read = tree(f"key: {written}")["key"]
        assert read == value and type(read) is type(value)

    def test_keys_are_texts_and_those_of_a_mapping_go_before_merged_ones(self) -> None:
        assert tree("on: 1\n1: 2\nnull: 3") == {"on": 1, "1": 2, "null": 3}
        merged = tree("base: &b {x: 1, y: 2}\nmore: {<<: *b, y: 3}")
        assert merged == {"base": {"x": 1, "y": 2}, "more": {"x": 1, "y": 3}}


class TestPlaces:
    TEXT = """\
name: x

models:
  - name: a
    sampling: {top_p: 1,
      seed: 2}
  -
    name: b
last: |
  two
  lines
"""

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            (("name",), 1),
            (("models",), 3),
            (("models", 0), 4),
            (("models", 0, "sampling"), 5),
            (("models", 0, "sampling", "seed"), 6),
            (("models", 1, "name"), 8),
            (("last",), 9),
            (("models", 1, "missing"), 8),
            (("missing",), 1),
        ],
    )
    def test_lines(self, path: tuple[str | int, ...], line: int) -> None:
        assert read_document(self.TEXT, {}).place(path) == f"line {line}"


class TestProblems:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a: 1\nb: 2\na: 3", "line 3: a is given twice, first in line 1; keep one of the two"),
            ("a: {b: 1, b: 2}", "line 1: a.b is given twice, first in line 1; keep one of the two"),
            ("a: !!python/name:os.system x", "has the tag tag:yaml.org,2002:python/name:os.system"),
            ("a: !!binary aGk=", "has the tag tag:yaml.org,2002:binary"),
            ("a: &x [1, *x]", "a[1] contains itself"),
            ("a: &x {b: *x}", "a.b contains itself"),
            ("? [a, b]\n: 1", "has a key that is not text"),
            ("a: [1", "line 1: is not YAML"),
            ("a: 1\nb: 1e999", "line 2: b is too large for a number"),
            *((f"a: {text}", f"line 1: a is {HUGE}") for text in ("9" * 2000, "9" * 5000, str(2**63), str(-(2**63)))),
            ("a: 1\n b: 2", "line 2: is not YAML: unexpected key: indent it like the key before it"),
            ("a:\n  - name m\n\n    b: 2", "line 2: is not YAML: unexpected key"),
            ("a:\n  - name m  # no colon\n    b: 2", "line 2: is not YAML: it is indented by 4, but the block from"),
            ("a:\n  - m\n  b: 2", "line 3: is not YAML: it is indented like the dash in line 2"),
            ("a:\n  b: 1\n c: 2", "line 3: is not YAML: it is indented by 1, but the block from line 1 by 0: indent"),
            ("a: {b} c", "line 1: is not YAML: there is text after the end of a value: put all of it in quotes"),
            ("a:\n\tb: 1", "line 2: is not YAML: there is a tab: indent with spaces only"),
            ('a: "b\nc: 1', "is not YAML: a quote is not closed"),
            ("a: *nothing", "found undefined alias"),
            ("a: 1\n---\nb: 2", "is not YAML: but found another document"),
            ("- 1\n- 2", "must be a mapping of sections, but got a list of 2"),
            ("just text", "must be a mapping of sections, but got 'just text'"),
            ("", "must be a mapping of sections, but got nothing"),
            ("b: 1\na: \x07", "line 2: has a character that YAML does not allow (U+0007)"),
            ('a: "\\ud800"', "has half of a surrogate pair"),
            ("[" * 600, "is nested too deeply"),
            ("a: {<<: 1}", "is not YAML"),
        ],
    )
    def test_each_is_told(self, text: str, expected: str) -> None:
        assert any(expected in problem for problem in problems(text)), problems(text)

    def test_anchors_that_multiply_are_stopped(self) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
        assert "has too many values" in problems("\n".join(lines))[0]

    @given(st.text(alphabet="ab: -\n[]{}&*!|>'\"%@`#,?<=$~0.e\t", max_size=40))
    def test_no_text_is_a_crash(self, text: str) -> None:
        document = read_document(text, {})
        assert document.problems or isinstance(document.tree, dict)


class TestVariables:
    @pytest.mark.parametrize(
        ("written", "value"),
        [
            ("${A}", "alpha"),
            ("x${A}y${A}", "xalphayalpha"),
            ("${N}", 7),
            ('"${N}"', "7"),
            ("${N}0", 70),
            ("${EMPTY}", None),
            ("${EMPTY:-d}", "d"),
            ("${NONE:-8001}", 8001),
            ("${NONE:-}", None),
            ("'${NONE:-}'", ""),
            ("${NONE:-http://h:1/v1}", "http://h:1/v1"),
            ("$${A}", "${A}"),
            ("$A and $5", "$A and $5"),
            ("${1}", "${1}"),
            ("'${A B}'", "${A B}"),
            ("${FLAG}", True),
        ],
    )
    def test_values(self, written: str, value: Any) -> None:
        read = tree(f"key: {written}", A="alpha", N="7", EMPTY="", FLAG="true")["key"]
        assert read == value and type(read) is type(value)

    @pytest.mark.parametrize(
        "evil", ["a: 1", "{a: 1}", "[1, 2]", "x\nb: 2", "*anchor", "!!python/none", "# gone", "${A}"]
    )
    def test_no_structure_gets_in(self, evil: str) -> None:
        assert tree("key: ${EVIL}", EVIL=evil, A="no") == {"key": evil}

    def test_every_missing_one_is_named_where_it_stands(self) -> None:
        lines = problems("a: ${X}\nb:\n  - ${Y}-${Z}")
        places = ("line 1: a", "X"), ("line 3: b[0]", "Y"), ("line 3: b[0]", "Z")
        assert [line.split(",")[0] for line in lines] == [
            f"{at} needs the environment variable {of}" for at, of in places
        ]

    @given(st.text())
    def test_text_without_variables_is_left_alone(self, text: str) -> None:
        if "${" not in text:
            assert VARIABLE.search(text) is None
