"""What the page's modules believe to be sent is what is sent."""

import re
from importlib.resources import files

from page_types import FILE, declarations

from adaptive_eval.notes import CLASSES


def test_the_page_has_words_for_every_kind_of_event() -> None:
    source = (files("adaptive_eval.show.page") / "static" / "trouble.js").read_text("utf-8")
    listed = re.search(r"const EVENTS = \{\n(.*?)\n\};", source, re.DOTALL)
    assert listed is not None
    assert sorted(re.findall(r"^  (\w+): ", listed[1], re.MULTILINE)) == sorted(one.KIND for one in CLASSES)


def test_the_types_of_the_page_are_those_of_what_is_sent() -> None:
    assert FILE.read_text("utf-8") == declarations(), "run: python tests/show/page_types.py"
