"""Recognises secrets in configurations, environments and texts."""

import re
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import urlsplit

REDACTED = "***"
"""Replaces a secret."""
SECRET_LENGTH = 8
"""A shorter value, such as a flag, is not a secret, and hiding it would hide ordinary text."""

ENTROPY = r"[A-Za-z0-9_\-]"
SECRET = re.compile(
    rf"(?<![A-Za-z0-9])(?:sk|rk|pk)-(?={ENTROPY}*\d){ENTROPY}{{16,}}"
    r"|(?<![A-Za-z0-9])(?:hf_|gsk_|r8_|xai-|nvapi-|glpat-)[A-Za-z0-9]{16,}"
    rf"|\bgh[pousr]_{ENTROPY}{{20,}}|\bgithub_pat_{ENTROPY}{{20,}}"
    rf"|\bAIza{ENTROPY}{{30,}}|\bAKIA[0-9A-Z]{{16}}\b"
    rf"|\beyJ{ENTROPY}{{10,}}\.eyJ{ENTROPY}{{10,}}"
    r"|^\s*(?:Bearer|Basic)\s+(?=\S*[\d=])\S{8,}\s*$"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?<=[?&])(?:api[_-]?key|key|token)=[^&\s]+"
)
"""The forms of providers' keys, `Authorization` values, and credentials in a URL."""

LONG_WORD = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{20,}")
"""A key of unknown form: mixed letters and digits, too many for a name."""

SECRET_KEY = re.compile(
    r"(?:.*_)?(?:api_?key|apikey|authorization|password|passwd|secret|credentials?|(?:access|auth|bearer|api|id)_token|token)"
)
"""Names of keys that hold a secret, in snake case; `max_tokens` and `api_key_env` do not."""

COUNTED = re.compile(r"(?:.*_)?(?:max|min|new|completion|prompt|stop|eos|bos|pad)_(?:.*_)?token")
"""Names of a number of tokens, or of a token that ends a text, in the singular."""

SECRET_VARIABLE = re.compile(r"(?i)(?:^|_)(?:api)?(?:key|token|secret|password|passwd|credentials?)(?:$|_)")
"""Names of environment variables that hold a secret."""

PASSED_VALUE = re.compile(r"""(?:^|[\s"';])(?:-+([\w.-]+)|([\w.-]+)(?=[=:]))""")
"""How a command line passes a value: `--api-key X`, `API_KEY=X`, `Authorization: X`."""

URL = re.compile(r"https?://[^\s\"']+|[\w-]+(?:\.[\w-]+)+(?::\d+)?/[^\s\"']+")
"""A URL in a command line; programs such as curl accept one without a scheme, too."""

INHERITED = "leave it out: a server inherits the environment, and can read the variable itself"
"""How a server started by the run gets a key."""

HEADERS = ("headers",)
"""Keys under which a variable's value may be a secret; no message shows these values."""


def holds_secret(key: str) -> bool:
    """Whether a key of this name holds a secret."""
    name = key.lower().replace("-", "_").replace(".", "_")
    return SECRET_KEY.fullmatch(name) is not None and COUNTED.fullmatch(name) is None


def secret_given(command: str) -> str | None:
    """The name of the option or variable with which a command line passes a secret; None if there is none."""
    names = (match[1] or match[2] for match in PASSED_VALUE.finditer(command))
    return next(filter(holds_secret, names), None)


def secret_values(environment: Mapping[str, str], names: Iterable[str] = ()) -> tuple[str, ...]:
    """Values of `names` and of variables named like secrets, longest first."""
    values = {value for name, value in environment.items() if SECRET_VARIABLE.search(name) or name in set(names)}
    return tuple(sorted((value for value in values if len(value) >= SECRET_LENGTH), key=len, reverse=True))


def remove_keys(environment: Mapping[str, str], names: Collection[str] = ()) -> dict[str, str]:
    """The environment without these variables, and without those whose names or values look like secrets."""
    return {
        name: value
        for name, value in environment.items()
        if name not in names and not SECRET_VARIABLE.search(name) and not looks_secret(value)
    }


def looks_secret(value: str) -> bool:
    """Whether a value has the form of a secret."""
    return SECRET.search(value) is not None


def find_urls(command: str) -> tuple[str, ...]:
    """The URLs in an argument of a command, with a scheme or `//` before them."""
    urls = (match[0] for match in URL.finditer(command))
    return tuple(url if "://" in url else f"//{url}" for url in urls)


def path_looks_secret(url: str) -> bool:
    """Whether the path of a URL contains what may be a key of unknown form."""
    return LONG_WORD.search(urlsplit(url).path) is not None


def remove_patterns(text: str) -> str:
    """Remove everything that looks like a secret from a text."""
    return SECRET.sub(REDACTED, text)
