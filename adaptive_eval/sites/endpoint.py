"""A model over all its sites, each of which is a place where it is served."""

from collections.abc import Callable, Sequence

from adaptive_eval.endpoints.types import Prompt
from adaptive_eval.launch.endpoint import ServedEndpoint
from adaptive_eval.seeds import SEED_SPAN


class SitesEndpoint(ServedEndpoint):
    """An `Endpoint` over sites that come and go."""

    def __init__(self, prompts: Sequence[Prompt], seed_base: Callable[[int], int]) -> None:
        super().__init__()
        self._seed_base = seed_base
        self._prompts = prompts  # kept, since prompts are told apart by identity: two questions may have equal ones
        self._questions = {id(prompt): number for number, prompt in enumerate(prompts)}

    def number(self, prompt: Prompt, seeds: range) -> tuple[int, int]:
        """Numbers of the question and of the first trial of a request."""
        question = self._questions[id(prompt)]
        return question, (seeds.start - self._seed_base(question)) % SEED_SPAN
