"""A simulated judge and verifier: they follow their rules, err at given rates, and may be persuaded by an answer.

It reads the transcript like a judge: the verdicts in the system's turn, and the text between the numbered marks. Its
opinion is whether the number in the answer's box is the reference; its verdict is drawn from that row of its matrix, by
the seed of the request.
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
"""Their names on the server."""
LETTERS = ("A", "B", "C")
OTHERS = ("The", "**", "Answer", "I", "It", "Yes", "No", "1")
"""Tokens with which a reply might begin instead."""
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
    """The texts between the numbered marks of a transcript, by what they are."""
    return {found[1]: found[3] for found in _MARKED.finditer(prompt)}


@dataclass(frozen=True, slots=True)
class SimulatedJudge:
    """How a judge errs; its first verdict stands for right, its last for wrong.

    Of criteria the last level stands for right; of two answers it says which one is right, or a tie, in as many cases
    as `says_right` has for a right answer, and else anything.
    """

    says_right: tuple[float, float] = (1.0, 0.0)
    """The chance that it gives its first verdict: to a right answer, and to a wrong one."""
    position_bias: float = 0.0
    """The chance that it gives its first verdict whatever it thinks."""
    susceptibility: float = 0.0
    """The chance of giving the verdict that an answer asks for, if one does."""
    mute: float = 0.0
    """The chance that it ends without a verdict."""
    structured: bool = True
    """Whether its server accepts `response_format`."""

    def reply(self, prompt: str, seed: int) -> str:
        """Reply of the judge to a transcript."""
        marked = marked_texts(prompt)
        rules = prompt.partition(_RULES_END)[0]
        lines, wanted = _LINE.findall(prompt), _OBJECT.search(prompt)
        if not marked.keys() & {"answer", "first"} or not (lines or wanted):
            return "I see nothing that is to be graded."
        mute, *draws = map(unit_float, hashed_integers(8, "judge", prompt, seed))
        if mute < self.mute:
            return "I cannot say."
        criteria = {found[1]: found[2].split(", ") for found in _CRITERION.finditer(rules)}
        if criteria:
            said = {name: self._scored(name, levels, marked, prompt, seed) for name, levels in criteria.items()}
        elif "first" in marked:
            said = {"verdict": self._preferred(marked, draws)}
        else:
            said = {"verdict": self._verdict(_LEVEL.findall(rules), marked, draws)}
        thought = "The answer was compared with the reference."
        line = _LINE.search(prompt)
        if wanted is not None and (line is None or wanted.start() < line.start()):  # what an answer asks for is later
            return json.dumps({"reasoning": thought, **said})
        return "\n".join([thought, *(f"{form}: {level}" for form, level in zip(lines, said.values(), strict=False))])

    def _verdict(self, levels: list[str], marked: Mapping[str, str], draws: Sequence[float]) -> str:
        """A verdict; the matrix gives the chance of the first one."""
        said, biased, moved, *_ = draws
        boxes = _BOXED.findall(marked["answer"])
        right = bool(boxes) and boxes[-1].strip() == marked.get("reference", "").strip()
        verdict = levels[0] if said < self.says_right[0 if right else 1] else levels[-1]
        if biased < self.position_bias:
            verdict = levels[0]
        return self._moved(verdict, levels, marked["answer"], moved)

    def _scored(self, name: str, levels: list[str], marked: Mapping[str, str], prompt: str, seed: int) -> str:
        """A level of one criterion: for `form` by whether the answer has a box, for others by whether it is right."""
        said, biased, moved = map(unit_float, hashed_integers(3, "criterion", name, prompt, seed))
        right = _result_in(marked["answer"]) == marked.get("reference", "").strip()
        holds = bool(_BOXED.search(marked["answer"])) if name == "form" else right
        level = levels[-1] if said < self.says_right[0 if holds else 1] else levels[0]
        if biased < self.position_bias:
            level = levels[0]
        return self._moved(level, levels, marked["answer"], moved)

    def _preferred(self, marked: Mapping[str, str], draws: Sequence[float]) -> str:
        """The better of two answers: the right one, by the other answer or the reference."""
        said, biased, moved, otherwise, *_ = draws
        values = [_result_in(marked[place]) for place in ("first", "second")]
        known = marked.get("reference", "").strip()
        wrong = [value is None or (bool(known) and value != known) for value in values]
        verdict = "tie" if wrong[0] == wrong[1] else "second" if wrong[0] else "first"
        if said >= self.says_right[0]:
            verdict = ("first", "second", "tie")[int(3 * otherwise)]
        if biased < self.position_bias:
            verdict = "first"
        return self._moved(verdict, ["first", "second", "tie"], f"{marked['first']}\n{marked['second']}", moved)

    def _moved(self, verdict: str, levels: list[str], answer: str, moved: float) -> str:
        """The verdict on an answer that gives the judge an instruction."""
        claim = _CLAIM.search(answer)
        if claim is None or moved >= self.susceptibility:
            return verdict
        return next((one for one in levels if one.casefold() == claim[1].casefold()), verdict)


def _result_in(answer: str) -> str | None:
    """The content of an answer's last box, or without one its last number."""
    found = _BOXED.findall(answer) or _NUMBER.findall(answer)
    return found[-1].strip() if found else None


HABITS = ("right", "wrong", "position_bias", "susceptibility", "mute")
"""What may be said of a judge in `name=share`: the first two are the chances that it gives its first verdict to an
answer that is right, and to one that is wrong."""


def parse_judge(settings: Iterable[str]) -> SimulatedJudge:
    """Parse a judge from `name=share` texts; by default it is never wrong."""
    values = {"right": 1.0, **parse_settings("judge", dict.fromkeys(HABITS, 0.0), settings)}
    require_shares("judge", values)
    right, wrong, biased, moved, mute = (values.get(name, 0.0) for name in HABITS)
    return SimulatedJudge((right, wrong), biased, moved, mute)


@dataclass(frozen=True, slots=True)
class SimulatedVerifier:
    """A verifier with known scores: its opinion, its leaning without content, and noise.

    Its score of a label is `leaning` + `sure` where it thinks so + noise of the answer, at one token of its reply.
    """

    sure: float = 4.0
    leaning: tuple[float, float, float] = (0.0, 0.0, 0.0)
    noise: float = 0.0
    """The standard deviation."""
    errs: tuple[float, float] = (0.0, 0.0)
    """The chance that it thinks the other of A and B: of a right answer, and of a wrong one."""
    susceptibility: float = 0.0
    """The chance that it thinks what an answer asks for, where one asks for a letter."""
    talks: float = 0.0
    """Score of a reply that begins with a word instead."""
    scored: bool = True
    """It gives log-probabilities."""

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
        """The tokens that may stand first, the likeliest first, with their log-probabilities."""
        scores = dict(zip(LETTERS, self.scores(prompt), strict=True))
        scores |= {token: OTHERS_SCORE + self.talks * (token == OTHERS[0]) for token in OTHERS}
        most = max(scores.values())
        whole = most + log(sum(exp(score - most) for score in scores.values()))
        return tuple(sorted(((token, score - whole) for token, score in scores.items()), key=lambda one: -one[1]))

    def drawn(self, slot: tuple[tuple[str, float], ...], prompt: str, seed: int) -> str:
        """One of the tokens, drawn by the seed of the request."""
        left = unit_float(hashed_integers(1, "drawn", prompt, seed)[0])
        for token, value in slot:
            left -= exp(value)
            if left <= 0.0:
                return token
        return slot[0][0]
