"""Events as sentences."""

from collections.abc import Mapping
from math import exp

from adaptive_eval import notes
from adaptive_eval.base.errors import first_line, stop_in_words
from adaptive_eval.base.lists import first_few
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.core.types import Cause
from adaptive_eval.notes import Change, Event
from adaptive_eval.report.changes import single_changes
from adaptive_eval.report.lines import duration, safe_line, several

MAX_NAMES = 3
"""Files, or models, named in one sentence."""
MAX_SETTINGS = 8
"""Settings named in one sentence."""
MAX_LENGTH = 400


def event_sentence(event: Event) -> str | None:
    """Describe an event in one line; None if displays show it in another way."""
    sentence = _model_sentence(event) or _run_sentence(event)
    return None if sentence is None else safe_line(sentence, longest=MAX_LENGTH)


def _model_sentence(event: Event) -> str | None:
    match event:
        case notes.ModelSetAside(cause=Cause.ANSWERS):
            return None  # its alarm says it
        case notes.ModelSetAside():
            return f"{event.model} is set aside: {first_line(event.reason)}"
        case notes.AlarmRaised():
            return f"ALARM {event.model}: {event.text.partition(';')[0]}"
        case notes.AnswersLost(discarded=True):
            return f"{event.model}: {event.answers} answers that an alarm is about are discarded and requested again"
        case notes.AnswerUngraded():
            return f"{event.model}: no grade on question {event.question}: {first_line(event.error)}; the run goes on"
        case notes.ServersNoticed():
            return f"{event.model}: {event.text}" if event.model else event.text
        case notes.ReplicaLost():
            why = "" if event.reason is None else f" ({first_line(event.reason)})"
            waits = "its requests go elsewhere or wait until it is back"
            return f"{event.model or f'judge {event.judge}'}: {event.replica} is lost{why}; {waits}"
        case notes.ReplicaBack():
            return f"{event.model or f'judge {event.judge}'}: {event.replica} is back"
        case notes.OnlyFailures():
            kinds = ", ".join(f"{kind.replace('_', ' ')} {number}" for kind, number in event.errors.items())
            last = "" if event.last is None else f"; the last one: {first_line(event.last)}"
            silence = f"no answer for {event.seconds} s, requests are being retried"
            return f"{event.model or f'judge {event.judge}'}: {silence} (errors so far: {kinds}{last})"
        case notes.ServerLaunching():
            where = "" if event.on is None else f" on {event.on}"
            waited = "" if event.waited is None else f" after {duration(event.waited)} of waiting"
            begins = "waking" if event.wakes else "starting"
            return f"{event.model}: {begins} its server{where}{waited} (log: {event.log})"
        case notes.ServerLaunched():
            version = "" if event.version is None else f", version {event.version}"
            return f"{event.model}: its server is ready after {duration(event.seconds)}{version}"
        case notes.SiteAwaited():
            return f"{event.model}: {event.on} waits for a place with {event.asked}: {event.missing}"
        case notes.SitePlaced():
            gpus = "" if event.devices is None else f" (GPUs {event.devices})"
            return f"{event.model}: {event.on} has its place after {duration(event.seconds)}, on {event.node}{gpus}"
        case notes.SiteLost():
            what = "its requests are retried, and it is placed again"
            return f"{event.model}: {event.on} on {event.node} is lost ({first_line(event.reason)}); {what}"
        case notes.ServerRests():
            return f"{event.model}: no requests for now; its server is stopped, and restarted if needed"
        case notes.ModelSettled():
            freed = " Its server is stopped." if event.launched else ""
            return f"{event.model} is done: no more requests.{freed}"
        case notes.BatchTaken():
            return f"{event.model}: submitted a batch of {several(event.size, 'request')} ({event.batch})"
        case notes.BatchEnded():
            missing = f", {event.missing} missing" if event.missing else ""
            return f"{event.model}: a batch has ended ({event.status}): {several(event.came, 'answer')}{missing}"
        case notes.ServerDied():
            again = f"restarting it ({event.restart} of {event.of})"
            return f"{event.model}: {first_line(event.reason)}; {again}"
    return None


def _changed_path(change: Change) -> str:
    """The path of a change; of a section, such as a model, whether it is new or was removed."""
    if isinstance(change.was, Mapping) and change.now is None:
        return f"{change.path} (removed)"
    return f"{change.path} (new)" if isinstance(change.now, Mapping) and change.was is None else change.path


def _run_sentence(event: Event) -> str | None:
    match event:
        case notes.PlaceAwaited():
            return f"waiting for {event.on}, which is used by {event.by}"
        case notes.RunResumed():
            return f"resumed with {event.trials:,} stored trials"
        case notes.SettingsChanged():
            paths = list(map(_changed_path, single_changes(event.changes)))
            return f"settings changed: {first_few(paths, MAX_SETTINGS)}"
        case notes.LooksRetaken():
            return (
                f"the stored answers are judged again, in other rounds than at the {event.looks} looks before: "
                "verdicts may differ from those reported then"
            )
        case notes.GraderChosen():
            return (
                f"graded by {event.grader} from now on, which agrees with the grades of {event.compared} stored answers"
            )
        case notes.TrialsImported():
            return f"started with {several(event.trials, 'trial')} imported from {first_few(event.files, MAX_NAMES)}"
        case notes.PriorTaken():
            seeds = "; they have this run's seeds, and may be the same answers" if event.same_seeds else ""
            return f"outcomes of the run {event.run} count in the scores (R0){seeds}"
        case notes.OutcomesRecorded():
            trials = sum(category is not None for row in event.outcomes.values() for category in row)
            return f"{event.model} is recorded: {trials:,} outcomes of the run {event.run} are used"
        case notes.ThresholdsFrozen():
            fitted = [f"{name} {plain_number(value, 4)}" for name, value in event.values.items()]
            fitted += [f"the usual length of {several(len(event.medians), 'question')}"] if event.medians else []
            basis = f"thresholds frozen, from {sum(event.models.values())} trials of the run {event.run}"
            return f"{basis}: {', '.join(fitted)}" if fitted else basis
        case notes.BaselineAsked(scores=[_, *_]):
            shares = ", ".join(plain_number(exp(score), 3) for score in event.scores)
            return f"without content, the verifier gives its labels A, B and C the probabilities {shares}"
        case notes.RegradingBegun():
            waiting = f"{several(event.trials, 'stored answer')} {'has' if event.trials == 1 else 'have'} no grade yet"
            if event.late:
                return f"{waiting}; the time is over, and those for a judge wait until that limit is raised"
            return f"{waiting} and {'is' if event.trials == 1 else 'are'} graded now; Ctrl-C postpones this"
        case notes.TrialsRegraded():
            graded = (event.trials if event.so_far is None else event.so_far) - (event.failed or 0)
            of = "" if event.of is None else f" of {event.of}"
            failed = f"; {event.failed} got no grade" if event.failed else ""
            short = "; the budget does not cover more verdicts" if event.short_caps else ""
            return f"graded {graded}{of} stored answers again{failed}{short}"
        case notes.RunStopped(reason=str(reason)):
            return stop_in_words(first_line(reason), event.exit_code)
    return None
