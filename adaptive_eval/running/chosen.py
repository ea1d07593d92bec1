"""Which run is meant, and the settings that it remembers: those given with `--set` hold at later starts as well.

Each holds until it is set again or undone (`--set KEY=`), or until the same key is changed in the file. Settings of
single models and benchmarks (by their place in the list), of the name and of the store hold for one start, since the
file may order its models anew, and since name and store say which run is meant.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.base.errors import AdaptiveEvalError, ConfigError, RunChanged
from adaptive_eval.config.fingerprint import require_same_meaning
from adaptive_eval.config.first_round import first_round_problems, unpaid_models
from adaptive_eval.config.prepare import PreparedRun, prepare
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.types import NO_COST
from adaptive_eval.notes import RunBegun, TrialsRegraded, newest_command
from adaptive_eval.notes.lives import Override
from adaptive_eval.report.reader import RunReader
from adaptive_eval.running.beginning import load_starting_point
from adaptive_eval.store.database import has_tables
from adaptive_eval.store.header import RunHeader
from adaptive_eval.store.locate import fresh_directory, newest_directory

FOR_ONE_START = ("name", "store")


class ChosenRun(NamedTuple):
    """A prepared run and its directory."""

    prepared: PreparedRun
    directory: Path
    remembered: tuple[str, ...]
    """Settings of earlier starts that hold, as `key=value`."""

    @property
    def first_round_problems(self) -> list[str]:
        """Problems of the budget with the first round: of a run without answers, or of models that join the run."""
        with RunReader.if_begun(self.directory) as reader:
            trials = 0 if reader is None else reader.trial_count()
            if reader is None or not trials:
                return list(first_round_problems(self.prepared))
            joining = set(self.prepared.models).difference(reader.model_names.values()) | reader.unanswered_models()
            used = (trials, *reader.log.spent())
        if not joining:
            return []
        try:
            prepared = load_starting_point(self.prepared, self.directory).prepared
        except AdaptiveEvalError:  # `obstacle` says why
            return []
        return list(unpaid_models(prepared, joining, used))

    @property
    def obstacle(self) -> str | None:
        """Why the run that was begun in the directory cannot go on with these settings, in a sentence; None if it can,
        or is new."""
        try:
            if has_tables(self.directory):
                load_starting_point(self.prepared, self.directory)
        except AdaptiveEvalError as error:
            return f"`run` will not start: {error}"
        return None


def choose_run(
    load: Callable[[Sequence[str]], RunConfig],
    overrides: Sequence[str],
    directory: Path | None,
    fresh: bool,
    *,
    may_override: bool = True,
) -> ChosenRun:
    """Prepare a run with these overrides, and with those that its earlier starts were given; `load` makes the
    configuration from overrides, if it `may_override` it. Other parameters are those of `run_directory`."""
    given = [text for text in overrides if _split(text)[1].strip()]
    prepared = prepare(load(given))
    place = run_directory(prepared, directory, fresh)
    remembered, overridden = remembered_settings(load, overrides, place) if may_override else ((), {})
    known = without_undone(overrides, place)
    if remembered or known != given:
        prepared = prepare(load([*remembered, *known]))
    return ChosenRun(replace(prepared, overrides=overridden), place, remembered)


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


def remembered_settings(
    load: Callable[[Sequence[str]], RunConfig], overrides: Sequence[str], directory: Path
) -> tuple[tuple[str, ...], dict[str, Override]]:
    """The settings of earlier starts of the run in the directory that hold beside these overrides, as `key=value`, and
    all overrides that its next start is to remember."""
    stored = _stored_overrides(directory)
    typed = {key: value for key, value in map(_split, overrides) if _is_remembered(key)}
    if not stored and not typed:
        return (), {}
    in_file = _FileValues(load)
    remaining = {
        key: override.value
        for key, override in stored.items()
        if in_file[key] == override.in_file and not any(f"{key}.".startswith(f"{other}.") for other in typed)
    }
    remembered = tuple(f"{key}={value}" for key, value in remaining.items())
    return remembered, {
        key: Override(value, in_file[key]) for key, value in {**remaining, **typed}.items() if value.strip()
    }


def without_undone(overrides: Sequence[str], directory: Path) -> list[str]:
    """Overrides without those that undo a setting of the run in the directory, now or when the same command began its
    last start. Others without a value stay, to be refused."""
    last = _last_command(directory)
    stored, words = ({}, ()) if last is None else (last.overrides or {}, last.arguments or ())

    def undoes(text: str) -> bool:
        key, value = _split(text)
        return not value.strip() and (text in words or any(f"{old}.".startswith(f"{key}.") for old in stored))

    return [text for text in overrides if not undoes(text)]


def remembered_note(remembered: Sequence[str]) -> str:
    """A note to the user about remembered settings."""
    return (
        f"note: settings of an earlier start still apply ({', '.join(remembered)}); change them with --set, "
        "undo one with --set KEY= (no value), or change it in the file"
    )


def _last_command(directory: Path) -> RunBegun | TrialsRegraded | None:
    """The newest start or regrade of a run."""
    with RunReader.if_begun(directory) as reader:
        return None if reader is None else newest_command(reader.events())


def _stored_overrides(directory: Path) -> Mapping[str, Override]:
    """The overrides of the newest start or regrade of a run."""
    last = _last_command(directory)
    return {} if last is None else last.overrides or {}


def _split(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key.strip(), value


def _is_remembered(key: str) -> bool:
    parts = key.replace("[", ".").replace("]", "").split(".")
    return parts[0] not in FOR_ONE_START and not any(part.isdecimal() for part in parts)


class _FileValues:
    """The value of each key without any override; None if the file alone is no configuration."""

    def __init__(self, load: Callable[[Sequence[str]], RunConfig]) -> None:
        try:
            self._values: object = load(()).model_dump(mode="json")
        except ConfigError:
            self._values = None

    def __getitem__(self, key: str) -> object:
        value = self._values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value
