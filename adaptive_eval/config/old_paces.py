"""Names that earlier versions had for paces: configuration files may have them for one version more, stored runs for
good."""

from collections.abc import Mapping
from typing import Any

OLD_NAMES = {"cost": "answers", "balanced": "time", "soon": "time", "servers": "time", "batches": "answers"}
"""What is the nearest to each now."""
RAN_AHEAD = {"cost": 0, "soon": 0, "balanced": 60, "time": 360}
"""Trials of a model that ran ahead of a look, where all models went in step."""
MOST_AHEAD = 0.15


def in_new_names(sections: Mapping[str, Any], questions: int) -> Mapping[str, Any]:
    """The sections of a stored run by the names of today; one whose models went in step keeps its rounds."""
    trials, allocation = sections.get("trials"), sections.get("allocation")
    old = isinstance(trials, dict) and "hour_is_worth" in trials  # which every earlier version has stored
    if not old or not isinstance(trials, dict) or not isinstance(allocation, dict):
        return sections
    was, most = str(trials.get("favour")), trials.get("max")
    trials = {key: value for key, value in trials.items() if key != "hour_is_worth"}
    if was in RAN_AHEAD:
        share = MOST_AHEAD * most if isinstance(most, int) else 0.0
        ahead = round(min(RAN_AHEAD[was] / max(questions, 1), share))
        allocation = {
            **allocation,
            "lookahead": ahead if allocation.get("lookahead") is None else allocation["lookahead"],
        }
        trials["favour"] = "answers"
    elif was in OLD_NAMES:
        trials["favour"] = OLD_NAMES[was]
    return {**sections, "trials": trials, "allocation": allocation}
