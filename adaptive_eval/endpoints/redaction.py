"""Removes secrets from texts of servers and models.

A run has one `Redactor` with every secret of the run (`config.run_secrets`). Everything written to the store passes
through it (`store.redact`), and so do errors, events and Inspect's logs. A client has its own redactor as well, since
it truncates the messages of its server, and a truncated key is hard to find.

A secret is searched for as it is and as programs encode it: percent-encoded, escaped as in JSON or HTML, and in base64,
alone or within a longer text. Pieces with its first or last characters are removed, too, since a text may have been cut
within it. Code that truncates a text must remove secrets first.

A run's redactor keeps secrets that may be words: a key such as EMPTY, for servers without keys, stays in answers. A
client's redactor removes them from the messages of its server.
"""

import html
import json
import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from urllib.parse import quote, quote_plus

from adaptive_eval.endpoints.secrets import (
    LONG_WORD,
    REDACTED,
    SECRET,
    SECRET_LENGTH,
    SECRET_VARIABLE,
    holds_secret,
    looks_secret,
    remove_patterns,
    secret_values,
)
from adaptive_eval.endpoints.types import EndpointConfig

MIN_PIECE = SECRET_LENGTH // 2
"""Shortest piece of a secret that is removed."""
MIN_KEY_LENGTH = 20
"""Length from which a text without spaces is not a word; half of it, if it has only digits."""
KEY_PREFIXES = re.compile(r"^(?:\s*(?:Bearer|Basic)\s+|[\w-]+=)")
"""Prefixes before the secret itself in a text of a known form."""


class Redactor:
    """Removes secrets from texts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()
        """The secrets in all encodings, longest first, since one can be part of another."""
        self.add(secrets)

    def __bool__(self) -> bool:
        """Whether any secret is known."""
        return bool(self._forms)

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets as they are."""
        return self._secrets

    @property
    def longest(self) -> int:
        """The length of the longest form of a secret; 0 if none is known."""
        return len(self._forms[0]) if self._forms else 0

    def add(self, secrets: Iterable[str]) -> None:
        """Also remove these secrets from now on."""
        self._secrets |= {secret for secret in secrets if secret}
        forms = {form for secret in self._secrets for form in _forms(secret)}
        self._forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))

    def text(self, text: str) -> str:
        """A text without these secrets, such as an answer."""
        return self._redact(text, MIN_PIECE)

    def message(self, text: str) -> str:
        """A message, such as an error, without these secrets and without texts that look like a provider's key."""
        return remove_patterns(self.text(text))

    def data(self, text: str) -> str:
        """A text without these secrets; JSON stays JSON, and loses no short pieces: it may contain images in base64."""
        redacted = self._redact(text, SECRET_LENGTH)
        if redacted == text:
            return text
        try:
            json.loads(redacted)
        except ValueError:  # a secret of only digits was part of a number, or the text was not JSON
            with suppress(ValueError):
                return json.dumps(self._values(json.loads(text)))
        return redacted

    def error(self, error: BaseException | None) -> None:
        """Remove secrets from the messages of an error, if there is one, and of its causes."""
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            error.args = tuple(
                self.message(argument) if isinstance(argument, str) else argument for argument in error.args
            )
            error = error.__cause__ or error.__context__

    def _values(self, value: object) -> object:
        if isinstance(value, str):
            return self._redact(value, SECRET_LENGTH)
        if isinstance(value, list):
            return [self._values(item) for item in value]
        if isinstance(value, dict):
            return {self._redact(key, SECRET_LENGTH): self._values(item) for key, item in value.items()}
        return value

    def _redact(self, text: str, shortest: int) -> str:
        forms = [form for form in self._forms if _is_in(text, form)]
        for form in forms:
            text = text.replace(form, REDACTED)
        for form in forms:
            text = _redact_pieces(text, form, shortest)
        return text


EMPTY_REDACTOR = Redactor()
"""Redactor for code without secrets; none is ever added."""


def _is_in(text: str, form: str) -> bool:
    """Whether a form, or a piece of it, may be in a text."""
    return form[: _min_piece(form)] in text or form[-_min_piece(form[::-1]) :] in text


def _forms(secret: str) -> Iterator[str]:
    yield secret
    for encode in (lambda text: quote(text, safe=""), quote_plus, html.escape, lambda text: json.dumps(text)[1:-1]):
        yield encode(secret)
    yield re.sub("%..", lambda match: match[0].lower(), quote(secret, safe=""))
    data = secret.encode("utf-8", "surrogatepass")
    for offset in range(3) if len(secret) >= SECRET_LENGTH else ():
        # the characters that do not depend on neighbouring bytes
        inner = slice(-(-8 * offset // 6), 8 * (offset + len(data)) // 6)
        for alphabet in (b64encode, urlsafe_b64encode):
            yield alphabet(bytes(offset) + data).decode()[inner]


@cache
def _min_piece(form: str) -> int:
    """Minimum length of a removed piece. A short one includes a digit: it may be a word or a prefix of many keys."""
    half = len(form) // 2
    digit = re.search("[0-9]", form)
    if digit is None:
        return max(SECRET_LENGTH, half)
    return max(MIN_PIECE, min(SECRET_LENGTH, half), min(digit.end(), 2 * SECRET_LENGTH))


def _redact_pieces(text: str, form: str, shortest: int) -> str:
    """Remove pieces of at least `shortest` characters that begin or end a form."""
    return _redact_starts(_redact_starts(text, form, shortest)[::-1], form[::-1], shortest)[::-1]


def _redact_starts(text: str, form: str, shortest: int) -> str:
    """Remove pieces that begin a form; in reversed texts those that end it, since `REDACTED` is its own reverse."""
    length, kept_parts, at, end = max(_min_piece(form), shortest), [], 0, 0
    while (at := text.find(form[:length], end)) >= 0:
        kept_parts.append(text[end:at])
        end = at + length
        while end < len(text) and end - at < len(form) and text[end] == form[end - at]:
            end += 1
    return REDACTED.join([*kept_parts, text[end:]])


def request_redactor(headers: Mapping[str, str], key: str | None) -> Redactor:
    """Build a client's redactor from its key and from header values long enough to be a key."""
    values = [*headers.values(), *(part for value in headers.values() for part in _parts(value))]
    return Redactor([*(value for value in values if len(value) >= SECRET_LENGTH), *([key] if key else ())])


def sent_secrets(servers: Iterable[EndpointConfig], keys: Mapping[str, str]) -> frozenset[str]:
    """Secrets that are sent to servers and that a run's redactor removes."""
    secrets: set[str] = set()
    for config in servers:
        secrets.add(keys.get(config.key_variable or "", "").strip())
        for name, value in config.headers.items():
            plain = value.get_secret_value().strip()
            if _is_secret_header(name, plain):
                secrets |= {plain, *_parts(plain)}
    return frozenset(filter(cannot_be_word, secrets))


def environment_secrets(environment: Mapping[str, str]) -> frozenset[str]:
    """Secrets in an environment: values of variables named like secrets, and values that look like secrets.

    A value that is the path of a file is not a secret itself.
    """
    values = (value.strip() for value in secret_values(environment) if not _is_path(value))
    return frozenset(filter(cannot_be_word, (*values, *secrets_of_known_form(environment))))


def secrets_of_known_form(environment: Mapping[str, str]) -> Iterator[str]:
    """Values in any variable that look like secrets: keys of providers, and passwords in URLs."""
    for value in environment.values():
        for match in SECRET.finditer(value):
            secret = KEY_PREFIXES.sub("", match[0]).strip()
            if match.start() > 0 and value[: match.start()].endswith("://"):  # user:password
                secret = secret.partition(":")[2]
            if cannot_be_word(secret):
                yield secret


def _is_path(value: str) -> bool:
    try:
        return Path(value).exists()
    except (OSError, ValueError):
        return False


def _parts(value: str) -> Iterator[str]:
    """Parts of a header value that may be secrets: `Bearer KEY`, `Basic` with a password, `name=KEY; name=KEY`."""
    yield from re.split(r"[\s;,]+|(?<=\w)=(?=[^=])", value)
    scheme, _, credentials = value.partition(" ")
    if scheme.lower() == "basic":
        try:
            user, _, password = b64decode(credentials).decode("utf-8", "replace").partition(":")
        except ValueError:
            return
        yield from (user, password)


def _is_secret_header(name: str, value: str) -> bool:
    variable = name.replace("-", "_")
    has_secret_name = holds_secret(name) or SECRET_VARIABLE.search(variable) is not None or variable.lower() == "cookie"
    return has_secret_name or looks_secret(value) or LONG_WORD.search(value) is not None


def cannot_be_word(value: str) -> bool:
    """Whether a text cannot be a word of an answer: letters with digits, many digits, or very long."""
    if re.search("[0-9]", value) and re.search("[A-Za-z]", value):
        return len(value) >= SECRET_LENGTH
    is_word = len(value) < (MIN_KEY_LENGTH // 2 if value.isdecimal() else MIN_KEY_LENGTH)
    return not (is_word or re.search(r"\s", value))
