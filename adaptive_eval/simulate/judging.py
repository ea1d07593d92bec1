"""A simulated judge: it follows its rules, errs as often as a confusion matrix says, and may be talked over.

It reads the transcript as a judge does: the verdicts of the system's turn, and what stands between the marks with their
number. What it thinks is whether the number in the answer's box is the reference; what it says is drawn from the row of
its matrix for that, by the seed of the request.
"""

import re
from dataclasses import dataclass

from adaptive_eval.simulate.answering import hashed_integers, unit_float

JUDGE = "judge"
"""Its name on the server."""
_MARKED = re.compile(r"<(question|reference|answer)-([0-9a-f]{16})>\n(.*?)\n</\1-\2>", re.DOTALL)
_LEVEL = re.compile(r"^- ([A-Za-z0-9][A-Za-z0-9 _-]*?)(?:: .*)?$", re.MULTILINE)
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
