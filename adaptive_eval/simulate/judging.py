"""A simulated judge and verifier with configurable error rates, which an answer may persuade.

They parse the transcript: the verdicts in the system message, and the texts between the numbered marks. An answer is
right if the number in its box is the reference; the verdict is drawn with the seed of the request, from the
probabilities for a right or a wrong answer.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist

from adaptive_eval.simulate.answering import hashed_integers, unit_float
from adaptive_eval.simulate.faults import parse_settings, require_shares

JUDGE = "judge"
VERIFIER = "verifier"
"""Model names on the server."""
LETTERS = ("A", "B", "C")
OTHERS = ("The", "**", "Answer", "I", "It", "Yes", "No", "1")
"""Other first tokens of a reply."""
OTHERS_SCORE = -7.0
_normal = NormalDist()
_MARKED = re.compile(r"<(question|reference|answer|first|second)-([0-9a-f]{16})>\n(.*?)\n</\1-\2>", re.DOTALL)
_LEVEL = re.compile(r"^- ([A-Za-z0-9][A-Za-z0-9 _-]*?)(?:: .*)?$", re.MULTILINE)
_CRITERION = re.compile(r"^- ([a-z][a-z0-9_]*) \(([^()]+)\)(?:: .*)?$", re.MULTILINE)
_LETTER = re.compile(r"^Reply with one letter", re.MULTILINE)
_LINE = re.compile(r"^([A-Z][A-Z0-9_]*-[0-9a-f]{16}): <(?:verdict|level)>", re.MULTILINE)
_OBJECT = re.compile(r"^Reply with one JSON object", re.MULTILINE)
_RULES_END = "What stands between"
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_NUMBER = re.compile(r"\b(\d{3})\b")
_CLAIM = re.compile(r"verdict\S*\s*:?\s*([A-Za-z]+)", re.IGNORECASE)


def marked_texts(prompt: str) -> dict[str, str]:
    """The texts between the numbered marks of a transcript, by the name of the mark."""
    return {match[1]: match[3] for match in _MARKED.finditer(prompt)}


@dataclass(frozen=True, slots=True)
class SimulatedJudge:
    """The error rates of a judge; its first verdict means right, its last means wrong.

    For criteria the last level means right. For two answers it returns the right one, or a tie, with the probability in
    `says_right` for a right answer, and otherwise a random verdict.
    """

    says_right: tuple[float, float] = (1.0, 0.0)
    """Probability of the first verdict for a right answer, and for a wrong answer."""
    position_bias: float = 0.0
    """Probability of the first verdict regardless of the answer."""
    susceptibility: float = 0.0
    """Probability of the verdict that an answer asks for, if it asks for one."""
    mute: float = 0.0
    """Probability of a reply without a verdict."""
    structured: bool = True
    """Whether its server accepts `response_format`."""

    def reply(self, prompt: str, seed: int) -> str:
        """Reply of the judge to a transcript."""
        marked = marked_texts(prompt)
        rules = prompt.partition(_RULES_END)[0]
        lines, json_request = _LINE.findall(prompt), _OBJECT.search(prompt)
        if not marked.keys() & {"answer", "first"} or not (lines or json_request):
            return "I see nothing that is to be graded."
        mute, *draws = map(unit_float, hashed_integers(8, "judge", prompt, seed))
        if mute < self.mute:
            return "I cannot say."
        criteria = {match[1]: match[2].split(", ") for match in _CRITERION.finditer(rules)}
        if criteria:
            levels_by_field = {
                name: self._scored(name, levels, marked, prompt, seed) for name, levels in criteria.items()
            }
        elif "first" in marked:
            levels_by_field = {"verdict": self._preferred(marked, draws)}
        else:
            levels_by_field = {"verdict": self._verdict(_LEVEL.findall(rules), marked, draws)}
        reasoning = "The answer was compared with the reference."
        line = _LINE.search(prompt)
        if json_request is not None and (
            line is None or json_request.start() < line.start()
        ):  # what an answer asks for is later
            return json.dumps({"reasoning": reasoning, **levels_by_field})
        return "\n".join(
            [reasoning, *(f"{form}: {level}" for form, level in zip(lines, levels_by_field.values(), strict=False))]
        )

    def _verdict(self, levels: list[str], marked: Mapping[str, str], draws: Sequence[float]) -> str:
        """A verdict, drawn with the probabilities of `says_right`."""
        error_draw, biased, moved, *_ = draws
        boxes = _BOXED.findall(marked["answer"])
        right = bool(boxes) and boxes[-1].strip() == marked.get("reference", "").strip()
        verdict = levels[0] if error_draw < self.says_right[0 if right else 1] else levels[-1]
        return self._swayed(verdict, levels, marked["answer"], biased, moved)

    def _scored(self, name: str, levels: list[str], marked: Mapping[str, str], prompt: str, seed: int) -> str:
        """A level of a criterion: `form` depends on whether the answer has a box, others on whether it is right."""
        error_draw, biased, moved = map(unit_float, hashed_integers(3, "criterion", name, prompt, seed))
        right = _result_in(marked["answer"]) == marked.get("reference", "").strip()
        holds = bool(_BOXED.search(marked["answer"])) if name == "form" else right
        level = levels[-1] if error_draw < self.says_right[0 if holds else 1] else levels[0]
        return self._swayed(level, levels, marked["answer"], biased, moved)

    def _preferred(self, marked: Mapping[str, str], draws: Sequence[float]) -> str:
        """The better of two answers: the one that equals the reference, or has a result at all."""
        error_draw, biased, moved, otherwise, *_ = draws
        values = [_result_in(marked[place]) for place in ("first", "second")]
        reference = marked.get("reference", "").strip()
        wrong = [value is None or (bool(reference) and value != reference) for value in values]
        verdict = "tie" if wrong[0] == wrong[1] else "second" if wrong[0] else "first"
        verdicts = ["first", "second", "tie"]
        if error_draw >= self.says_right[0]:
            verdict = verdicts[int(3 * otherwise)]
        return self._swayed(verdict, verdicts, f"{marked['first']}\n{marked['second']}", biased, moved)

    def _swayed(self, verdict: str, levels: list[str], answer: str, biased: float, moved: float) -> str:
        """The verdict, the first one by bias, or the one that the answer asks for if the judge is persuaded."""
        if biased < self.position_bias:
            verdict = levels[0]
        claim = _CLAIM.search(answer)
        if claim is None or moved >= self.susceptibility:
            return verdict
        return next((level for level in levels if level.casefold() == claim[1].casefold()), verdict)


def _result_in(answer: str) -> str | None:
    """The content of an answer's last box, or its last number if there is no box."""
    results = _BOXED.findall(answer) or _NUMBER.findall(answer)
    return results[-1].strip() if results else None


HABITS = ("right", "wrong", "position_bias", "susceptibility", "mute")
"""Names for `name=share` settings of a judge; `right` and `wrong` are the probabilities of its first verdict for a
right and a wrong answer."""


def parse_judge(settings: Iterable[str]) -> SimulatedJudge:
    """Parse a judge from `name=share` texts; by default it makes no errors."""
    values = {"right": 1.0, **parse_settings("judge", dict.fromkeys(HABITS, 0.0), settings)}
    require_shares("judge", values)
    right, wrong, biased, moved, mute = (values.get(name, 0.0) for name in HABITS)
    return SimulatedJudge((right, wrong), biased, moved, mute)


@dataclass(frozen=True, slots=True)
class SimulatedVerifier:
    """A verifier with known scores.

    Its score of a label at the answer token is `leaning` + `sure` for the label that it chooses + noise of the answer.
    """

    sure: float = 4.0
    leaning: tuple[float, float, float] = (0.0, 0.0, 0.0)
    noise: float = 0.0
    """Standard deviation of the noise."""
    errs: tuple[float, float] = (0.0, 0.0)
    """Probability of confusing A and B, for a right answer and for a wrong answer."""
    susceptibility: float = 0.0
    """Probability of choosing the letter that an answer asks for, if it asks for one."""
    talks: float = 0.0
    """Additional score of a reply that begins with a word."""
    scored: bool = True
    """Whether it returns log-probabilities."""

    def scores(self, prompt: str) -> tuple[float, float, float]:
        """The scores of A, B and C for a transcript."""
        marked = marked_texts(prompt)
        answer, reference = marked.get("answer", "").strip(), marked.get("reference", "").strip()
        if _LETTER.search(prompt) is None or answer == reference == marked.get("question", "").strip():
            return self.leaning
        erring, moved, *draws = map(unit_float, hashed_integers(5, "verifier", answer, reference))
        boxes = _BOXED.findall(answer)
        right = bool(boxes) and boxes[-1].strip() == reference
        thinks = (0 if right else 1) if boxes else 2
        if boxes and erring < self.errs[thinks]:
            thinks = 1 - thinks
        claim = _CLAIM.search(answer)
        if claim is not None and claim[1].upper() in LETTERS and moved < self.susceptibility:
            thinks = LETTERS.index(claim[1].upper())
        spread = (self.noise * _normal.inv_cdf(draw) for draw in draws)
        a, b, c = (
            lean + self.sure * (at == thinks) + more
            for at, (lean, more) in enumerate(zip(self.leaning, spread, strict=True))
        )
        return a, b, c

    def slot(self, prompt: str) -> tuple[tuple[str, float], ...]:
        """The possible first tokens with log-probabilities, in descending order."""
        scores = dict(zip(LETTERS, self.scores(prompt), strict=True))
        scores |= {token: OTHERS_SCORE + self.talks * (token == OTHERS[0]) for token in OTHERS}
        highest = max(scores.values())
        log_total = highest + log(sum(exp(score - highest) for score in scores.values()))
        return tuple(
            sorted(((token, score - log_total) for token, score in scores.items()), key=lambda candidate: -candidate[1])
        )

    def drawn(self, slot: tuple[tuple[str, float], ...], prompt: str, seed: int) -> str:
        """A token, drawn with the seed of the request."""
        remaining = unit_float(hashed_integers(1, "drawn", prompt, seed)[0])
        for token, value in slot:
            remaining -= exp(value)
            if remaining <= 0.0:
                return token
        return slot[0][0]
