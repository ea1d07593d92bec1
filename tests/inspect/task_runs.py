"""Runs of the tasks of `own_tasks.py`, asked of its scripted models."""

from pathlib import Path

import yaml
from live_runs import ENDED, Site
from typer.testing import Result

SKILLS = ("p95", "p10")


def scripted(*skills: str) -> list[dict[str, object]]:
    return [{"name": skill, "inspect": f"scripted/{skill}"} for skill in skills]


def write(site: Site, task: str | None, name: str = "run", **more: object) -> Path:
    """A configuration of one of the tasks, or without one, for scripted models."""
    benchmark = {"inspect": f"tasks.py@{task}", **more.pop("benchmark", {})}  # type: ignore[dict-item]
    settings = {
        **({} if task is None else {"benchmark": benchmark}),
        "models": scripted(*SKILLS),
        "trials": {"min": 2, "max": 4, "optimize": "cost"},
        "stopping": {"on_alarm": "never"},
        "store": str(site.folder / "runs"),
        **more,
    }
    path = site.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def run(site: Site, config: Path, *options: object) -> Result:
    return site.run(config, "--run-dir", str(site.directory(config.stem)), *map(str, options))


def done(site: Site, config: Path, *options: object) -> Result:
    """The same, of a run that comes to its end."""
    ended = run(site, config, *options)
    assert ended.exit_code in ENDED, ended.output
    return ended
