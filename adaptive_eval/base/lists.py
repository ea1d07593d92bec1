"""Lists in a sentence, for errors and displays."""

from collections.abc import Sequence


def first_few(names: Sequence[str], limit: int) -> str:
    """Names in a line; those beyond `limit` are only counted."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
