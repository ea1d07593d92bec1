"""The configuration as reports show it, which a run reads again."""

from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.config.document import read_document
from adaptive_eval.report.published import to_yaml

AWKWARD = [
    "no",
    "12:30",
    "1e5",
    "a: b",
    "- x",
    "#",
    "",
    " x",
    "x ",
    "~",
    "0x1f",
    "'",
    ".inf",
    "<<",
    "\u2028",
    "${HOME}",
]
LINES = ["a\nb", "\na", "a\n", "a\n  b\n\nc", "{prompt}\n  \\boxed{}", "$${A:-b}\n${C}"]
TEXTS = st.text(max_size=20) | st.sampled_from([*AWKWARD, *LINES])
LEAVES = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | TEXTS
KEYS = st.text(st.characters(exclude_characters="$"), max_size=20)
VALUES = st.dictionaries(
    KEYS,
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)),
    min_size=1,
    max_size=4,
)


@given(VALUES)
def test_a_run_reads_its_published_configuration_as_it_was(value: dict[str, object]) -> None:
    document = read_document(to_yaml(value), {})
    assert not document.problems
    assert document.tree == value
