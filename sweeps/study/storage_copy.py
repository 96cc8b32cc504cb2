"""A study's journal, copied to any storage of Optuna, under the name of its run directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hwmodel.description.description import DescriptionError
from sweeps.study.journal import JOURNAL

if TYPE_CHECKING:
    pass

_OPTION = "--storage"


def refuse_storage(url: str, name: str, resume: bool) -> None:
    """Raise DescriptionError where the storage cannot be opened, or has a study of this name that
    is not to be gone on with."""
    if name in _names(url) and not resume:
        raise DescriptionError(f"{url} has a study {name!r} already; --out names another", _OPTION)


def copy_journal(directory: Path, study_name: str, url: str, name: str) -> int:
    """Copy the trials of a journal; those that are there, from before a study went on, stay.
    Returns how many were added. Raises DescriptionError where others are there."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    journal = JournalStorage(JournalFileBackend(str(directory / JOURNAL)))
    ours = optuna.load_study(study_name=study_name, storage=journal)
    if name not in _names(url):
        optuna.copy_study(
            from_study_name=study_name, from_storage=journal, to_storage=url, to_study_name=name
        )
        return len(ours.trials)
    theirs = optuna.load_study(study_name=name, storage=url)
    there = [trial.params for trial in theirs.trials]
    if there != [trial.params for trial in ours.trials[: len(there)]]:
        raise DescriptionError(f"{url} has other trials in its study {name!r}", _OPTION)
    more = ours.trials[len(there) :]
    theirs.add_trials(more)
    return len(more)


def _names(url: str) -> list[str]:
    """Of the studies in a storage. Raises DescriptionError where it cannot be opened."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.get_all_study_names(storage=url)
    except Exception as error:  # of whichever database it is
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DescriptionError(f"{url} cannot be opened: {first}", _OPTION) from None
