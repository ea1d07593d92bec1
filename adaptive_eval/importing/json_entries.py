"""A large JSON object entry by entry: whole, it may be twenty times as large in memory as in the file."""

from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any, NamedTuple

SPACE = " \t\r\n\ufeff"


class Entry(NamedTuple):
    """A key with its value, or with one element of the list that is its value."""

    key: str
    value: Any
    element: int | None
    share: float
    """How much of the text is read."""


def entries(text: str, listed: str) -> Iterator[Entry]:
    """The entries of the object in `text`; of the list under the key `listed`, each element by itself.

    Raises `JSONDecodeError`, and `RecursionError` where it is nested too deeply.
    """
    cursor = _Cursor(text)
    cursor.expect("{")
    more = not cursor.at_mark("}")
    while more:
        key = str(cursor.value())
        cursor.expect(":")
        if key == listed and cursor.at_mark("["):
            for number, element in enumerate(cursor.elements()):
                yield Entry(key, element, number, cursor.share)
        else:
            yield Entry(key, cursor.value(), None, cursor.share)
        more = cursor.expect(",}") == ","


class _Cursor:
    """A place in a JSON text."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._decoder = text, 0, JSONDecoder()

    @property
    def share(self) -> float:
        return self._at / max(len(self._text), 1)

    def value(self) -> Any:
        """The value that begins here."""
        self._skip()
        found, self._at = self._decoder.raw_decode(self._text, self._at)
        return found

    def elements(self) -> Iterator[Any]:
        """The elements of the list that begins here."""
        self.expect("[")
        more = not self.at_mark("]")
        if not more:
            self.expect("]")
        while more:
            yield self.value()
            more = self.expect(",]") == ","

    def at_mark(self, mark: str) -> bool:
        """This mark comes next."""
        self._skip()
        return self._text.startswith(mark, self._at)

    def expect(self, marks: str) -> str:
        """One of these marks, which is passed."""
        self._skip()
        found = self._text[self._at : self._at + 1]
        if not found or found not in marks:
            raise JSONDecodeError(f"Expecting {' or '.join(marks)}", self._text, self._at)
        self._at += 1
        return found

    def _skip(self) -> None:
        while self._text[self._at : self._at + 1] and self._text[self._at] in SPACE:
            self._at += 1
