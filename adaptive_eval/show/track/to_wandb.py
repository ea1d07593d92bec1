"""A run in W&B: looks as series over trials, the ranking as a table, figures as images, files as an artifact.

`WANDB_MODE`, `WANDB_API_KEY` and W&B's other environment variables work as usual. Without a network
(`WANDB_MODE=offline`) it writes below the run's `logs/`, for `wandb sync`; each start writes the whole run there.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adaptive_eval.base.imports import load_extra
from adaptive_eval.report.view import RunView
from adaptive_eval.show.track.points import COLUMNS, Point, TrackedRun, draw, ranking, settings, tracked_id, write_files

PROJECT = "adaptive-eval"
INIT_SECONDS = 45.0


class Wandb:
    """One run in W&B."""

    def __init__(self, project: str | None, entity: str | None, group: str | None) -> None:
        self._wandb = load_extra("wandb", "wandb", "runs in W&B")
        self._place = {"project": project or os.environ.get("WANDB_PROJECT") or PROJECT}
        self._place |= {key: name for key, name in (("entity", entity), ("group", group)) if name is not None}

    def begin(self, view: RunView, created: float, directory: Path) -> TrackedRun:
        """Find the tracked run by its id, or begin it."""
        wandb_settings = self._wandb.Settings(
            console="off",
            silent=True,
            init_timeout=INIT_SECONDS,
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_disable_meta=True,  # it would describe this process, not the run
            x_disable_stats=True,
            x_save_requirements=False,
        )
        self._run: Any = self._wandb.init(
            **self._place,
            id=tracked_id(view, created),
            name=view.name,
            resume="allow",
            job_type="evaluation",
            config={**settings(view), "run_directory": str(directory.absolute())},
            dir=os.environ.get("WANDB_DIR") or str(directory / "logs"),
            settings=wandb_settings,
        )
        self._run.config.update(dict(settings(view)), allow_val_change=True)
        self._run.define_metric("*", step_metric="trials")
        looks = 0 if self._run.offline else int(self._run.summary.get("look", 0))
        offline = f"offline: wandb sync {Path(self._run.dir).parent}"
        return TrackedRun(looks, offline if self._run.offline else str(self._run.url))

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            self._run.log(dict(point.values))

    def finish(self, view: RunView, status: str, directory: Path, folder: Path) -> None:
        table = self._wandb.Table(columns=list(COLUMNS), data=ranking(view), allow_mixed_types=True)
        artifact = self._wandb.Artifact(f"run-{self._run.id}", type="evaluation")
        artifact.add(table, "ranking")
        for path in write_files(view, directory, folder):
            artifact.add_file(str(path))
        figures = draw(view, folder / "figures")
        images = {f"figures/{path.stem}": self._wandb.Image(str(path)) for path in figures}
        self._run.log({"ranking": table, **images})
        self._run.log_artifact(artifact)
        self._run.summary["status"] = status
        self._run.summary["reason"] = None if view.results is None else view.results.run.reason
        self._run.finish(exit_code=0 if status == "finished" else 1)
