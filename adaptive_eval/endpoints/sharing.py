"""Models that share a server, such as LoRA adapters: its time counts once, divided among those that it works for.

At each moment a server's time is divided equally among the models that have requests in flight there. The part of a
request is the mean over its time; so the parts of all models together are the time for which the server was busy.
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
    """How the time of each server is divided among models; all models of a run share one."""

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}

    def enter(self, url: str, model: int, now: float) -> "ShareMark":
        """A request of a model begins at a server."""
        server = self._servers.setdefault(url, _Server(now))
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
        self._server, self._model, self._begun, self._integral = server, model, now, server.integral

    def part(self, now: float) -> float:
        """The mean part of the server's time that its model has had since it began: 1 if it was alone."""
        self._server.advance(now)
        if now <= self._begun:
            return 1.0 / len(self._server.in_flight)
        return (self._server.integral - self._integral) / (now - self._begun)

    def leave(self, now: float) -> None:
        """The request has ended."""
        self._server.advance(now)
        self._server.in_flight[self._model] -= 1
        if not self._server.in_flight[self._model]:
            del self._server.in_flight[self._model]
