"""Reads Inspect logs: `.eval` (a zip of samples) and the older JSON, including unfinished ones.

An unfinished log has start.json in its journal instead of header.json, and the samples written so far. If only the
journal's summaries exist, the trials have scores but no texts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer, Signal
from adaptive_eval.exchange.log_files import MOST_BYTES, Archive, LogFile
from adaptive_eval.exchange.samples import (
    NOT_LOGGED,
    SEVERAL_ANSWERS,
    LoggedQuestion,
    LoggedSettings,
    Record,
    finite_number,
    known_sampling,
    logged_answer,
    mapping,
    sequence,
    single_prompt,
    value_of_score,
    whole_number,
)
from adaptive_eval.questions.benchmark import BENCHMARK_OF_RUN, MODEL_OF_RUN, parse_sample_name
from adaptive_eval.questions.load import as_text

Sample = Mapping[str, Any]

ATTACHED = "attachment://"
"""Beginning of a text that stands for an attachment."""
MAX_ATTACHED_CHARACTERS = 4 * MOST_BYTES
"""Limit on the attachments in the messages of a sample, since each may be referred to a million times."""

STOP_REASONS = {"max_tokens": "length", "model_length": "length"}
LIMITS: Mapping[str, Signal] = {
    "token": "truncated",
    "context": "context_length",
    "time": "timed_out",
    "working": "timed_out",
}
SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "stop_seqs": "stop",
}
IN_BODY = ("frequency_penalty", "presence_penalty", "reasoning_effort")
GRADERS = {"choice": "choice", "exact": "exact", "includes": "contains", "math": "math"}
SERVICES = {"openai", "vllm", "sglang", "ollama", "together", "openrouter", "hf", "groq", "mistral", "grok", "mockllm"}
"""Prefixes that Inspect puts before the name sent to a server."""


def _grader(scorer: Mapping[str, Any]) -> str | None:
    """The kind of our grader that is closest to a scorer."""
    name = as_text(scorer.get("name")).rpartition("/")[2]
    numeric = name == "match" and mapping(scorer.get("options")).get("numeric") is True
    return "numeric" if numeric else GRADERS.get(name)


class SampleReader:
    """Converts the samples of a log to records."""

    def __init__(self, file: LogFile, header: object) -> None:
        self._file = file
        spec = mapping(mapping(header).get("eval"))
        if not isinstance(spec.get("model"), str):
            raise file.refuse("has no model (eval.model): it is not an Inspect log, or is damaged")
        self._model: str = spec["model"]
        self._task = as_text(spec.get("task"))
        of_run = mapping(spec.get("metadata"))
        self._of_run = MODEL_OF_RUN in of_run
        """Whether a run requested the samples, so that their ids name the trials."""
        self._name = as_text(of_run.get("model")) if self._of_run else self._model
        benchmark = as_text(of_run.get(BENCHMARK_OF_RUN)) if self._of_run else ""
        self._scorer = file.scorer or file.scorers.get(benchmark)
        """The score that counts; None if there is only one."""
        plan = mapping(mapping(header).get("plan"))
        config = {**mapping(plan.get("config")), **mapping(spec.get("model_generate_config"))}
        scorers = sequence(spec.get("scorers"))
        self._settings = LoggedSettings(
            served=_served_name(self._model),
            sampling=known_sampling(
                {ours: config[theirs] for theirs, ours in SAMPLING.items() if config.get(theirs) is not None}
                | {"extra_body": {name: config[name] for name in IN_BODY if config.get(name) is not None}}
            ),
            grader=_grader(mapping(scorers[0])) if len(scorers) == 1 else None,
        )

    def record(self, sample: object, place: str) -> Record:
        """Convert a sample, or its summary."""
        fields = mapping(sample)
        epoch = whole_number(fields.get("epoch"))
        if not isinstance(fields.get("id"), str | int) or epoch is None or epoch < 1:
            raise self._file.refuse("is not a sample: it must have an id, and an epoch from 1 on", place)
        if self._file.graded_anew and isinstance(fields.get("target"), list) and len(fields["target"]) > 1:
            raise self._file.refuse(SEVERAL_ANSWERS, place)
        if _attached_size(fields) > MAX_ATTACHED_CHARACTERS:
            raise self._file.refuse("refers to its attachments too often; no harness writes such a log", place)
        prompt, system = _conversation(fields)
        scorer, score = self._score(fields, place)
        value = value_of_score(score.get("value"))
        answer, cost = _answer(fields, self._model)
        if answer is not None and self._of_run:
            answer = replace(answer, seed=_seed(fields, self._model))
        extracted = score.get("answer")
        asked = LoggedQuestion(
            prompt, _target(fields.get("target")), tuple(map(as_text, sequence(fields.get("choices"))))
        )
        settings = self._settings if system is None else self._settings._replace(system=system)
        named = parse_sample_name(as_text(fields["id"])) if self._of_run else None
        question, trial = (as_text(fields["id"]), epoch - 1) if named is None else named
        uuid = fields["uuid"] if isinstance(fields.get("uuid"), str) else None
        return Record(
            place=place,
            model=self._file.name_model(self._name),
            question=question,
            trial=trial,
            task=self._task,
            asked=asked,
            settings=settings,
            answer=answer,
            has_text=answer is not None,
            value=value,
            scorer=scorer,
            signals={"has_answer": False} if score.get("value") == "N" else {},
            extracted=None if extracted is None else as_text(extracted),
            grader_error=None if value is not None else _ungraded(score),
            cost=cost,
            missing=_missing(fields),
            identity=uuid if named is None else str(self._file.path.parent),  # a killed run asks for a trial again
            of_task=named is not None,
        )

    def _score(self, sample: Sample, place: str) -> tuple[str | None, Mapping[str, Any]]:
        """The only score, or that of the chosen scorer (`scorer.key` for one of several values), after its name; empty
        without one."""
        scores: dict[str, Mapping[str, Any]] = {}
        for name, score in mapping(sample.get("scores")).items():
            parsed = mapping(score)
            parts = mapping(parsed.get("value"))
            scores |= {f"{name}.{key}": {**parsed, "value": part} for key, part in parts.items()}
            if not parts:
                scores[name] = parsed
        scorer = self._scorer
        if scorer is not None and scores and scorer not in scores:
            raise self._file.refuse(f"has no score {scorer!r}, but {', '.join(scores)}", place)
        if scorer is None and len(scores) > 1:
            if self._file.graded_anew:
                return None, {}  # it is unknown which one counts, and irrelevant
            raise self._file.refuse(f"has several scores ({', '.join(scores)}); choose one with --scorer NAME", place)
        counted = next(iter(scores), None) if scorer is None else scorer
        return counted, scores.get(counted, {}) if counted is not None else {}


def _ungraded(score: Mapping[str, Any]) -> str:
    if "value" not in score:
        return "the log has no score"
    return f"the log's score is {as_text(score['value']):.80}, which is not a number"


def _missing(sample: Sample) -> str | None:
    """Why there is no outcome: the sample failed, or was declared void."""
    error = sample.get("error") or mapping(sample.get("output")).get("error")
    if error:
        return f"error: {as_text(mapping(error).get('message', error)):.200}"
    return "invalidated" if sample.get("invalidation") else None


def _conversation(sample: Sample) -> tuple[str, str | None]:
    """The model's first prompt and system message, or the sample's input for other conversations."""
    turns: list[tuple[object, str]] = []
    for message in map(mapping, sequence(sample.get("messages"))):
        if message.get("role") == "assistant":
            break
        turns.append((message.get("role"), _text(message.get("content"), sample)[0]))
    if (prompt := single_prompt(turns)) is not None:
        return prompt
    given = sample.get("input")
    if isinstance(given, str):
        return given, None
    users = [message for message in map(mapping, sequence(given)) if message.get("role") == "user"]
    return (_text(users[-1].get("content"), sample)[0] if users else ""), None


def _answer(sample: Sample, model: str) -> tuple[Answer | None, Cost]:
    """The answer and its cost; no answer for a summary, or for output without a choice."""
    output = mapping(sample.get("output"))
    usage = mapping(mapping(sample.get("model_usage")).get(model)) or mapping(output.get("usage"))
    prompt = sum(whole_number(usage.get(f"input_tokens{kind}")) or 0 for kind in ("", "_cache_read", "_cache_write"))
    completion = whole_number(usage.get("output_tokens")) or 0
    cost = Cost(prompt + completion, finite_number(usage.get("total_cost")) or 0.0)
    choices = sequence(output.get("choices"))
    if not choices:
        return None, cost
    choice = mapping(choices[0])
    text, reasoning = _text(mapping(choice.get("message")).get("content"), sample)
    reason = as_text(choice.get("stop_reason")) or "unknown"
    limit = LIMITS.get(as_text(mapping(sample.get("limit")).get("type")))
    answer = logged_answer(
        text,
        finish_reason=STOP_REASONS.get(reason, reason),
        reasoning=reasoning,
        latency=finite_number(output.get("time")) or finite_number(sample.get("working_time")) or 0.0,
        prompt_tokens=prompt,
        completion_tokens=completion,
        used_tools=any(message.get("tool_calls") for message in map(mapping, sequence(sample.get("messages")))),
        more=frozenset() if limit is None else frozenset({limit}),
    )
    return answer, cost


def _seed(sample: Sample, model: str) -> int:
    """The seed that a run gave a sample: that of the first call of its model."""
    for event in map(mapping, sequence(sample.get("events"))):
        if event.get("event") == "model" and event.get("model") == model:
            seed = whole_number(mapping(event.get("config")).get("seed"))
            return NOT_LOGGED if seed is None else seed
    return NOT_LOGGED


def _text(content: object, sample: Sample) -> tuple[str, str | None]:
    """The text of a message and its reasoning."""
    if isinstance(content, str):
        return _attached(content, sample), None
    parts = list(map(mapping, sequence(content)))
    text = "".join(_attached(as_text(part.get("text")), sample) for part in parts if part.get("type") == "text")
    thoughts = [_attached(as_text(part.get("reasoning")), sample) for part in parts if part.get("type") == "reasoning"]
    return text, "\n".join(thoughts) if thoughts else None


def _attached_size(sample: Sample) -> int:
    """Characters of all attachments that texts of a sample refer to, counting repetitions."""
    choices = map(mapping, sequence(mapping(sample.get("output")).get("choices")))
    messages = [
        *map(mapping, sequence(sample.get("messages"))),
        *(mapping(choice.get("message")) for choice in choices),
    ]
    parts = (part for message in messages for part in map(mapping, sequence(message.get("content"))))
    texts = (part.get(kind) for part in parts for kind in ("text", "reasoning"))
    return sum(len(_attached(text, sample)) for text in texts if isinstance(text, str) and text.startswith(ATTACHED))


def _attached(text: str, sample: Sample) -> str:
    """The text, or the attachment that it refers to."""
    if not text.startswith(ATTACHED):
        return text
    return as_text(mapping(sample.get("attachments")).get(text.removeprefix(ATTACHED), text))


def _target(target: object) -> str:
    return "\n".join(map(as_text, target)) if isinstance(target, list) else as_text(target)


def _served_name(model: str) -> str:
    """The model's name without Inspect's prefix for the service."""
    service, _, name = model.partition("/")
    if service == "openai-api":
        return name.partition("/")[2] or model
    return name if name and service in SERVICES else model


START, HEADER = "_journal/start.json", "header.json"
SUMMARIES, JOURNAL, SAMPLES = "summaries.json", "_journal/summaries/", "samples/"


def is_inspect(archive: Archive) -> bool:
    """Whether a zip is an Inspect log."""
    return START in archive.names or HEADER in archive.names


def read_archive(file: LogFile, archive: Archive) -> Iterator[Record]:
    """Read the trials of an `.eval` log."""
    reader = SampleReader(file, archive.json(HEADER if HEADER in archive.names else START))
    names = [name for name in archive.names if name.startswith(SAMPLES) and name.endswith(".json")]
    for place, name in enumerate(names, start=1):
        file.share = place / len(names)
        yield reader.record(archive.json(name), name)
    if not names:
        for name, summary in _summaries(archive):
            yield reader.record(summary, name)


def _summaries(archive: Archive) -> Iterator[tuple[str, object]]:
    journal = sorted(name for name in archive.names if name.startswith(JOURNAL))
    for name in [SUMMARIES] if SUMMARIES in archive.names else journal:
        listed = archive.json(name)
        for place, summary in enumerate(listed if isinstance(listed, list) else [listed], start=1):
            yield f"{name}, sample {place}", summary


def read_json(file: LogFile, log: Mapping[str, Any]) -> Iterator[Record]:
    """Read the trials of a JSON log."""
    samples = sequence(log.get("samples"))
    if not samples:
        raise file.refuse("has no samples; it was written with log_samples off, or is not an Inspect log")
    reader = SampleReader(file, log)
    for place, sample in enumerate(samples, start=1):
        file.share = place / len(samples)
        yield reader.record(sample, f"sample {place}")
