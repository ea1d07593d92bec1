"""Texts for spreadsheets: what a model wrote stays text there, whatever it looks like.

A cell that begins like a formula (=, +, -, @ and their full-width twins, also after white space) is run by the
programs that open it, so such a text gets an apostrophe in front. Line breaks stay within quotes, as one character
each.
"""

FORMULA = frozenset("=+-@＝＋－＠")
APOSTROPHE = "'"


def harmless(value: object) -> object:
    """A value as a spreadsheet may have it; numbers are numbers."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    return APOSTROPHE + text if text.lstrip()[:1] in FORMULA or text[:1] in ("\t", "\n") else text
