"""What processes of tests are forked from: the package, and the boundaries that most of their runs would solve for."""

from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from live_runs import Site
from made_once import make_once

from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.core import Bench, Controller, Outcome

for _name in ("__main__", "cli.run", "report.verified", "running.event_loop", "running.start", "running.simulator"):
    import_module(f"adaptive_eval.{_name}")
with suppress(ImportError):
    import_module("uvloop")
make_once()

with TemporaryDirectory() as _folder:
    _site = Site.make(Path(_folder), "http://127.0.0.1:9/v1")
    for _trials in ({"min": 4, "max": 30}, {"min": 2, "max": 12}):
        _plan = prepare(load_config(_site.write(trials=_trials))).plan
        _toy = Controller(replace(_plan, bench=Bench(models=2, questions=1, weights=_plan.bench.weights)))
        while not _toy.looks:
            _toy.tell([Outcome(ask.model, ask.question, ask.trial, ask.trial % 2) for ask in _toy.ask(100)])
