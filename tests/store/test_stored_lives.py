"""Whole lives of a run on the real store, compared with a store in memory."""

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "machine"))

from scripted import Disk, Kind, answer_text
from scripted_lives import live
from thoroughness import THOROUGH

from adaptive_eval.machine.records import SETTINGS, Note, Row
from adaptive_eval.machine.trial import Trial
from adaptive_eval.store.header import RunHeader
from adaptive_eval.store.read import LogReader
from adaptive_eval.store.verify import Integrity
from adaptive_eval.store.write import RunStore

MODELS, QUESTIONS = [f"model {number}" for number in range(4)], [f"q{number}" for number in range(4)]
HEADER = RunHeader("lives", {"number": 0}, {}, dict.fromkeys(MODELS, {}), dict.fromkeys(QUESTIONS, {}))


class StoredDisk(Disk):
    """The real store, compared with the disk in memory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.store = RunStore.open(directory, HEADER)

    def reopen(self) -> None:
        """Reopen the store as after a kill."""
        self.store.close()
        self.store = RunStore.open(self.directory, HEADER)
        assert self.store.is_resumed

    def commit(self, rows: Iterable[Row]) -> None:
        rows = list(rows)
        super().commit(rows)
        for _, record in rows:
            if isinstance(record, Note) and record.kind == SETTINGS:
                self.store._configuration = record.body["configuration"]
        assert self.store.commit(rows) == rows
        assert self.store.last_seq == self.last

    def log(self, block_size: int | None = None) -> Iterator[Sequence[Row]]:
        blocks = [*self.store.reader.log(in_whole_commits=block_size is None)]
        assert [_plain(row) for block in blocks for row in block] == [
            _plain(row) for block in super().log(block_size) for row in block
        ]
        if block_size is None:
            assert [len(block) for block in blocks] == [len(block) for block in super().log(None)]
        return iter(blocks)

    def all_notes(self) -> list[tuple[int, Note]]:
        return self.store.reader.notes()

    def known(self, models: Collection[int], before: int) -> list[Trial]:
        return list(self.store.reader.known_answers(models, before))

    def ungraded(self) -> list[tuple[int, Trial]]:
        ungraded = list(self.store.reader.ungraded())
        assert [seq for seq, _ in ungraded] == [seq for seq, _ in super().ungraded()]
        assert all(trial.answer is not None for _, trial in ungraded)
        return ungraded


def _plain(row: Row) -> object:
    """A row without the parts that are not read back."""
    seq, record = row
    if isinstance(record, Trial):
        return seq, record._replace(answer=None, grade=None)
    return row


def stored_life(seed: int, directory: Path) -> None:
    disk = StoredDisk(directory)
    _, start, _ = live(seed, 1 + seed % 4, 300, disk)
    disk.reopen()
    if Kind.drawn(seed).cap is not None:
        assert disk.store.reader.spent().tokens == sum(disk.sums)
    stored = {look.number: look.body for look in disk.store.reader.looks()}
    assert stored == {number: body for number, (_, _, body) in disk.looks.items()}
    disk.store.close()
    with closing(LogReader.open(directory)) as reader:
        answers = [trial for _, trial in reader.trials("state <> 'reserved'")]
    assert all(trial.answer is not None and trial.answer.text == answer_text(seed, trial.key) for trial in answers)
    checked = Integrity.check(directory)
    assert not checked.damages and checked.looks == len(stored) and checked.trials == len(answers)
    assert start.ended


@pytest.mark.parametrize("seed", range(3))
def test_a_life_over_the_real_store(seed: int, tmp_path: Path) -> None:
    stored_life(seed, tmp_path / "run")


@pytest.mark.slow
def test_many_lives_over_the_real_store(tmp_path: Path) -> None:
    for seed in range(100, 1000 if THOROUGH else 120):
        stored_life(seed, tmp_path / f"run{seed}")
