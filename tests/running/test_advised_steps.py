"""Whoever types the command that a run advises, again and again, gets a decision."""

import json
import re
import shlex

import pytest
from command_line import typed
from live_runs import Site, models_at

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.core import horizons


@pytest.mark.slow
def test_larger_limits_and_then_a_larger_delta_decide_what_is_open(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models are one and the same."""
    monkeypatch.setattr(horizons, "MAX_TRIALS", 60)
    monkeypatch.setattr(horizons, "MAX_TIMES", 3)
    models = [{"name": name, "model": name[:3], "base_url": site.base_url} for name in ("ada", "bob", "bob-again")]
    ended = site.run(site.write(models=models, trials={"min": 2, "max": 8}, budget={"trials": 20}))
    changed = list[str]()
    while ended.exit_code != ExitCode.REACHED and len(changed) < 10:
        assert ended.exit_code == ExitCode.SPENT, ended.output
        command = re.findall(r"^ +adaptive-eval (run .*)$", ended.stdout.rpartition("to do ")[2], re.MULTILINE)[0]
        settings = [word.partition("=")[0] for word in shlex.split(command) if "=" in word]
        assert len(settings) == len({*settings}), "a value is replaced, not added"
        changed.append(settings[-1])
        ended = typed(*shlex.split(command.replace("DELTA", "0.3")), "--display", "plain")
    assert ended.exit_code == ExitCode.REACHED, ended.stdout
    assert changed[0] == "budget.trials" and changed[-1] == "stopping.delta" and "trials.max" in changed


def test_a_new_run_has_the_settings_that_earlier_commands_have_set_and_a_folder_of_its_own(site: Site) -> None:
    models = models_at(site.base_url, "ada", "bob")
    gate = site.write(models=models, objective={"kind": "baseline", "baseline": "ada", "gate": True}, trials={"max": 8})
    here, warmer = ("--run-dir", site.folder / "gate"), ("--set", "sampling.temperature=0.7")
    site.run(gate, *here, "--set", "stopping.delta=0.35", *warmer)
    (site.folder / "gate-2").mkdir()
    again = site.run(gate, *here, *warmer)
    (command,) = re.findall(r"for a new build, start over:\n +adaptive-eval (run .*)$", again.stdout, re.MULTILINE)
    assert typed(*shlex.split(command)).exit_code == again.exit_code
    new, old = (json.loads((site.folder / name / "results.json").read_bytes()) for name in ("gate-3", "gate"))
    assert new["decisions"] == old["decisions"] and new["decisions"]["stopping"]["delta"] == 0.35
    assert {row["sampling"]["temperature"] for row in new["models"]} == {0.7}
