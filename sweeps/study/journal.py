"""The journal of a study: Optuna's own file, with one writer; every line is one whole event.

A trial is written with all its parameters at once, and its result as one attribute before it is
told, so that wherever the writer stops, a trial is not there, or asked for, or told.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from hwmodel.description.yaml_writer import plain
from sweeps.run.store import trim

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

Direction = Literal["maximize", "minimize"]
JOURNAL = "journal.log"
RESULT = "result"
"""Attribute of a trial: everything that is known of it, as `results.jsonl` has it."""
_CONSTRAINTS = "constraints"
_STATES = {
    "complete": "COMPLETE", "pruned": "PRUNED", "infeasible": "PRUNED", "failed": "FAIL",
}  # fmt: skip
"""Ours -> Optuna's, whose samplers learn from what is pruned: the infeasible have constraints
above zero besides. Were they complete, optuna-dashboard (0.21) would take one for the best: it asks
the storage, which knows nothing of constraints."""


class Journal:
    """One study in one file.

    optuna.load_study(study_name=name, storage=JournalStorage(JournalFileBackend(path))) reads it.
    """

    def __init__(self, path: Path, name: str, directions: Sequence[Direction]) -> None:
        import optuna  # heavy
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        lock = _Lock(path)
        lock.acquire()
        try:
            with path.open("r+b") as file:
                trim(file)
        finally:
            lock.release()
        self._path = path
        storage = JournalStorage(JournalFileBackend(str(path), lock_obj=lock))  # type: ignore[arg-type]
        with self._written():
            self._study = optuna.create_study(
                storage=storage, study_name=name, directions=list(directions), load_if_exists=True,
                sampler=optuna.samplers.RandomSampler(seed=0),  # it is never asked
            )  # fmt: skip

    def trials(self) -> list[FrozenTrial]:
        """All of them, by number."""
        return self._study.get_trials(deepcopy=False)

    def ask(self, params: Mapping[str, Any], distributions: dict[str, BaseDistribution]) -> None:
        """A trial with the next number is under way."""
        with self._written():
            self._study.add_trial(running(params, distributions))

    def tell(
        self, number: int, result: dict[str, Any], values: Sequence[float] | None,
        rung: float | None = None,
    ) -> None:  # fmt: skip
        """A trial is finished, in the `state` of its result: complete, with its values; pruned,
        where a rung left it out, with its value on the first `rung` as an intermediate one;
        infeasible, with what it violates and its one value, if it has one, in the same way; or
        failed."""
        with self._written():
            self._tell(number, result, values, rung)

    def _tell(
        self, number: int, result: dict[str, Any], values: Sequence[float] | None,
        rung: float | None,
    ) -> None:  # fmt: skip
        import optuna

        trial = optuna.trial.Trial(self._study, self.trials()[number]._trial_id)
        trial.set_user_attr(RESULT, plain(result))
        if violations := [float(each) for each in result["constraints"].values()]:
            # as a list: optuna-dashboard reads no others
            self._study._storage.set_trial_system_attr(trial._trial_id, _CONSTRAINTS, violations)
        state = _STATES[result["state"]]
        if result["state"] == "infeasible":
            rung = values[0] if values is not None and len(values) == 1 else None
        if state == "PRUNED" and rung is not None:
            self._study._storage.set_trial_intermediate_value(trial._trial_id, 0, rung)
        self._study.tell(
            number, values if state == "COMPLETE" else None, state=optuna.trial.TrialState[state]
        )

    def note(self, name: str) -> Any:
        """What was written down under this name, None if nothing was."""
        return self._study.user_attrs.get(name)

    def write_note(self, name: str, value: Any) -> None:
        """Write something down beside the trials."""
        with self._written():
            self._study.set_user_attr(name, plain(value))

    @contextmanager
    def _written(self) -> Iterator[None]:
        """An error of the disk names the file, which Optuna's do not."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None


def running(params: Mapping[str, Any], distributions: dict[str, BaseDistribution]) -> FrozenTrial:
    """A trial under way, of no study yet."""
    from optuna.trial import TrialState, create_trial

    return create_trial(state=TrialState.RUNNING, params=dict(params), distributions=distributions)


def finished(trial: FrozenTrial) -> bool:
    """Whether it was told."""
    return trial.state.is_finished()


class _Lock:
    """A lock on the file itself, which the system takes back when its holder dies. Optuna's own
    leave a file behind then, which keeps others waiting."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._path = path
        self._file: BinaryIO | None = None

    def acquire(self) -> bool:
        self._file = self._path.open("rb")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
