"""The types that the page's modules expect are those of what is sent."""

from page_types import FILE, declarations


def test_the_types_of_the_page_are_those_of_what_is_sent() -> None:
    assert FILE.read_text("utf-8") == declarations(), "run: python tests/show/page_types.py"
