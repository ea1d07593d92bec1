"""A scripted run without interruption, and the same run killed and stopped."""

import random
from collections import Counter
from collections.abc import Sequence

from scripted import Disk, Killed, Kind, Start, World, decisions

from adaptive_eval.core import Trials
from adaptive_eval.machine.events import Finish, Opened, Send, Setting, Tick, Write
from adaptive_eval.machine.records import ALARM, LooksForgotten, LookTaken
from adaptive_eval.machine.trial import RESERVED

MOST_STARTS = 60


def horizons(world: World) -> list[tuple[Sequence[int], Trials]]:
    """The models and trials of each configuration, in order."""
    everyone, all_but_last = range(world.models), range(world.models - 1)
    all_but_last = all_but_last if len(all_but_last) > 1 else everyone
    if world.kind.special == "raised":
        return [(everyone, Trials(min=3, max=6)), (everyone, Trials(min=3, max=10))]
    rosters = {
        "leaves": [everyone, all_but_last],
        "joins": [all_but_last, everyone],
        "returns": [everyone, all_but_last, everyone],
    }.get(world.kind.special, [everyone])
    return [(roster, Trials(min=3, max=9)) for roster in rosters]


def live(seed: int, kills: int, length: int = 0, disk: Disk | None = None) -> tuple[Disk, Start, Counter[str]]:
    """Starts, some killed or stopped, until the run is finished with its last configuration."""
    kind, disk = Kind.drawn(seed), Disk() if disk is None else disk
    world, chance = World(seed, kind), random.Random(f"{seed} {kills}")
    happened, settings = Counter[str](), list[Setting]()
    changes = horizons(world)
    for number, (roster, trials) in enumerate(changes):
        settings.append(world.setting(roster, trials))
        is_last = number == len(changes) - 1
        for _ in range(MOST_STARTS):
            kill_at = int(1 + length * chance.random() ** 2) if kills > 0 and chance.random() < 0.9 else 0
            world.grader_works = kills > 0 and chance.random() < 0.3
            start = Start(world, disk, settings, chance, kill_at=kill_at, is_troubled=kills != 0)
            happened["starts"] += 1
            try:
                ended = start.run()
            except Killed:
                kills -= 1
                happened["kills"] += 1
                if not is_last and chance.random() < 0.5:
                    break
                continue
            happened["moments"] += start.moments
            happened[ended] += 1
            happened.update(start.events)
            start.audit()
            kills -= ended == "stopped"
            if start.machine.alarms.stopped is not None:  # every further start would end as this one
                return disk, start, happened
            if ended not in ("stopped", "aborted") or (not is_last and chance.random() < 0.5):
                break
        else:
            raise AssertionError(f"life {seed} does not end")
    check_end(start)
    return disk, start, happened


def check_end(start: Start) -> None:
    """A further start has nothing to do, and a reader gets the same results."""
    disk, machine = start.disk, start.machine
    assert not any(trial.state is RESERVED for _, trial in disk.trials.values()), "something is left in flight"
    assert not disk.in_flight, "something is counted as in flight"
    looks = {look.index: start.settings[-1].describe(look) for look in machine.controller.looks}
    first = machine.controller.first_look
    stored = {number: body for number, (_, _, body) in disk.looks.items()}
    assert {n: body for n, body in looks.items() if n >= first} == {n: body for n, body in stored.items() if n >= first}
    assert stored.keys() == looks.keys()
    again = start.replayed()
    if start.world.kind.special not in ("refuses", "down"):  # such a model is asked again
        assert decisions(again)[0] == decisions(machine)[0]
        again.handle(Tick(start.seconds))
        actions = again.handle(Opened())
        if not again.caps.are_set and again.controller.finished is None and start.world.kind.wall is not None:
            return
        assert not any(isinstance(action, Send) for action in actions)
        written = [record for action in actions if isinstance(action, Write) for _, record in action.rows]
        assert not any(isinstance(record, LookTaken | LooksForgotten) for record in written)
        assert again.controller.finished == machine.controller.finished
        assert not any(isinstance(action, Finish) for action in actions)  # its end is to be stored first


def life(seed: int) -> Counter[str]:
    """Compare an undisturbed run with the same run killed or stopped up to six times."""
    undisturbed, _, happened = live(seed, 0)
    killed, start, happened_then = live(seed, 1 + seed % 6, happened["moments"])
    compared = 0
    if start.world.kind.is_compared:
        looks = [[body for _, _, body in (disk.looks[n] for n in sorted(disk.looks))] for disk in (undisturbed, killed)]
        assert looks[0] == looks[1], "the killed run has found something else"
        compared = len(looks[0])
        assert alarms_of(undisturbed) == alarms_of(killed), "the killed run has raised other alarms"
    alarms = len(alarms_of(killed))
    return happened_then + Counter({"lives": 1, "looks": len(killed.looks), "compared": compared, "alarms": alarms})


def alarms_of(disk: Disk) -> list[tuple[int | None, str]]:
    notes = [note for _, note in disk.notes if note.kind == ALARM]
    return sorted((note.model, note.body["fault"]) for note in notes)
