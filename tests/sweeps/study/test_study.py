"""Do trials hang on the study's YAML and seed alone, and is nothing lost however it is stopped?"""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from hwmodel.description.description import DescriptionError
from sweeps.plan.sweep import load_sweep
from sweeps.run.outcome import Outcome
from sweeps.run.sweep_run import run_sweep
from sweeps.study.journal import Journal
from sweeps.study.study_run import Workers
from sweeps.study.study_spec import load_study
from tests.rotation import long
from tests.sweeps.study.studies import QUIET, TINY, results, run, start, tiny


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted study on one worker."""
    out = tmp_path_factory.mktemp("whole") / "run"
    run(tiny(), out)
    return out


def same(stopped: Path, whole: Path) -> None:
    assert results(stopped) == results(whole)
    bests = [load_sweep(str(folder / "best.yaml")) for folder in (stopped, whole)]
    first, second = ([point.experiment for point in sweep.points] for sweep in bests)
    assert first == second
    numbers = [result["trial"] for result in results(stopped)]
    assert numbers == list(range(10))


def test_a_line_a_trial_in_the_order_of_numbers(whole: Path) -> None:
    found = results(whole)
    assert [result["trial"] for result in found] == list(range(10))
    assert [result["batch"] for result in found] == [0] * 4 + [1] * 4 + [2] * 2
    assert all(result["state"] == "complete" for result in found)
    assert len({json.dumps(result["params"]) for result in found}) == 10
    assert found[0]["seeds"] == [[1, 1]]


def test_optunas_own_tools_read_the_journal(whole: Path) -> None:
    storage = JournalStorage(JournalFileBackend(str(whole / "journal.log")))
    study = optuna.load_study(study_name="quick", storage=storage)
    assert [t.value for t in study.trials] == [
        result["values"]["output_tokens_per_s"] for result in results(whole)
    ]


def test_workers_do_not_change_trials(whole: Path, tmp_path: Path) -> None:
    run(tiny(), tmp_path / "run", jobs=3)
    same(tmp_path / "run", whole)


def test_more_trials_go_on_as_if_never_stopped(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(tiny("trials=2"), out)  # within the first batch
    run(tiny("trials=7"), out, resume=True)  # within the second
    run(tiny(), out, resume=True)
    same(out, whole)
    assert "trials: 10" in (out / "config.yaml").read_text()


@pytest.mark.parametrize("lines", [9, *long(3, 4, 6, 12, 17, 22, 27)])
def test_a_journal_cut_anywhere_comes_to_the_same(lines: int, whole: Path, tmp_path: Path) -> None:
    """Cut after so many whole lines, with a torn one behind them."""
    out = tmp_path / "run"
    out.mkdir()
    for name in ("config.yaml", "calibration.json"):
        (out / name).write_text((whole / name).read_text())
    kept = (whole / "journal.log").read_text().splitlines(keepends=True)[:lines]
    (out / "journal.log").write_text("".join(kept) + '{"op_code":4,"trial_')
    (out / "best.yaml").write_text("of an older trial\n")
    run(tiny(), out, resume=True)
    same(out, whole)


@pytest.mark.parametrize("seed", [1, *long(2, 3, *range(100, 125))])
def test_kill_9_loses_and_repeats_nothing(seed: int, whole: Path, tmp_path: Path) -> None:
    """Kill a real study at a moment between its first line and its end, then go on."""
    rng, out = random.Random(seed), tmp_path / "run"
    process = start(out, "--jobs", str(rng.choice([1, 2])))
    whole_size = (whole / "journal.log").stat().st_size
    enough = rng.random() * whole_size
    while process.poll() is None:
        if (out / "journal.log").is_file() and (out / "journal.log").stat().st_size >= enough:
            time.sleep(rng.random() * 0.05)
            break
        time.sleep(0.001)
    process.kill()
    process.communicate()
    run(tiny(), out, resume=(out / "config.yaml").is_file())
    same(out, whole)
    storage = JournalStorage(JournalFileBackend(str(out / "journal.log")))
    trials = optuna.load_study(study_name="quick", storage=storage).trials
    assert [t.number for t in trials] == list(range(10))
    assert all(t.state.is_finished() for t in trials)


def test_ctrl_c_keeps_what_was_told(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(out, "--jobs", "2")
    file = out / "results.jsonl"
    while not file.is_file() or file.read_bytes().count(b"\n") < 2:
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "trials are kept in" in said and "--resume continues" in said
    run(tiny(), out, resume=True)
    same(out, whole)


def test_a_trial_that_fails_says_why_and_the_study_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = Workers.outcomes

    def second_fails(self: Workers, tasks: list[Any]) -> Any:
        for outcome in outcomes(self, tasks):
            bad = outcome.index == 2
            yield Outcome(outcome.index, error="out of memory") if bad else outcome

    monkeypatch.setattr(Workers, "outcomes", second_fails)
    done = run(tiny("trials=4"), tmp_path / "run")
    states = [(r["trial"], r["state"], r["error"]) for r in results(tmp_path / "run")]
    assert ("failed", "out of memory") in [state[1:] for state in states]
    assert len(states) == 4 and len(done.failures) == 1


def test_the_table_is_measured_for_the_best_so_far(whole: Path) -> None:
    journal = Journal(whole / "journal.log", "quick", ["maximize"])
    tables = [journal.note(f"efficiency of batch {batch}") for batch in range(3)]
    assert [table["trial"] for table in tables[:2]] == [None, None]  # the base
    told = journal.trials()[:4]
    assert tables[2]["trial"] == max(told, key=lambda t: t.value).number
    for result in results(whole):
        assert result["efficiency"] == tables[result["batch"]]["efficiency"]


@pytest.mark.long
def test_the_finale_is_on_replications_that_no_trial_saw(tmp_path: Path) -> None:
    small = [item for item in TINY if not item.startswith("trials")]
    study = load_study("quick", [*small, "trials=4", "memory=table"])
    done = run(study, tmp_path / "run")
    finale = done.finale
    assert finale is not None
    assert (list(finale.choosing), list(finale.judging)) == ([2], [3, 4])
    tried = {c.name for c in finale.tried}
    assert 2 <= len(tried) <= 3  # the two best, and the best of those that came first, if another
    assert tried <= {f"trial {number}" for number in range(4)}
    assert [c.name for c in finale.others] == ["base", "static", "oracle", "paper (trial 1)"]
    again = run(study, tmp_path / "run", resume=True).finale  # nothing is served twice
    assert again is not None and again.best.metrics == finale.best.metrics
    best_yaml = str(tmp_path / "run" / "best.yaml")
    assert load_sweep(best_yaml).spec.summary.startswith(f"{finale.best.name} of study quick")
    sets = ["requests=10", "warmup_requests=60", "replications=1", "fidelity=analytic"]
    sweep = run_sweep(load_sweep(best_yaml, sets), tmp_path / "best", False, 1, QUIET)
    assert len(sweep.records) == 4


def test_another_study_is_not_resumed(whole: Path) -> None:
    with pytest.raises(DescriptionError, match=r"cannot resume: sampler\.seed is 1 there and 2"):
        run(tiny("sampler.seed=2"), whole, resume=True)
