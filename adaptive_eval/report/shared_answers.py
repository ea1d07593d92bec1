"""Answers that two runs have in common, since one was imported from the other, or continues a copy of it."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.notes import TrialsImported, events_of_kind
from adaptive_eval.report.records import TrialFacts
from adaptive_eval.report.stored import StoredRun, open_run


class SharedAnswers(NamedTuple):
    """The graded answers of two runs that are the same ones."""

    number: int = 0
    unknown: bool = False
    """Whether there may be others: one of the runs has answers of logs without their times."""


def shared_answers(first: Path, second: Path) -> SharedAnswers:
    """Count the answers that both runs have. No two answers of a model to a question take exactly as long."""
    with open_run(first) as a, open_run(second) as b:
        imported = [run for run in (a, b) if events_of_kind(run.events, TrialsImported)]
        if not imported and a.reader.log.created != b.reader.log.created:
            return SharedAnswers()
        number = (_timed(a) & _timed(b)).total()
        lack_times = any(not facts.latency for run in imported for facts in run.reader.trial_facts())
        return SharedAnswers(number, unknown=lack_times)


def _timed(run: StoredRun) -> Counter[tuple[object, ...]]:
    return Counter(_identity(facts) for facts in run.reader.trial_facts() if facts.latency)


def _identity(facts: TrialFacts) -> tuple[object, ...]:
    return facts.model, facts.question, facts.latency, facts.prompt_tokens, facts.completion_tokens
