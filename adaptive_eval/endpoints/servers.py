"""Identifies servers before use: whether they serve the model, and settings of their own that affect answers.

llama-server accepts any model name and answers with its own model, so the list of models decides; if the name is not on
it, the name in an answer decides. By default llama-server also drops improbable tokens, and it counts the tokens of
only one answer if there are several (`wire`).
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from adaptive_eval.base.json_objects import as_object, objects_in
from adaptive_eval.base.lists import first_few
from adaptive_eval.endpoints.client import Caller
from adaptive_eval.endpoints.failures import (
    Failure,
    FailureKind,
    ModelNotServed,
    Refusal,
    WebPage,
    error_signal,
    safe_excerpt,
)
from adaptive_eval.endpoints.parsing import Reply
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.endpoints.types import EndpointConfig, Notice, Sampling

LLAMA_OWNER = "llamacpp"
"""Owner of its models as reported by llama-server."""
LLAMA_CUTS = {"top_k": 40, "top_p": 0.95, "min_p": 0.05}
"""Its default truncation of the distribution; `/props` has the actual values."""
NO_LIST_STATUSES = frozenset({404, 405, 501})
"""Statuses returned by a server without a list of models."""
MAX_LISTED = 10
"""Maximum names in a message and notices of a kind, for servers whose values keep changing."""
_DATED = re.compile(r"(?:[-_@:.]?(?:\d{2,}|latest|preview|free))*|\.gguf")


class ServerIdentity(NamedTuple):
    """Facts that a server reports about itself."""

    llama: bool = False
    notices: tuple[Notice, ...] = ()


def model_entries(reply: Reply) -> list[dict[str, Any]]:
    """Entries of the list of models; empty if the server has no list."""
    return [entry for entry in objects_in(as_object(reply.payload).get("data")) if "id" in entry]


def _names(entry: dict[str, Any]) -> set[str]:
    aliases = entry.get("aliases")
    return {str(entry["id"]), *(map(str, aliases) if isinstance(aliases, list) else ())}


def _read_model_name(payload: object) -> str | None:
    """The model name in a response; None if it has none."""
    name = as_object(payload).get("model")
    return name if isinstance(name, str) else None


def is_same_model(answer_name: str, requested_name: str) -> bool:
    """Whether two names mean the same model: one may have a version (`m` and `m-2026-01-01`) or a folder prefix."""
    short, long = sorted((name.rpartition("/")[2].lower() for name in (answer_name, requested_name)), key=len)
    return bool(short) and long.startswith(short) and not long[len(short) : len(short) + 1].isalnum()


def is_dated(answer_name: str, requested_name: str) -> bool:
    """Whether names differ only by a date or build, as an alias and its target do."""
    names = (name.rpartition("/")[2].lower().removesuffix("-latest") for name in (answer_name, requested_name))
    short, long = sorted(names, key=len)
    return long.startswith(short) and _DATED.fullmatch(long[len(short) :]) is not None


async def _llama_settings(caller: Caller, base_url: str) -> dict[str, Any]:
    """Default sampling settings of a llama-server; its usual ones if it does not report them."""
    try:
        props = orjson.loads(await caller.fetch_outside_api(base_url, "/props"))
    except (Failure, orjson.JSONDecodeError):
        props = {}
    params = as_object(as_object(as_object(props).get("default_generation_settings")).get("params"))
    return {key: _number(params.get(key), cut) for key, cut in LLAMA_CUTS.items()}


def _cuts(sampling: Sampling, defaults: Mapping[str, Any]) -> Iterator[Notice]:
    """A notice if the server drops improbable tokens because of settings that the user has not chosen."""
    off = {"top_k": 0, "top_p": 1, "min_p": 0}
    chosen = {key for key in off if getattr(sampling, key) is not None or key in sampling.extra_body}
    active = {key: defaults[key] for key in off if key not in chosen and defaults[key] != off[key]}
    if active and sampling.temperature != 0:
        current = ", ".join(
            f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in active.items()
        )
        hint = ", ".join(f"{key}: {off[key]}" for key in active)
        text = (
            f"its server is llama.cpp, which drops improbable tokens by default ({current}). This can "
            f"change scores by several points. Set {hint} to sample as vLLM does, or set these values if you want them"
        )
        yield Notice("server_defaults", text)


def _number(value: object, default: float) -> float:
    """The value if it is a number, else the default."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


class AnswerNames:
    """The names that answers of a model have for it, which show whether another model answers."""

    def __init__(self, model: str, redactor: Redactor, note: Callable[[Notice], None]) -> None:
        self._model, self._redactor, self._note = model, redactor, note
        self.own = {model}
        """Names of the model on its servers (aliases included)."""
        self._seen: set[str] = set()

    def check(self, payload: object) -> None:
        """Check the model name in a response."""
        name = _read_model_name(payload)
        if name in self.own:
            name = self._model
        if name is None or name in self._seen or len(self._seen) >= MAX_LISTED:
            return
        name = safe_excerpt(name, self._redactor)
        if name in self._seen:
            return
        if self._seen:
            others = ", ".join(map(repr, sorted(self._seen)))
            self._note(Notice("renamed", f"some answers name the model {name!r}, others {others}: was it replaced?"))
        elif not is_dated(name, self._model):
            self._note(Notice("named", f"its answers name the model {name!r}, but {self._model!r} was requested"))
        self._seen.add(name)


class IdentifiedServers:
    """The servers of one model; each is identified before its first request, and again after an outage."""

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
        """Pauses before a refused request is repeated, since one refusal may be an accident."""
        self._caller, self._sampling, self._tiny = caller, sampling, tiny
        self._model = config.model
        self._identifications: dict[str, asyncio.Task[ServerIdentity]] = {}
        self.answer_names = AnswerNames(config.model, caller.redactor, self.note)
        self._notices: dict[Notice, None] = {}

    async def identify(self, url: str) -> ServerIdentity:
        """The server's identity; concurrent callers share one identification."""
        task = self._identifications.get(url)
        if task is None:
            task = self._identifications[url] = asyncio.create_task(self._identify_once(url))
        return await asyncio.shield(task)

    def forget(self, url: str) -> None:
        """Identify a server again after an outage, since it may be another one."""
        if (task := self._identifications.get(url)) is not None and task.done():
            del self._identifications[url]

    def note(self, notice: Notice) -> None:
        """Add a notice about the model's servers, once."""
        if sum(other.kind == notice.kind for other in self._notices) < MAX_LISTED:
            self._notices.setdefault(notice)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """The notices so far."""
        return tuple(self._notices)

    async def close(self) -> None:
        """Cancel all identifications."""
        tasks = list(self._identifications.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _identify_once(self, url: str) -> ServerIdentity:
        try:
            server = await self._ask(url)
        except (Failure, ModelNotServed):  # it may serve the model later
            del self._identifications[url]
            raise
        for notice in server.notices:
            self.note(notice)
        return server

    async def _ask(self, url: str) -> ServerIdentity:
        """Ask a server for its models; raises `ModelNotServed` if it serves others, `Failure` if it is unreachable."""
        try:
            reply = await self._caller.models(url)
            if reply.status >= 300 and reply.status not in NO_LIST_STATUSES:
                await asyncio.sleep(self._pauses[0])
                reply = await self._caller.models(url)
            entries = model_entries(reply)
        except Failure as failure:
            if failure.kind is FailureKind.UNREACHABLE:
                raise
            return ServerIdentity()  # some servers have no list, or a broken one
        except WebPage:  # a web page instead of a list
            return ServerIdentity()
        matching = [entry for entry in entries if self._model in _names(entry)]
        if entries and not matching:
            await self._require_answer(
                url, [safe_excerpt(str(entry["id"]), self._caller.redactor) for entry in entries]
            )
        self.answer_names.own.update(*map(_names, matching))
        if not any(entry.get("owned_by") == LLAMA_OWNER for entry in matching or entries):
            return ServerIdentity()
        return ServerIdentity(True, tuple(_cuts(self._sampling, await _llama_settings(self._caller, url))))

    async def _require_answer(self, url: str, served: Sequence[str]) -> None:
        """Accept a server whose list lacks the model only if its answer names the model."""
        hint = "set `model` to one of these, or base_url to another server"
        problem = f"its server has no model {self._model!r}, only {first_few(served, MAX_LISTED)}: {hint}"
        for pause in (*self._pauses, None):
            reply = await self._caller.ask(url, self._tiny)
            if reply.status == 200:
                break
            try:
                error_signal(reply.status, reply.body, reply.headers, redactor=self._caller.redactor)
                break
            except Refusal:
                if pause is None:
                    raise ModelNotServed(404, problem) from None
                await asyncio.sleep(pause)
        answer_name = _read_model_name(reply.payload)
        if answer_name is None or not is_same_model(answer_name, self._model):
            safe_name = None if answer_name is None else safe_excerpt(answer_name, self._caller.redactor)
            raise ModelNotServed(404, f"{problem} (it accepts any name, and its answer names {safe_name!r})")
