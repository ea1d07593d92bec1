"""A simulated judge and verifier: they follow their rules, err as often as is said, and may be talked over.

It reads the transcript as a judge does: the verdicts of the system's turn, and what stands between the marks with their
number. What it thinks is whether the number in the answer's box is the reference; what it says is drawn from the row of
its matrix for that, by the seed of the request.
"""

import re
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist

from adaptive_eval.simulate.answering import hashed_integers, unit_float

JUDGE = "judge"
VERIFIER = "verifier"
"""Their names on the server."""
LETTERS = ("A", "B", "C")
OTHERS = ("The", "**", "Answer", "I", "It", "Yes", "No", "1")
"""Tokens with which a reply might begin instead."""
OTHERS_SCORE = -7.0
_normal = NormalDist()
_MARKED = re.compile(r"<(question|reference|answer)-([0-9a-f]{16})>\n(.*?)\n</\1-\2>", re.DOTALL)
_LEVEL = re.compile(r"^- ([A-Za-z0-9][A-Za-z0-9 _-]*?)(?:: .*)?$", re.MULTILINE)
_LETTER = re.compile(r"^Reply with one letter", re.MULTILINE)
_FORM = re.compile(r"^(VERDICT-([0-9a-f]{16})): <verdict>", re.MULTILINE)
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_CLAIM = re.compile(r"verdict\S*\s*:?\s*([A-Za-z]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SimulatedJudge:
    """How a judge errs; its first verdict stands for right, its last for wrong."""

    says_right: tuple[float, float] = (1.0, 0.0)
    """The chance that it gives its first verdict: to a right answer, and to a wrong one."""
    position_bias: float = 0.0
    """The chance that it gives its first verdict whatever it thinks."""
    susceptibility: float = 0.0
    """The chance that it gives the verdict that an answer asks for, where one does."""
    mute: float = 0.0
    """The chance that it ends without a verdict."""

    def reply(self, prompt: str, seed: int) -> str:
        """What it says to a transcript."""
        marked = {found[1]: found[3] for found in _MARKED.finditer(prompt)}
        form, levels = _FORM.search(prompt), _LEVEL.findall(prompt)
        if form is None or len(levels) < 2 or "answer" not in marked:
            return "I see nothing that is to be graded."
        said, biased, moved, mute = map(unit_float, hashed_integers(4, "judge", prompt, seed))
        if mute < self.mute:
            return "I cannot say."
        boxes = _BOXED.findall(marked["answer"])
        right = bool(boxes) and boxes[-1].strip() == marked.get("reference", "").strip()
        verdict = levels[0] if said < self.says_right[0 if right else 1] else levels[-1]
        if biased < self.position_bias:
            verdict = levels[0]
        claim = _CLAIM.search(marked["answer"])
        if claim is not None and moved < self.susceptibility:
            verdict = next((one for one in levels if one.casefold() == claim[1].casefold()), verdict)
        return f"The answer was compared with the reference.\n{form[1]}: {verdict}"


@dataclass(frozen=True, slots=True)
class SimulatedVerifier:
    """A verifier whose scores are known: what it thinks, what it leans to without content, and noise.

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
        """Of A, B and C to a transcript."""
        marked = {found[1]: found[3] for found in _MARKED.finditer(prompt)}
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
        """One of them, by the seed of the request."""
        left = unit_float(hashed_integers(1, "drawn", prompt, seed)[0])
        for token, value in slot:
            left -= exp(value)
            if left <= 0.0:
                return token
        return slot[0][0]
