"""Policies as a user might write them, which need only what the Protocols require."""

import numpy as np

from adaptive_eval.core import View
from scorio.moments import IntArray


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
