"""How fast a run goes, and when it will be done at that."""

from collections import deque

WINDOW_SECONDS = 30.0


class Rates:
    """Trials and tokens a second over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def add(self, elapsed: float, trials: int, tokens: int) -> None:
        """Note where the run stands; only differences count."""
        self._seen.append((elapsed, trials, tokens))
        while self._seen[-1][0] - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()

    @property
    def trials(self) -> float:
        """Trials a second."""
        return self._slope(1)

    @property
    def tokens(self) -> float:
        """Tokens a second."""
        return self._slope(2)

    def eta(self, trials_to_go: float | None) -> float | None:
        """Seconds until the trials still needed are done; None while that cannot be said."""
        if trials_to_go is None or self.trials <= 0.0:
            return None
        return trials_to_go / self.trials

    def _slope(self, column: int) -> float:
        if len(self._seen) < 2 or self._seen[-1][0] <= self._seen[0][0]:
            return 0.0
        first, last = self._seen[0], self._seen[-1]
        return (last[column] - first[column]) / (last[0] - first[0])
