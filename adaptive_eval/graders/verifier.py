"""The verifier: a language model whose next token says whether an answer is correct, wrong or invalid (paper, D.1).

A server returns log-probabilities of only the most likely tokens. The probability of any other label is at most that of
the least likely of these, and at most the remaining probability; this bound is used. It makes the calibrated
probabilities uncertain to a known degree. If that is too much, there is no grade.
"""

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import product
from typing import ClassVar, Literal, NamedTuple

from pydantic import field_validator

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.sections import config_error
from adaptive_eval.endpoints.types import Sampling
from adaptive_eval.graders.asked import USAGE_SIGNALS, AskedGrader, GraderSampling, GraderServer, Vote
from adaptive_eval.graders.keyed import KEYED_GRADERS, KeyedKind
from adaptive_eval.graders.transcript import GradingForm, Transcript
from adaptive_eval.graders.types import GraderOptions, Marks, SignalValue
from adaptive_eval.questions.types import Question

LABELS = ("A", "B", "C")
VERDICTS = ("correct", "wrong", "invalid")
"""The `verdict` of each label."""
LABEL_DESCRIPTIONS = (
    "it says what the reference answer says, in whatever form",
    "it says something else than the reference answer",
    "it is cut off, repeats itself, refuses, or is no answer to the question",
)
NO_CONTENT = "N/A"
"""Replaces question, reference and answer in the request without content."""
FORM = GradingForm(options=tuple(zip(LABELS, LABEL_DESCRIPTIONS, strict=True)), what="labels")
TEMPERATURE = 1.0
"""T in softmax((s - b) / T)."""
TOP_LOGPROBS = "top_logprobs"
TOP_TOKENS = 20
"""Number of most likely tokens to request: the maximum that servers allow."""


class Verifier(AskedGrader):
    """A language model whose next token gives the probabilities that an answer is correct (A), wrong (B), invalid (C).

    Signals: `verifier_a`, `verifier_b`, `verifier_c`, `verdict` (the most likely of correct, wrong and invalid),
    `is_correct`, `has_answer`, `verifier_open` (the uncertainty due to tokens that the server did not list), the usage
    as for a judge, and the signals of `key_grader`. An empty answer is invalid without a request. The server must
    support log-probabilities.
    """

    kind: Literal["verifier"] = "verifier"
    sampling: GraderSampling = GraderSampling(temperature=1.0, max_tokens=1)
    """Sampling parameters of its reply of one token; servers divide log-probabilities by `temperature`."""
    key_grader: KeyedKind | None = None
    """A grader that compares with the answer key. Its signals, such as `is_correct` and `has_box`, replace the
    verifier's."""
    votes: ClassVar[int] = 1  # type: ignore[misc]

    @field_validator("server")
    @classmethod
    def _check_server(cls, servers: tuple[GraderServer, ...]) -> tuple[GraderServer, ...]:
        if len(servers) > 1:
            raise config_error("must be a single server for a verifier", "remove the others, or write kind: judge")
        return servers

    @field_validator("sampling")
    @classmethod
    def _check_top_logprobs(cls, sampling: GraderSampling) -> GraderSampling:
        shown = sampling.extra_body.get(TOP_LOGPROBS, TOP_TOKENS)
        if not isinstance(shown, int) or shown < len(LABELS):
            raise config_error(
                "must request at least three tokens", f"set extra_body.{TOP_LOGPROBS} to 3 to 20, or remove it"
            )
        return sampling

    @property
    def keyed(self) -> GraderOptions | None:
        """The `key_grader` with its default options."""
        return None if self.key_grader is None else KEYED_GRADERS[self.key_grader]()

    @property
    def gives(self) -> frozenset[str]:
        names = frozenset({*self._marks(INVALID).signals, *USAGE_SIGNALS})
        return names if self.keyed is None else names | self.keyed.gives

    def key_problem(self, question: Question) -> str | None:
        return None if self.keyed is None else self.keyed.key_problem(question)

    @property
    def form(self) -> GradingForm:
        return FORM

    @property
    def may_be_structured(self) -> bool:
        return False

    def reply_sampling(self, *, structured: bool) -> Sampling:
        """The sampling settings of its reply: one token, with the log-probabilities of the most likely tokens."""
        body = {TOP_LOGPROBS: TOP_TOKENS, **self.sampling.extra_body}
        return Sampling(**self.sampling.model_dump() | {"max_tokens": 1, "logprobs": True, "extra_body": body})

    def reply_instructions(self, number: str, *, structured: bool) -> str:
        return f"Reply with one letter, {', '.join(LABELS[:-1])} or {LABELS[-1]}, and with nothing else."

    @property
    def content_free(self) -> Transcript:
        """The request without content; its scores are subtracted."""
        return self.transcript(Question("", NO_CONTENT, NO_CONTENT), NO_CONTENT)

    @property
    def asked_as(self) -> str:
        """Digest of the settings that determine the scores of the request without content."""
        sent = self.content_free
        sampling = self.reply_sampling(structured=False)
        answered = sampling.model_copy(update={"extra_body": dict(sampling.answer_body)})
        sampled = answered.model_dump_json(exclude_defaults=True)
        settings = "\0".join((self.host.model, sent.system, sent.user, sampled))
        return blake2b(settings.encode(), digest_size=16).hexdigest()

    def make_signals(self, verdict: str) -> dict[str, SignalValue]:
        """Signals of an answer with this verdict from a certain verifier."""
        return _label_signals([float(name == verdict) for name in VERDICTS])

    def decided(self, question: Question, answer: str) -> Marks | None:
        return None if answer.strip() else self._marks(INVALID)

    def decide(self, votes_by_server: Sequence[Sequence[Vote]], baseline: Sequence[float] = ()) -> Marks:
        (((reply,),),) = votes_by_server
        answer = reply.received()
        if "timed_out" in answer.signals:
            raise GraderError("the verifier's reply timed out")
        return self._marks(verifier_opinion(label_scores(answer.slot, LABELS), baseline))

    def _marks(self, opinion: "Opinion") -> Marks:
        probabilities, uncertainty = opinion
        signals = {**_label_signals(probabilities), "verifier_open": uncertainty}
        return Marks(signals, str(signals["verdict"]))


def _label_signals(probabilities: Sequence[float]) -> dict[str, SignalValue]:
    likeliest = VERDICTS[max(range(len(LABELS)), key=probabilities.__getitem__)]
    named = {f"verifier_{label.lower()}": value for label, value in zip(LABELS, probabilities, strict=True)}
    return {
        **named,
        "verdict": likeliest,
        "is_correct": likeliest == VERDICTS[0],
        "has_answer": likeliest != VERDICTS[2],
    }


Opinion = tuple[tuple[float, ...], float]
"""The probability of each label, and their largest error due to labels that the server did not show."""
INVALID: Opinion = ((0.0, 0.0, 1.0), 0.0)
"""The result for an empty answer, for which no request is sent."""


Slot = Sequence[tuple[str, float]]
"""Candidates for the first token of a reply, with natural log-probabilities."""
MIN_LABEL_SHARE = 0.1
"""Minimum total probability of the labels; with less, the reply is not a label."""
MAX_UNCERTAINTY = 0.05
"""Maximum uncertainty of a probability due to labels that the server did not show."""
ROUNDING_SLACK = 1e-3
"""Maximum rounding error by which log-probabilities may exceed 0, or sums of probabilities 1."""
MIN_REMAINDER = 1e-12
LOG_ZERO = -1e4
"""Stands for log 0; far below any log-probability of a token."""
_SPACES = " \t\n▁Ġ"
"""Whitespace around a label, including space markers of tokenizers."""


class LabelScores(NamedTuple):
    """The log-probability of each label, or its upper bound for `unseen` ones."""

    values: tuple[float, ...]
    unseen: frozenset[int] = frozenset()

    @property
    def share(self) -> float:
        """The total probability of the labels that the server showed."""
        return sum(math.exp(value) for at, value in enumerate(self.values) if at not in self.unseen)


def label_scores(slot: Slot, labels: Sequence[str]) -> LabelScores:
    """The scores of labels at a slot; raises `GraderError` if it has no label, or no log-probabilities."""
    shown = _unique_tokens(slot)
    total = sum(math.exp(value) for value in shown.values())
    if not shown or max(shown.values()) > ROUNDING_SLACK or total > 1.0 + ROUNDING_SLACK * len(shown):
        raise GraderError("the server returned no log-probabilities for the answer token")
    bound = min(min(shown.values()), math.log(max(1.0 - total, MIN_REMAINDER)))
    values_by_label = [[value for token, value in shown.items() if token.strip(_SPACES) == label] for label in labels]
    if not any(values_by_label):
        likeliest = max(shown, key=lambda token: shown[token])
        raise GraderError(f"the verifier must reply with one of {', '.join(labels)}, but replied {likeliest!r:.40}")
    unseen = frozenset(at for at, values in enumerate(values_by_label) if not values)
    return LabelScores(tuple(_log_sum(values) if values else bound for values in values_by_label), unseen)


def label_probabilities(scores: LabelScores, baseline: Sequence[float]) -> Opinion:
    """The calibrated probabilities, with their uncertainty."""
    from scorio.categorical.signals import calibrate_verifier  # loads numpy, which grading processes do not need

    def at(values: Sequence[float]) -> tuple[float, ...]:
        calibrated = calibrate_verifier(list(values), list(baseline), TEMPERATURE)
        return tuple(float(value) for value in calibrated)

    probabilities = at(scores.values)
    ends = [(value, LOG_ZERO) if index in scores.unseen else (value,) for index, value in enumerate(scores.values)]
    # each probability is monotonic in each score, so its extremes are among the corners
    corners = [at(corner) for corner in product(*ends)] if scores.unseen else [probabilities]
    return probabilities, max(max(values) - min(values) for values in zip(*corners, strict=True))


def _unique_tokens(slot: Slot) -> Mapping[str, float]:
    """The log-probability of each token; a server may list the sampled token twice."""
    shown: dict[str, float] = {}
    for token, value in slot:
        if math.isfinite(value):
            shown[token] = max(shown.get(token, LOG_ZERO), value)
    return shown


def _log_sum(values: Sequence[float]) -> float:
    """Log of the sum of probabilities: a label may occur with and without a space."""
    largest = max(values)
    return largest + math.log(sum(math.exp(value - largest) for value in values))


def verifier_opinion(scores: LabelScores, baseline: Sequence[float]) -> Opinion:
    """The calibrated probabilities; raises `GraderError` if the server's tokens do not determine them."""
    if scores.share < MIN_LABEL_SHARE:
        labels = f"{', '.join(LABELS[:-1])} and {LABELS[-1]}"
        raise GraderError(f"the verifier's reply is probably not a label: {labels} together have {scores.share:.1%}")
    probabilities, uncertainty = label_probabilities(scores, baseline)
    if uncertainty > MAX_UNCERTAINTY:
        unseen = ", ".join(LABELS[at] for at in sorted(scores.unseen))
        raise GraderError(
            f"the server's most likely tokens do not include {unseen}, so the probabilities are uncertain by "
            f"{uncertainty:.2f}; use a server that shows more tokens"
        )
    return probabilities, uncertainty
