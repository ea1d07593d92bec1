"""Which directory a run goes to."""

from pathlib import Path

from adaptive_eval.base.errors import ConfigError, RunChanged
from adaptive_eval.config.fingerprint import require_same_meaning
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.core.types import NO_COST
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store.header import RunHeader
from adaptive_eval.store.locate import fresh_directory, newest_directory


def run_directory(prepared: PreparedRun, given: Path | None, fresh: bool) -> Path:
    """The directory of a run: the given one, else the newest of its name; a new one beside it with `fresh`, or if that
    run was begun with other settings and has bought nothing, since a first try that failed keeps nobody from a second.
    """
    if given is None:
        place = prepared.config.store, prepared.config.name
        newest = newest_directory(*place)
        return fresh_directory(*place) if fresh or _is_empty_and_differs(newest, prepared.header) else newest
    if fresh:
        raise ConfigError(
            "fresh (--fresh) chooses a new directory, so it cannot be combined with one that is given (--run-dir); "
            "give only one of the two"
        )
    return given


def _is_empty_and_differs(directory: Path, header: RunHeader) -> bool:
    with RunReader.if_begun(directory) as reader:
        if reader is None or reader.trial_count() or reader.log.spent() != NO_COST:
            return False
        try:
            require_same_meaning(reader.header(), header, directory)
        except RunChanged:
            return True
    return False
