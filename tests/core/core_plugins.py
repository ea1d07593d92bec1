"""A rule and policies as a user might write them, which need only what the Protocols require."""

import numpy as np

from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.policies import View
from scorio.moments import FloatArray, IntArray


class Stern:
    """A boundary that is higher with less information: 4 - 2 t."""

    def boundary(self, evidence: Evidence) -> FloatArray:
        return np.maximum(4.0 - 2.0 * evidence.information, 1.0)


class OneByOne:
    """Serve the open pair that is most likely to be settled, with one more trial a question where possible."""

    def allocate(self, view: View) -> IntArray:
        plan = np.zeros_like(view.issued)
        if len(view.open_pairs):
            pair = view.open_pairs[np.argmax(view.power)]
            for model in pair[pair < len(plan)]:
                plan[model, : view.sizes[model]] = 1
        return plan


class OneByOneOnly(OneByOne):
    """The same policy, declaring that it serves only open comparisons."""

    only_open = True
