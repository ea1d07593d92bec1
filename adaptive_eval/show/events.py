"""Events as sentences."""

from collections.abc import Mapping

from adaptive_eval.errors import headline
from adaptive_eval.show.text import duration, safe
from adaptive_eval.store import Event, EventKind

NAMED = 3
"""Files that one sentence names."""


def sentence(event: Event) -> str | None:
    """What happened, in one line; None where it shows anyway."""
    body = event.body
    match event.kind:
        case EventKind.SET_ASIDE:
            return safe(f"{body['model']} is set aside: {_reason(body)}", longest=400)
        case EventKind.NOTICED:
            return safe(f"{body['model']}: {body['text']}", longest=400)
        case EventKind.REPLICA_LOST:
            return safe(
                f"{body['model']}: {body['replica']} is lost; its requests go elsewhere or wait until it is back"
            )
        case EventKind.REPLICA_BACK:
            return safe(f"{body['model']}: {body['replica']} is back")
        case EventKind.RETRYING:
            errors = body["errors"]
            assert isinstance(errors, dict)
            kinds = ", ".join(f"{number} {str(kind).replace('_', ' ')}" for kind, number in errors.items())
            silence = f"no answer for {body['seconds']} s, its requests are repeated"
            return safe(f"{body['model']}: {silence} (errors so far: {kinds})", longest=400)
        case EventKind.WAITING:
            return safe(f"waiting for {body['on']}, which {body['by']} has", longest=400)
        case EventKind.LAUNCHING:
            where = f" on {body['on']}" if "on" in body else ""
            waited = f" after {duration(float(str(body['waited'])))} of waiting" if "waited" in body else ""
            return safe(f"{body['model']}: its server is started{where}{waited} (log: {body['log']})", longest=400)
        case EventKind.LAUNCHED:
            version = "" if body["version"] is None else f", version {body['version']}"
            return safe(f"{body['model']}: its server is ready after {duration(float(str(body['seconds'])))}{version}")
        case EventKind.SERVER_DIED:
            again = f"it is started again ({body['restart']} of {body['of']})"
            return safe(f"{body['model']}: {_reason(body)}; {again}", longest=400)
        case EventKind.RESUMED:
            return f"resumed with {body['trials']} stored trials"
        case EventKind.CONFIGURED:
            changes = body["changes"]
            assert isinstance(changes, list)
            return safe("settings changed: " + ", ".join(str(change["path"]) for change in changes))
        case EventKind.IMPORTED:
            files = body["files"]
            assert isinstance(files, list)
            more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
            return safe(f"begins with {body['trials']} trials imported from {', '.join(files[:NAMED])}{more}")
        case EventKind.PRIOR:
            return safe(f"outcomes of the run {body['run']} count as R0")
        case EventKind.REGRADING:
            return f"grading {body['trials']} stored answers that have no grade yet; Ctrl-C leaves them for later"
        case EventKind.REGRADED if "of" in body:
            return f"graded {body['so_far']} of {body['of']} stored answers again"
        case EventKind.REGRADED:
            return f"graded {body['trials']} stored answers again"
        case EventKind.STOPPED if "error" in body:
            return safe(f"stopped by an error: {_reason(body)}", longest=400)
        case _:
            return None


def _reason(body: Mapping[str, object]) -> str:
    return headline(str(body["reason"]))
