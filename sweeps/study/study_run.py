"""A study in its directory, and who works on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sweeps.plan.experiment import Task, measure
from sweeps.run.executor import execute
from sweeps.run.outcome import Outcome
from sweeps.run.progress import Progress
from sweeps.run.store import RunDirectory
from sweeps.study.contenders import Finale
from sweeps.study.journal import JOURNAL, Journal, finished
from sweeps.study.study_spec import Study

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

RETRIES = 2
"""How often a task is begun again whose worker died (assumed)."""


class StudyFailed(Exception):
    """The study cannot go on, through no fault of the input."""

    exit_code = 1


class StudyInterrupted(Exception):
    """Ctrl-C; what was finished is kept."""

    exit_code = 130


@dataclass
class Workers:
    """Where tasks are done: so many processes here, or a Dask scheduler's."""

    jobs: int
    cluster: str | None = None

    def outcomes(self, tasks: list[Task]) -> Iterator[Outcome]:
        """Outcomes as they come."""
        with closing(execute(measure, tasks, self.jobs, self.cluster, RETRIES)) as found:
            yield from found


@dataclass
class StudyRun:
    """A study in its directory."""

    study: Study
    directory: RunDirectory
    workers: Workers
    progress: Progress
    rates: dict[int, float | None] = field(default_factory=dict)
    """Requests a second that everything is offered, by replication."""
    total: int = 0
    failures: list[str] = field(default_factory=list)
    finale: Finale | None = None
    _journal: Journal | None = None

    @property
    def journal(self) -> Journal:
        """The journal, which is there once the study is in its directory."""
        assert self._journal is not None
        return self._journal

    @property
    def is_open(self) -> bool:
        """Whether anything is written yet."""
        return self._journal is not None

    def open_journal(self) -> None:
        """Open the journal of the directory."""
        directions = [objective.direction for objective in self.study.spec.objectives]
        self._journal = Journal(self.directory.path / JOURNAL, self.study.spec.name, directions)

    def finished_trials(self) -> list[FrozenTrial]:
        """Finished trials."""
        return [trial for trial in self.journal.trials() if finished(trial)]
