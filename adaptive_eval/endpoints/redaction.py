"""Removes secrets from texts of servers and models.

A secret is searched for as it is and as programs encode it: percent-encoded, escaped as in JSON or HTML, and in base64,
alone or within a longer text. Pieces with its first or last characters are removed, too, since a text may have been cut
within it. Code that cuts a text here must remove secrets first.

Messages lose everything that could be a secret. Answers lose only secrets that cannot be words: a key such as EMPTY,
which is given to servers without keys, stays.
"""

import html
import json
import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from urllib.parse import quote, quote_plus

from adaptive_eval.endpoints.secrets import LONG_WORD, SECRET_LENGTH, SECRET_VARIABLE, holds_secret, looks_secret
from adaptive_eval.endpoints.types import EndpointConfig, Sampling

REDACTED = "***"
LEAST_PIECE = 4
"""Shortest piece of a secret that is removed."""
LATE_DIGIT = 16
"""A piece with no digit before this position may be removed without one."""
SURELY = 20
"""A text of this length without spaces is not a word."""


def secret_forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """These secrets in all encodings, longest first, since one may be part of another."""
    forms = {form for secret in secrets if secret for form in _forms(secret)}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _forms(secret: str) -> Iterator[str]:
    yield secret
    for way in (lambda text: quote(text, safe=""), quote_plus, html.escape, lambda text: json.dumps(text)[1:-1]):
        yield way(secret)
    yield re.sub("%..", lambda found: found[0].lower(), quote(secret, safe=""))
    data = secret.encode("utf-8", "surrogatepass")
    for before in range(3) if len(secret) >= SECRET_LENGTH else ():
        # the characters that do not depend on neighbouring bytes
        inner = slice(-(-8 * before // 6), 8 * (before + len(data)) // 6)
        for alphabet in (b64encode, urlsafe_b64encode):
            yield alphabet(bytes(before) + data).decode()[inner]


def redact_forms(text: str, forms: Iterable[str]) -> str:
    """Remove these forms of secrets from a text, and pieces that begin or end one of them."""
    for form in forms:
        text = text.replace(form, REDACTED)
    for form in forms:
        text = _redact_pieces(text, form)
    return text


@cache
def _least(form: str) -> int:
    """Least length of a removed piece, which includes a digit: else it may be a word, or a prefix of many keys."""
    half = len(form) // 2
    digit = re.search("[0-9]", form)
    if digit is None:
        return max(SECRET_LENGTH, half)
    return max(LEAST_PIECE, min(SECRET_LENGTH, half), min(digit.end(), LATE_DIGIT))


def _redact_pieces(text: str, form: str) -> str:
    least, kept, at, end = _least(form), [], 0, 0
    while (at := text.find(form[:least], end)) >= 0:
        kept.append(text[end:at])
        end = at + least
        while end < len(text) and end - at < len(form) and text[end] == form[end - at]:
            end += 1
    text = REDACTED.join([*kept, text[end:]])
    least, kept, start = _least(form[::-1]), [], len(text)
    while (at := text.rfind(form[-least:], 0, start)) >= 0:
        kept.append(text[at + least : start])
        start, end = at, at + least
        while start > 0 and end - start < len(form) and text[start - 1] == form[start - 1 - end]:
            start -= 1
    return REDACTED.join([text[:start], *reversed(kept)])


def request_secrets(headers: Mapping[str, str], key: str | None) -> tuple[str, ...]:
    """The forms of everything in a request that may be secret: the key, and header values long enough to be one."""
    values = [*headers.values(), *(part for value in headers.values() for part in _parts(value))]
    return secret_forms([*(value for value in values if len(value) >= SECRET_LENGTH), *([key] if key else ())])


def answer_secrets(models: Iterable[tuple[EndpointConfig, Sampling]], keys: Mapping[str, str]) -> tuple[str, ...]:
    """The forms of secrets sent to a run's servers, which must not be stored in answers."""
    found: set[str] = set()
    for config, sampling in models:
        found.add(keys.get(config.key_variable or "", "").strip())
        for name, value in {**config.headers, **sampling.extra_headers}.items():
            plain = value.get_secret_value().strip()
            if _is_secret_header(name, plain):
                found |= {plain, *_parts(plain)}
    return secret_forms(value for value in found if _cannot_be_word(value))


def _parts(value: str) -> Iterator[str]:
    """Parts of a header value that may be secret: `Bearer KEY`, `Basic` with a password, `name=KEY; name=KEY`."""
    yield from re.split(r"[\s;,]+|(?<=\w)=(?=[^=])", value)
    scheme, _, rest = value.partition(" ")
    if scheme.lower() == "basic":
        try:
            user, _, password = b64decode(rest).decode("utf-8", "replace").partition(":")
        except ValueError:
            return
        yield from (user, password)


def _is_secret_header(name: str, value: str) -> bool:
    variable = name.replace("-", "_")
    named = holds_secret(name) or SECRET_VARIABLE.search(variable) is not None or variable.lower() == "cookie"
    return named or looks_secret(value) or LONG_WORD.search(value) is not None


def _cannot_be_word(value: str) -> bool:
    """Whether a text cannot be a word of an answer: letters with digits, or very long."""
    mixed = re.search("[0-9]", value) is not None and re.search("[A-Za-z]", value) is not None
    return len(value) >= SECRET_LENGTH and (mixed or (len(value) >= SURELY and not re.search(r"\s", value)))
