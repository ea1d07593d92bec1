"""A harness as Inspect is one, without its waiting: places, a queue, epochs that end with a score or in an error."""

import random
from collections import deque
from dataclasses import dataclass, field

from adaptive_eval.exchange.epochs import DecisionSettings, Epoch, EpochController, EpochDecision


@dataclass
class Lane:
    """One model: its queue, and what has a place."""

    queue: deque[Epoch]
    places: int
    running: list[Epoch] = field(default_factory=list)
    held: list[Epoch] = field(default_factory=list)
    skipped: int = 0
    ran: int = 0


class Harness:
    """Brings every epoch of every model in turn; what moves next is drawn at random."""

    def __init__(
        self,
        skills: list[float],
        questions: int,
        epochs: int,
        places: int,
        settings: DecisionSettings,
        *,
        errors: float = 0.0,
        disorder: int = 0,
        seed: int = 0,
    ) -> None:
        self.rng = random.Random(seed)
        names = [f"model-{number}" for number in range(len(skills))]
        self.controller = EpochController(names, [f"q{number}" for number in range(questions)], epochs, settings)
        self.skills, self.errors = skills, errors
        self.lanes = [Lane(self._order(questions, epochs, disorder), places) for _ in skills]

    def _order(self, questions: int, epochs: int, disorder: int) -> deque[Epoch]:
        """Epoch by epoch, but for some that come later or earlier than their turn."""
        turns = [Epoch(question, epoch) for epoch in range(1, epochs + 1) for question in range(questions)]
        keys = [place + self.rng.uniform(0, disorder) for place in range(len(turns))]
        return deque(turn for _, turn in sorted(zip(keys, turns, strict=True)))

    def run(self) -> None:
        """Until every epoch was run or skipped; fails where nothing moves any more."""
        while any(lane.queue or lane.running or lane.held for lane in self.lanes):
            moved = [self._fill(number) for number in range(len(self.lanes))]
            moved += [self._let_go(number) for number in range(len(self.lanes))]
            busy = [number for number, lane in enumerate(self.lanes) if lane.running]
            if busy:
                self._end_one(self.rng.choice(busy))
            elif not any(moved) and not any(self._give_way(number) for number in range(len(self.lanes))):
                raise AssertionError("nothing moves, and nobody can give way")

    def _fill(self, number: int) -> bool:
        lane, epochs = self.lanes[number], self.controller.models[number]
        moved = False
        while lane.queue and len(lane.running) + len(lane.held) < lane.places:
            epoch, moved = lane.queue.popleft(), True
            if self.controller.why_over(number) is not None:
                lane.skipped += 1
                continue
            match epochs.arrive(epoch):
                case EpochDecision.RUN:
                    lane.running.append(epoch)
                case EpochDecision.HOLD:
                    lane.held.append(epoch)
                case EpochDecision.SKIP:
                    lane.skipped += 1
        return moved

    def _let_go(self, number: int) -> bool:
        lane, epochs = self.lanes[number], self.controller.models[number]
        if self.controller.why_over(number) is not None:
            let_go, lane.held = lane.held, []
            for epoch in let_go:
                epochs.leave(epoch)
            lane.skipped += len(let_go)
            return bool(let_go)
        released = list(epochs.released())
        lane.held = [epoch for epoch in lane.held if epoch not in released]
        lane.running += released
        return bool(released)

    def _end_one(self, number: int) -> None:
        lane = self.lanes[number]
        epoch = lane.running.pop(self.rng.randrange(len(lane.running)))
        lane.ran += 1
        if self.rng.random() >= self.errors:
            self.controller.complete(number, epoch, int(self.rng.random() < self.skills[number]))
        self.controller.end(number, epoch)

    def _give_way(self, number: int) -> bool:
        lane, epoch = self.lanes[number], self.controller.models[number].give_way()
        if epoch is None:
            return False
        lane.held.remove(epoch)
        lane.skipped += 1
        return True
