"""Makes the report of a stored run anew, as when labels were given after its last look. Nothing is requested."""

from contextlib import closing, suppress
from pathlib import Path

from adaptive_eval.base.errors import RunLocked
from adaptive_eval.config.prepare import stored_setup
from adaptive_eval.machine.events import Opened, Tick
from adaptive_eval.report.ending import was_killed
from adaptive_eval.report.label_effect import read_run_labels
from adaptive_eval.report.make import Reporter
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.stored import StoredRun, has_current_labels
from adaptive_eval.running.settings_of_run import awaited_models, missing_looks, replay_stored
from adaptive_eval.store.lock import is_held
from adaptive_eval.store.write import RunStore


def apply_labels(directory: Path) -> None:
    """Bring the report of a run up to date with its labels.

    The process that carries on a run does this itself, and a plug-in that only a stored configuration names is not
    loaded: then the report stays as it is.
    """
    if is_held(directory):
        return
    with closing(RunReader.open(directory)) as reader:
        results = StoredRun(reader).results(running=True, rows=False, sums=False)
        header = reader.header()
    if results is None or has_current_labels(results, directory) or stored_setup(header).config.plug_ins:
        return
    with suppress(RunLocked), closing(RunStore.open(directory, header)) as store:
        _make_report(store)


def _make_report(store: RunStore) -> None:
    """Replay the log of a run, and store the report of its end."""
    log, reader = store.reader, RunReader(store.reader)
    setup, events = stored_setup(reader.header()), reader.events()
    machine = replay_stored(log, setup.config, setup.questions)
    looks = missing_looks(machine, reader)  # if settings changed in a start that was killed before a look
    # what the machine would do now is not done: only why the run has ended is wanted
    machine.handle(Tick(reader.log.elapsed, sum(time.gpu_seconds for time in reader.held_times().values())))
    waited = awaited_models(events, log.models(), reader.trial_count())
    machine.handle(Opened(last=store.last_seq, waited=waited))
    labels = read_run_labels(reader, setup.config, setup.roster)
    reporter = Reporter(setup.config, setup.questions, reader.log.created, lambda: labels)
    draft = reporter.draft(machine, is_over=not was_killed(events))
    if draft is not None:
        store.commit([*enumerate(looks, store.last_seq + 1)], report=draft)
        draft.publish(store)
