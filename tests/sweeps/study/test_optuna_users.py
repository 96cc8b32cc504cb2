"""Do Optuna's own tools read what a study leaves, and can its objective be called by them?"""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

import bankwise
from hwmodel.description.description import DescriptionError
from sweeps.study.storage_copy import copy_journal, refuse_storage
from tests.sweeps.study.studies import BARE, results, run, tiny


def journal(path: Path) -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(path / "journal.log")))
    return optuna.load_study(study_name="quick", storage=storage)


def test_what_breaks_a_constraint_is_not_the_best_of_any_tool(tmp_path: Path) -> None:
    """optuna-dashboard 0.21 asks the storage for the best trial, which knows nothing of
    constraints (its `_app.py`), and shows as infeasible what has a number above zero in the list of
    this attribute (its `_serializer.py`)."""
    run(tiny("constraints=[{metric: utilization, at_least: 0.5}]"), tmp_path / "run")
    study = journal(tmp_path / "run")
    records = {r["trial"]: r for r in results(tmp_path / "run")}
    breaking = {n for n, r in records.items() if any(v > 0 for v in r["constraints"].values())}
    kept = records.keys() - breaking
    assert breaking and kept
    assert {n for n in records if records[n]["state"] == "infeasible"} == breaking
    for trial in study.trials:
        listed = trial.system_attrs["constraints"]
        assert any(v > 0 for v in listed) is (trial.number in breaking)
        assert trial.value == records[trial.number]["values"]["output_tokens_per_s"]
    best = max(kept, key=lambda n: records[n]["values"]["output_tokens_per_s"])
    assert study.best_trial.number == best
    assert study._storage.get_best_trial(study._study_id).number == best


def test_a_study_is_copied_to_any_storage_and_goes_on_there(tmp_path: Path) -> None:
    out, url = tmp_path / "run", f"sqlite:///{tmp_path}/studies.db"
    run(tiny("trials=2"), out)
    refuse_storage(url, "run", resume=False)
    assert copy_journal(out, "quick", url, "run") == 2
    with pytest.raises(DescriptionError, match="has a study 'run' already"):
        refuse_storage(url, "run", resume=False)
    run(tiny("trials=3"), out, resume=True)
    refuse_storage(url, "run", resume=True)
    assert copy_journal(out, "quick", url, "run") == 1
    theirs = optuna.load_study(study_name="run", storage=url).trials
    assert [(t.params, t.values) for t in theirs] == [
        (t.params, t.values) for t in journal(out).trials
    ]
    run(tiny("trials=2", "sampler.seed=2", "first=[]"), tmp_path / "b")
    with pytest.raises(DescriptionError, match="has other trials"):
        copy_journal(tmp_path / "b", "quick", url, "run")
    with pytest.raises(DescriptionError, match="cannot be opened"):
        refuse_storage("nothing://here", "run", resume=False)


def test_the_objective_prunes_what_cannot_be_served_and_sets_constraints() -> None:
    small = "space.serving.policy.pool_share={choice: [0.0, 0.05]}"
    objective = bankwise.objective(
        "quick",
        set=[*BARE, small, "first=[]", "constraints=[{metric: utilization, at_least: 0.5}]"],
    )
    own = optuna.create_study(directions=objective.directions)
    for share in (0.0, 0.05):
        own.enqueue_trial({"serving.policy.pool_share": share})
    own.optimize(objective, n_trials=2)
    served, refused = own.trials
    assert refused.state is TrialState.PRUNED and refused.constraints
    assert [*served.constraints] == ["utilization >= 0.5"] and served.value is not None


def test_a_study_of_fleets_has_no_objective_of_one_trial() -> None:
    with pytest.raises(DescriptionError, match="no objective of one trial"):
        bankwise.objective("cheapest-fleet")
