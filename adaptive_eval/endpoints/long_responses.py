"""Long responses with log-probabilities, read by msgspec (the extra `fast`), which makes objects of what is wanted.

Each token comes with its text, its bytes and those that were likely beside it: of 8,000 tokens that is a megabyte and
ten thousand times ten objects, of which one number each is read. What does not look as expected is left to the ordinary
parser, which says what is wrong with it; of what nobody reads no more is checked than where it ends.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from adaptive_eval.endpoints.parsing import TokenLogprobs

_NO_ALTERNATIVES = re.compile(rb'"top_logprobs"\s*:\s*\[\s*\]')
_ALTERNATIVES = re.compile(rb'"top_logprobs"\s*:\s*(?!\[\s*\])\S')


class _Token(Struct, gc=False):
    logprob: float | None = None


class _FirstToken(Struct, gc=False):
    """A token with its alternatives; decoded only if the response has any."""

    logprob: float | None = None
    token: Raw | UnsetType = UNSET
    top_logprobs: Raw | UnsetType = UNSET


class _Logprobs(Struct):
    content: list[_Token] | None = None
    token_logprobs: list[float | None] | None = None


class _WithAlternatives(Struct):
    content: list[_FirstToken] | None = None
    token_logprobs: list[float | None] | None = None


class _NamedToken(Struct, gc=False):
    token: Any = None


class _NamedLogprobs(Struct):
    content: list[_NamedToken] | None = None
    tokens: list[Any] | None = None


class _NamedChoice(Struct):
    logprobs: _NamedLogprobs | None = None


class _NamedResponse(Struct):
    """The tokens of a response, and nothing else."""

    choices: list[_NamedChoice]


class _Choice(Struct):
    """All that anyone reads of a choice, but its log-probabilities."""

    index: Any = UNSET
    finish_reason: Any = UNSET
    message: Any = UNSET
    text: Any = UNSET
    reasoning: Any = UNSET
    usage: Any = UNSET
    prompt_logprobs: Any = UNSET
    delta: Any = UNSET
    error: Any = UNSET


class _PlainChoice(_Choice):
    logprobs: _Logprobs | UnsetType | None = UNSET


class _RichChoice(_Choice):
    logprobs: _WithAlternatives | UnsetType | None = UNSET


class _Response(Struct):
    """All that anyone reads of a response, but its choices."""

    model: Any = UNSET
    usage: Any = UNSET
    timings: Any = UNSET
    prompt_logprobs: Any = UNSET
    object: Any = UNSET
    type: Any = UNSET
    error: Any = UNSET


class _PlainResponse(_Response):
    choices: list[_PlainChoice] | UnsetType = UNSET


class _RichResponse(_Response):
    choices: list[_RichChoice] | UnsetType = UNSET


_NAMED = msgspec.json.Decoder(_NamedResponse)
_PLAIN, _RICH = msgspec.json.Decoder(_PlainResponse), msgspec.json.Decoder(_RichResponse)


def parse_long(body: bytes) -> dict[str, Any] | None:
    """The response as the ordinary parser gives it, without what nobody reads; None where that one has to say."""
    try:
        response = _decoded(body)
        payload = _fields(response)
        if response.choices is not UNSET:
            choices: Sequence[_PlainChoice | _RichChoice] = response.choices
            payload["choices"] = [_choice(choice, body, at) for at, choice in enumerate(choices)]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return payload


def _decoded(body: bytes) -> "_PlainResponse | _RichResponse":
    """Decode the response, with alternatives of tokens only if it has any."""
    at = body.find(b'"top_logprobs"')
    if at >= 0 and not _NO_ALTERNATIVES.match(body, at):
        return _RICH.decode(body)
    response = _PLAIN.decode(body)
    several = at >= 0 and response.choices is not UNSET and len(response.choices) > 1
    return _RICH.decode(body) if several and _ALTERNATIVES.search(body, at) else response


def texts_of_tokens(body: bytes, choice: int) -> list[object]:
    """The tokens of a choice of a response that was read here."""
    try:
        logprobs = _NAMED.decode(body).choices[choice].logprobs
    except (msgspec.MsgspecError, ValueError, LookupError):
        return []
    if logprobs is None or logprobs.content is None:
        return [] if logprobs is None else list(logprobs.tokens or [])
    return [one.token for one in logprobs.content]


def _choice(choice: _PlainChoice | _RichChoice, body: bytes, at: int) -> dict[str, Any]:
    plain, logprobs = _fields(choice), choice.logprobs
    if logprobs is None or logprobs is UNSET:
        return plain
    if logprobs.content is None:
        return {**plain, "logprobs": TokenLogprobs(logprobs.token_logprobs or [], None, (body, at))}
    first = logprobs.content[0] if logprobs.content else None
    values = [token.logprob for token in logprobs.content]
    whole = _whole(first) if isinstance(first, _FirstToken) else None
    return {**plain, "logprobs": TokenLogprobs(values, whole, (body, at))}


def _whole(first: _FirstToken) -> dict[str, Any]:
    raw = {"token": first.token, "top_logprobs": first.top_logprobs}
    return {"logprob": first.logprob} | {
        name: msgspec.json.decode(value) for name, value in raw.items() if value is not UNSET
    }


def _fields(one: _Choice | _Response) -> dict[str, Any]:
    """The fields that are set, without those that are converted separately."""
    names = (name for name in one.__struct_fields__ if name not in ("choices", "logprobs"))
    return {name: value for name in names if (value := getattr(one, name)) is not UNSET}
