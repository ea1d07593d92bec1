"""Models that share a server, such as LoRA adapters: the server's time is divided among the models that use it.

At each moment a server's time is divided equally among the models with requests in flight there. The share of a request
is the mean over its time; so the shares of all models add up to the time for which the server was busy.
"""

from collections import Counter


class _Server:
    """The models with requests in flight at one server, and the integral of 1 / (number of models) over time."""

    def __init__(self, now: float) -> None:
        self.in_flight: Counter[int] = Counter()
        self.integral, self._at = 0.0, now

    def advance(self, now: float) -> None:
        if self.in_flight:
            self.integral += (now - self._at) / len(self.in_flight)
        self._at = now


class SharedTime:
    """Divides the time of each server among models; all models of a run use the same object."""

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}

    def enter(self, url: str, model: int, now: float) -> "ShareMark":
        """Record the start of a model's request at a server."""
        server = self._servers.get(url)
        if server is None:
            server = self._servers[url] = _Server(now)
        server.advance(now)
        server.in_flight[model] += 1
        return ShareMark(server, model, now)

    def in_flight(self, url: str) -> int:
        """Requests in flight at a server, of all models."""
        server = self._servers.get(url)
        return 0 if server is None else server.in_flight.total()


class ShareMark:
    """A request in flight at a server."""

    def __init__(self, server: _Server, model: int, now: float) -> None:
        self._server, self._model, self._started_at, self._integral = server, model, now, server.integral

    def mean_share(self, now: float) -> float:
        """Mean share of the server's time that the model has had since the request began: 1 if it was alone."""
        self._server.advance(now)
        if now <= self._started_at:
            return 1.0 / len(self._server.in_flight)
        return (self._server.integral - self._integral) / (now - self._started_at)

    def leave(self, now: float) -> None:
        """Record the end of the request."""
        self._server.advance(now)
        self._server.in_flight[self._model] -= 1
        if not self._server.in_flight[self._model]:
            del self._server.in_flight[self._model]
