"""The verifier: a language model whose next token says whether an answer is correct, wrong or invalid (paper, D.1).

A server gives log-probabilities of only the likeliest tokens. A label that is not among them is at most as likely as
the least likely of these, and as all remaining probability: it counts as likely as this bound. The resulting
uncertainty of the calibrated probabilities is known, and if it is too large there is no grade.
"""

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import product
from typing import Literal, NamedTuple

from pydantic import field_validator

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.sections import refuse
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Sampling
from adaptive_eval.graders.asked import USED, AskedGrader, GraderSampling, GraderServer, ReplyUse, usage_signals
from adaptive_eval.graders.keyed import KEYED_GRADERS, KeyedKind
from adaptive_eval.graders.transcript import ShownTexts, Transcript, make_transcript, verifying_words
from adaptive_eval.graders.types import GraderOptions, Marks, SignalValue
from adaptive_eval.questions.types import Question

LABELS = ("A", "B", "C")
CALLED = ("correct", "wrong", "invalid")
"""The `verdict` of each label."""
SAYS = (
    "it says what the reference answer says, in whatever form",
    "it says something else than the reference answer",
    "it is cut off, repeats itself, refuses, or is no answer to the question",
)
NOTHING = "N/A"
"""Replaces question, reference and answer in the request without content."""
TEMPERATURE = 1.0
"""T of softmax((s - b) / T)."""
TOP_LOGPROBS = "top_logprobs"
SHOWN_TOKENS = 20
"""How many of the likeliest tokens a server is asked to show: the most that servers allow."""


class Verifier(AskedGrader):
    """A language model whose next token gives the probabilities that an answer is correct (A), wrong (B), invalid (C).

    Signals: `verifier_a`, `verifier_b`, `verifier_c`, `verdict` (correct, wrong or invalid: the likeliest),
    `is_correct`, `has_answer`, `verifier_open` (the uncertainty due to tokens that the server did not list), usage as
    of a judge, and those of `key_grader`. An empty answer is invalid, without a request. Its server must support
    log-probabilities.
    """

    kind: Literal["verifier"] = "verifier"
    sampling: GraderSampling = GraderSampling(temperature=1.0, max_tokens=1)
    """Sampling parameters of its reply, which is one token; servers divide log-probabilities by `temperature`."""
    key_grader: KeyedKind | None = None
    """A grader by answer key, whose signals, such as `is_correct` and `has_box`, replace the verifier's."""

    @field_validator("server")
    @classmethod
    def _check_one(cls, servers: tuple[GraderServer, ...]) -> tuple[GraderServer, ...]:
        if len(servers) > 1:
            raise refuse("of a verifier is a single one", "remove the others, or write kind: judge")
        return servers

    @field_validator("sampling")
    @classmethod
    def _check_shown(cls, sampling: GraderSampling) -> GraderSampling:
        shown = sampling.extra_body.get(TOP_LOGPROBS, SHOWN_TOKENS)
        if not isinstance(shown, int) or shown < len(LABELS):
            raise refuse("must show three tokens", f"remove extra_body.{TOP_LOGPROBS}, or set it to 3 to 20")
        return sampling

    @property
    def keyed(self) -> GraderOptions | None:
        """The grader by answer key, with its default options."""
        return None if self.key_grader is None else KEYED_GRADERS[self.key_grader]()

    @property
    def slot_sampling(self) -> Sampling:
        """The sampling settings of its reply: one token, with the log-probabilities of the likeliest ones."""
        body = {TOP_LOGPROBS: SHOWN_TOKENS, **self.sampling.extra_body}
        return Sampling(**{**self.sampling.given, "max_tokens": 1, "logprobs": True, "extra_body": body})

    @property
    def gives(self) -> frozenset[str]:
        probabilities = {f"verifier_{label.lower()}" for label in LABELS}
        said = {*probabilities, "verifier_open", "verdict", "is_correct", "has_answer", *USED}
        return frozenset(said) | (frozenset() if self.keyed is None else self.keyed.gives)

    def key_problem(self, question: Question) -> str | None:
        return None if self.keyed is None else self.keyed.key_problem(question)

    def transcript(self, question: Question, answer: str) -> Transcript:
        """The request to the verifier about one answer."""
        words = verifying_words(tuple(zip(LABELS, SAYS, strict=True)), self.criteria)
        shown = ShownTexts(question.prompt, question.answer, {"answer": answer})
        return make_transcript(shown, words=words, criteria=self.criteria, template=self.template, longest=self.longest)

    @property
    def content_free(self) -> Transcript:
        """The request without content, whose scores are subtracted."""
        return self.transcript(Question("", NOTHING, NOTHING), NOTHING)

    @property
    def asked_as(self) -> str:
        """Digest of the settings on which the scores of the request without content depend."""
        sent = self.content_free
        sampled = self.seats[0].slot_sampling.model_dump_json(exclude_defaults=True)
        told = "\0".join((self.host.model, sent.system, sent.user, sampled))
        return blake2b(told.encode(), digest_size=16).hexdigest()

    def make_signals(self, label: str) -> dict[str, SignalValue]:
        """Signals of an answer with this verdict from a verifier that is certain and makes no errors."""
        sure = {f"verifier_{one.lower()}": float(called == label) for one, called in zip(LABELS, CALLED, strict=True)}
        return {**sure, "verdict": label, "is_correct": label == CALLED[0], "has_answer": label != CALLED[2]}

    def marks(self, found: "Opinion", keyed: Marks | None, used: Cost, replies: ReplyUse) -> Marks:
        """The signals of label probabilities, with those of `key_grader`."""
        probabilities, left_open = found
        likeliest = CALLED[max(range(len(LABELS)), key=probabilities.__getitem__)]
        said: dict[str, SignalValue] = {
            f"verifier_{label.lower()}": value for label, value in zip(LABELS, probabilities, strict=True)
        }
        said |= {"verifier_open": left_open, "verdict": likeliest}
        said |= {"is_correct": likeliest == CALLED[0], "has_answer": likeliest != CALLED[2]}
        extracted: str | None = likeliest
        if keyed is not None:
            said |= keyed.signals
            extracted = keyed.extracted
        return Marks({**said, **usage_signals(used, replies)}, extracted)


Opinion = tuple[tuple[float, ...], float]
"""The probability of each label, and their largest error because of labels that the server did not show."""
INVALID: Opinion = ((0.0, 0.0, 1.0), 0.0)
"""The result for an empty answer, about which the verifier is not asked."""


Slot = Sequence[tuple[str, float]]
"""Candidates for the first token of a reply, with natural log-probabilities."""
LEAST_SHARE = 0.1
"""Least total probability of the labels: with less, the reply is something else than a label."""
MOST_OPEN = 0.05
"""Largest uncertainty of a probability that unseen labels may cause."""
ABOVE_ZERO = 1e-3
"""How far rounding may raise a log-probability above zero, or a sum of probabilities above one."""
NOTHING_LEFT = 1e-12
IMPOSSIBLE = -1e4
"""Far below any log-probability of a token."""
_SPACES = " \t\n▁Ġ"
"""Whitespace around a label, including the spaces of tokenizer vocabularies."""


class LabelScores(NamedTuple):
    """The log-probability of each label, or its upper bound for `unseen` ones."""

    values: tuple[float, ...]
    unseen: frozenset[int] = frozenset()

    @property
    def share(self) -> float:
        """The total probability of the seen labels."""
        return sum(math.exp(value) for at, value in enumerate(self.values) if at not in self.unseen)


def label_scores(slot: Slot, labels: Sequence[str]) -> LabelScores:
    """The scores of labels at a slot; raises `GraderError` if it has no label, or no log-probabilities."""
    shown = _unique_tokens(slot)
    total = sum(math.exp(value) for value in shown.values())
    if not shown or max(shown.values()) > ABOVE_ZERO or total > 1.0 + ABOVE_ZERO * len(shown):
        raise GraderError("the server gives no log-probabilities at the answer slot")
    bound = min(min(shown.values()), math.log(max(1.0 - total, NOTHING_LEFT)))
    found = [[value for token, value in shown.items() if token.strip(_SPACES) == label] for label in labels]
    if not any(found):
        likeliest = max(shown, key=lambda token: shown[token])
        raise GraderError(f"the verifier replied with none of {', '.join(labels)}, but with {likeliest!r:.40}")
    unseen = frozenset(at for at, ways in enumerate(found) if not ways)
    return LabelScores(tuple(_log_sum(ways) if ways else bound for ways in found), unseen)


def label_probabilities(scores: LabelScores, baseline: Sequence[float]) -> Opinion:
    """The calibrated probabilities."""
    from scorio.categorical.signals import calibrate_verifier  # loads numpy, which grading processes do not need

    def at(values: Sequence[float]) -> tuple[float, ...]:
        found = calibrate_verifier(list(values), list(baseline), TEMPERATURE)
        return tuple(float(value) for value in found)

    told = at(scores.values)
    ends = [(value, IMPOSSIBLE) if one in scores.unseen else (value,) for one, value in enumerate(scores.values)]
    # each probability is monotonic in each score, so its extremes are among the corners
    corners = [at(corner) for corner in product(*ends)] if scores.unseen else [told]
    return told, max(max(each) - min(each) for each in zip(*corners, strict=True))


def _unique_tokens(slot: Slot) -> Mapping[str, float]:
    """The log-probability of each token, without duplicates: the sampled token may be listed twice."""
    shown: dict[str, float] = {}
    for token, value in slot:
        if math.isfinite(value):
            shown[token] = max(shown.get(token, IMPOSSIBLE), value)
    return shown


def _log_sum(values: Sequence[float]) -> float:
    """Add probabilities given as logarithms: a label may be written with a space and without."""
    most = max(values)
    return most + math.log(sum(math.exp(value - most) for value in values))


def verifier_opinion(scores: LabelScores, baseline: LabelScores) -> Opinion:
    """The calibrated probabilities; raises `GraderError` if the server's tokens do not determine them."""
    if scores.share < LEAST_SHARE:
        labels = f"{', '.join(LABELS[:-1])} and {LABELS[-1]}"
        raise GraderError(f"the verifier replied with something else: {labels} have {scores.share:.1%} together")
    probabilities, left_open = label_probabilities(scores, baseline.values)
    if left_open > MOST_OPEN:
        unseen = ", ".join(LABELS[at] for at in sorted(scores.unseen))
        raise GraderError(
            f"the likeliest tokens that the server shows are without {unseen}, which leaves the probabilities open by "
            f"{left_open:.2f}; use a server that shows more tokens"
        )
    return probabilities, left_open
