"""An import as a run: its directory is made beside its place, and gets its name when all is there."""

import math
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.config.run import RunConfig
from adaptive_eval.errors import ConfigError, StoreError
from adaptive_eval.importing.conclude import conclude
from adaptive_eval.importing.configure import (
    CONFIG_FILE,
    LEAST,
    QUESTIONS_FILE,
    Found,
    config_text,
    question_lines,
    question_of,
    run_name,
    runnable,
    stored_config_of,
    tree_of,
)
from adaptive_eval.importing.gather import Gathering
from adaptive_eval.importing.terms import Terms
from adaptive_eval.questions import Question
from adaptive_eval.results import Results
from adaptive_eval.run.meaning import run_header
from adaptive_eval.store import Draft, Event, EventKind, TrialRecord


class Finished(NamedTuple):
    """A run that is there."""

    results: Results | None
    runnable: bool


@contextmanager
def run_drafted(path: Path) -> Iterator["RunDraft"]:
    """A run to be filled, which is at `path` in the end; whatever goes wrong, nothing is."""
    if path.exists():
        raise ConfigError(f"{path} is there already; import into a new directory")
    directory = path.with_name(f".{path.name}.draft-{os.getpid()}")
    try:
        directory.mkdir(parents=True)
        draft = RunDraft(directory, path)
        try:
            yield draft
        finally:
            draft.close()
        directory.rename(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}; give another --to") from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class RunDraft:
    """Takes graded trials, and makes a run of them."""

    def __init__(self, directory: Path, place: Path) -> None:
        self._directory, self._place = directory, place
        self._draft = Draft.begin(directory)
        self._open = True

    def take(self, records: Iterable[TrialRecord]) -> None:
        """Keep trials."""
        self._draft.add(records)

    def finish(self, gathering: Gathering, terms: Terms) -> Finished:
        """Write what the run is, and what it has found."""
        for model, key in gathering.gaps:
            self._draft.renumber(model, key)
        if terms.request.config is not None and terms.questions is not None:
            config, questions, can_go_on = terms.request.config, terms.questions, True
        else:
            questions = tuple(question_of(key, one) for key, one in gathering.asked.items())
            can_go_on = runnable(questions)
            config = self._configured(found_by(gathering, questions, terms, run_name(self._place)), can_go_on)
        self._draft.finish(run_header(config, questions), gathering.keys, [_event(gathering, terms)])
        self.close()
        return Finished(conclude(self._directory, config), can_go_on)

    def close(self) -> None:
        """Close the database; what is not finished is lost."""
        if self._open:
            self._open = False
            self._draft.close()

    def _configured(self, found: Found, can_go_on: bool) -> RunConfig:
        """The configuration of what was found, which is written beside the run."""
        tree = tree_of(found)
        (self._directory / CONFIG_FILE).write_text(config_text(tree, can_go_on), encoding="utf-8")
        lines = "".join(f"{line}\n" for line in question_lines(found.questions))
        (self._directory / QUESTIONS_FILE).write_text(lines, encoding="utf-8")
        return stored_config_of(tree, self._place.absolute())


def found_by(gathering: Gathering, questions: tuple[Question, ...], terms: Terms, name: str) -> Found:
    """What the logs have."""
    trials, request = gathering.trials, terms.request
    least = min(LEAST, *trials.values())
    by_model: dict[str, int] = defaultdict(int)
    for (model, _), number in trials.items():
        by_model[model] += max(number, least)
    return Found(
        name=name,
        models=gathering.models,
        questions=questions,
        least=least,
        most=math.ceil(max(by_model.values()) / len(questions)),
        grader=request.grader,
        weights=request.weights,
        finished=request.finished,
    )


def _event(gathering: Gathering, terms: Terms) -> Event:
    """Where the run's first trials come from: files by their names alone, since reports are published."""
    missing: Mapping[str, Mapping[str, int]] = gathering.missing
    body = {
        "trials": sum(gathering.trials.values()),
        "files": list(dict.fromkeys(gathering.files)),
        "without_text": gathering.without_text,
        "missing": missing,
        "graded_by": None if terms.grader is None else getattr(terms.grader, "kind", None),
    }
    return Event(EventKind.IMPORTED, body)
