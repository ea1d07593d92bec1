"""Identifies servers before use: whether they serve the model, and settings of their own that affect answers.

llama-server answers any model name with the model that it has, so the list of models decides, and if a name is not on
it, the name in an answer. It also cuts off improbable tokens unless told otherwise, and counts the tokens of only one
answer if there are several (`wire`).
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from adaptive_eval.endpoints.client import Caller, Reply
from adaptive_eval.endpoints.failures import (
    Failure,
    FailureKind,
    ModelNotServed,
    Refusal,
    WebPage,
    error_signal,
    safe_excerpt,
)
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.endpoints.types import EndpointConfig, Notice, Sampling

LLAMA_OWNER = "llamacpp"
"""What llama-server reports as the owner of its models."""
LLAMA_CUTS = {"top_k": 40, "top_p": 0.95, "min_p": 0.05}
"""Its default cuts of the distribution; `/props` has the actual ones."""
NO_LIST = frozenset({404, 405, 501})
"""Statuses of a server without a list of models."""
NAMED = 10
LONGEST_NAME = 100
_DATED = re.compile(r"(?:[-_@:.]?(?:\d{2,}|latest|preview|free))*|\.gguf")
MOST_NOTICES = 20
"""Most notices of a kind, for servers that say something else each time."""


class ServerIdentity(NamedTuple):
    """Facts about a server, as it reports them."""

    served: tuple[str, ...] = ()
    """Names of its models; empty without a list."""
    llama: bool = False
    slots: int | None = None
    """Answers that llama-server accepts in one request."""
    notices: tuple[Notice, ...] = ()


def _entries(reply: Reply) -> Iterator[dict[str, Any]]:
    """The entries of the list of models; none if the server has no list."""
    data = reply.payload.get("data") if isinstance(reply.payload, dict) else None
    for entry in data if isinstance(data, list) else []:
        if isinstance(entry, dict) and "id" in entry:
            yield entry


def _names(entry: dict[str, Any]) -> set[str]:
    aliases = entry.get("aliases")
    return {str(entry["id"]), *(map(str, aliases) if isinstance(aliases, list) else ())}


def _read_model_name(payload: object) -> str | None:
    """The model name in a response; None if it has none."""
    named = payload.get("model") if isinstance(payload, dict) else None
    return named if isinstance(named, str) else None


def is_same_model(named: str, asked: str) -> bool:
    """Whether two names mean one model: one may have a version (`m` and `m-2026-01-01`) or a folder before it."""
    short, long = sorted((name.rpartition("/")[2].lower() for name in (named, asked)), key=len)
    return bool(short) and long.startswith(short) and not long[len(short) : len(short) + 1].isalnum()


def is_dated(named: str, asked: str) -> bool:
    """Whether names differ only by a date or build, as an alias and its target do."""
    short, long = sorted((name.rpartition("/")[2].lower() for name in (named, asked)), key=len)
    return long.startswith(short) and _DATED.fullmatch(long[len(short) :]) is not None


async def _llama_settings(caller: Caller, base_url: str) -> tuple[int | None, dict[str, Any]]:
    """Slots and default sampling settings of a llama-server, if it reports them."""
    try:
        status, body = await caller.fetch_outside_api(base_url, "/props")
        props = orjson.loads(body) if status == 200 else {}
    except Failure as failure:
        if failure.kind is FailureKind.OUT_OF_FILES:
            raise
        props = {}
    except orjson.JSONDecodeError:
        props = {}
    slots = props.get("total_slots") if isinstance(props, dict) else None
    settings = props.get("default_generation_settings") if isinstance(props, dict) else None
    said = settings.get("params") if isinstance(settings, dict) else None
    told = said if isinstance(said, dict) else {}
    defaults = {key: _number(told.get(key), cut) for key, cut in LLAMA_CUTS.items()}
    return slots if isinstance(slots, int) and slots > 0 else None, defaults


def _cuts(sampling: Sampling, defaults: Mapping[str, Any]) -> Iterator[Notice]:
    """A notice if tokens are cut off by settings that the user has not chosen."""
    off = {"top_k": 0, "top_p": 1, "min_p": 0}
    chosen = {key for key in off if getattr(sampling, key) is not None or key in sampling.extra_body}
    left = {key: defaults[key] for key in off if key not in chosen and defaults[key] != off[key]}
    if left and sampling.temperature != 0:
        is_now = ", ".join(
            f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in left.items()
        )
        mend = ", ".join(f"{key}: {off[key]}" for key in left)
        text = (
            f"its server is llama.cpp, which leaves out improbable tokens unless told otherwise ({is_now}): this can "
            f"change scores by several points. Set {mend} to sample as vLLM does, or set these values if you want them"
        )
        yield Notice("server_defaults", text)


def _number(value: object, otherwise: float) -> float:
    """The value if it is a number, else the default."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


class IdentifiedServers:
    """The servers of one model; each is identified before its first request, and again after an absence."""

    def __init__(
        self,
        caller: Caller,
        config: EndpointConfig,
        sampling: Sampling,
        tiny: Mapping[str, object],
        settings: EndpointSettings,
    ) -> None:
        """`tiny` is a request that costs next to nothing, for a server whose list of models lacks the name."""
        self._pauses = (2.0 * settings.backoff, 4.0 * settings.backoff)
        """Before it is asked again whether it really refuses, since one refusal may be an accident."""
        self._caller, self._sampling, self._tiny = caller, sampling, tiny
        self._model = config.model
        self._servers: dict[str, ServerIdentity] = {}
        self._asked: dict[str, asyncio.Task[ServerIdentity]] = {}
        self._names = {config.model}
        """Names of the model on its servers."""
        self._named: set[str] = set()
        self._fingerprints: dict[str, str] = {}
        """The first fingerprint of each server."""
        self._notices: dict[Notice, None] = {}

    def known_identity(self, url: str) -> ServerIdentity | None:
        """The server's identity, if it is known."""
        return self._servers.get(url)

    async def identify(self, url: str) -> ServerIdentity:
        """The server's identity; concurrent callers share one identification."""
        task = self._asked.get(url)
        if task is None:
            task = self._asked[url] = asyncio.create_task(self._identified(url))
        return await asyncio.shield(task)

    def forget(self, url: str) -> None:
        """Identify a server again after an absence, since it may be another."""
        if self._servers.pop(url, None) is not None:
            del self._asked[url]

    def note_reply(self, url: str, payload: object) -> None:
        """Note the model name and the system fingerprint in a response."""
        self._note_name(_read_model_name(payload))
        fingerprint = payload.get("system_fingerprint") if isinstance(payload, dict) else None
        if isinstance(fingerprint, str):
            self._note_fingerprint(url, fingerprint)

    def _note_name(self, named: str | None) -> None:
        if named in self._names:
            named = self._model
        if named is None or named in self._named or len(self._named) >= NAMED:
            return
        named = safe_excerpt(named, self._caller.redactor, LONGEST_NAME)
        if named in self._named:
            return
        if self._named:
            others = ", ".join(map(repr, sorted(self._named)))
            self.note(Notice("renamed", f"some of its answers are named {named!r}, others {others}: was it replaced?"))
        elif not is_dated(named, self._model):
            self.note(Notice("named", f"its answers are named {named!r}, and it was asked for {self._model!r}"))
        self._named.add(named)

    def _note_fingerprint(self, url: str, fingerprint: str) -> None:
        if (before := self._fingerprints.setdefault(url, fingerprint)) == fingerprint:
            return
        was, now = (safe_excerpt(one, self._caller.redactor, LONGEST_NAME) for one in (before, fingerprint))
        text = f"the system_fingerprint of its server at {url} was {was!r} and is {now!r}: the server was changed"
        self.note_first(Notice("fingerprint", text))

    def note(self, notice: Notice) -> None:
        """Note something about the model's servers, once."""
        if sum(other.kind == notice.kind for other in self._notices) < MOST_NOTICES:
            self._notices.setdefault(notice)

    def note_first(self, notice: Notice) -> None:
        """Add a notice, unless there is one of its kind."""
        if all(other.kind != notice.kind for other in self._notices):
            self.note(notice)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """The notices so far."""
        return tuple(self._notices)

    def fewer_answers(self, together: int) -> int:
        """The answers to request at a time after this many were refused: the number of slots, or one."""
        slots = [server.slots for server in self._servers.values() if server.slots]
        return min(slots) if slots and min(slots) < together else 1

    async def close(self) -> None:
        """Cancel all identifications."""
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _identified(self, url: str) -> ServerIdentity:
        try:
            server = self._servers[url] = await self._ask(url)
        except (Failure, ModelNotServed):  # it may serve the model later
            del self._asked[url]
            raise
        for notice in server.notices:
            self.note(notice)
        return server

    async def _ask(self, url: str) -> ServerIdentity:
        """Ask a server for its models; raises `ModelNotServed` if it serves others, `Failure` if it is unreachable."""
        try:
            reply = await self._caller.models(url)
            if reply.status >= 300 and reply.status not in NO_LIST:
                await asyncio.sleep(self._pauses[0])
                reply = await self._caller.models(url)
            entries = list(_entries(reply))
        except Failure as failure:
            if failure.kind in (FailureKind.UNREACHABLE, FailureKind.OUT_OF_FILES):
                raise
            return ServerIdentity()  # some servers have no list, or a broken one
        except WebPage:  # a page for people, in place of a list
            return ServerIdentity()
        mine = [entry for entry in entries if self._model in _names(entry)]
        served = tuple(safe_excerpt(str(entry["id"]), self._caller.redactor, LONGEST_NAME) for entry in entries)
        if entries and not mine:
            await self._require_answer(url, served)
        self._names.update(*map(_names, mine))
        if not any(entry.get("owned_by") == LLAMA_OWNER for entry in mine or entries):
            return ServerIdentity(served)
        slots, defaults = await _llama_settings(self._caller, url)
        return ServerIdentity(served, True, slots, tuple(_cuts(self._sampling, defaults)))

    async def _require_answer(self, url: str, served: tuple[str, ...]) -> None:
        """Accept a server whose list lacks the model only if it answers, and names the answer after the model."""
        known = ", ".join(served[:NAMED]) + (f" and {len(served) - NAMED} more" if len(served) > NAMED else "")
        mend = "set `model` to one of these, or base_url to a server that does"
        rule = f"it does not serve {self._model!r} but {known}: {mend}"
        for pause in (*self._pauses, None):
            reply = await self._caller.ask(url, self._tiny)
            if reply.status == 200:
                break
            try:
                error_signal(reply.status, reply.body, reply.headers, redactor=self._caller.redactor)
                break
            except Refusal:
                if pause is None:
                    raise ModelNotServed(404, rule) from None
                await asyncio.sleep(pause)
        named = _read_model_name(reply.payload)
        if named is None or not is_same_model(named, self._model):
            shown = None if named is None else safe_excerpt(named, self._caller.redactor, LONGEST_NAME)
            raise ModelNotServed(404, f"{rule} (it answers any name, and calls this answer {shown!r})")
