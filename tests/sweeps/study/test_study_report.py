"""Does a study's report say what its trials and its finale show?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweeps.analyse.figures import THROUGHPUT
from sweeps.report.contents import read_report
from sweeps.report.markdown import markdown
from sweeps.report.page import page
from sweeps.run.store import CONFIG, RunDirectory
from sweeps.study.trials import FINALE, StudyGain, importances
from tests.sweeps.made import PROVENANCE

CONFIG_OF_STUDY: dict[str, Any] = {
    "kind": "study", "name": "made", "summary": "made by hand", "trials": 20,
    "base": {"serving": {"policy": {"name": "odma", "gamma": 0.2}}, "replications": 2},
    "space": {"serving.policy.gamma": {"range": [0.0, 1.0]},
              "serving.policy.align": {"choice": [16, 64]},
              "serving.policy.order": {"choice": ["a", "b"]}},
    "objectives": [{"metric": THROUGHPUT, "direction": "maximize"},
                   {"metric": "ttft_s.p99", "direction": "minimize"}],
    "variants": {name: {"set": {"serving.policy": name}, "role": "reference"}
                 for name in ("static", "oracle")},
    "ceilings": ["oracle"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeps.study.trials.RESAMPLES", 10)


def trial(number: int) -> dict[str, Any]:
    """The objective follows gamma; align and order are noise; trial 3 fails, trial 4 breaks."""
    gamma = (number * 7 % 20) / 20
    rate = 100 + 50 * gamma
    record: dict[str, Any] = {
        "trial": number, "batch": 0, "state": "complete", "error": None,
        "params": {"serving.policy.gamma": gamma, "serving.policy.align": 16 + 48 * (number % 2),
                   "serving.policy.order": "ab"[number // 2 % 2]},
        "overrides": {"serving.policy.gamma": gamma, "serving.policy.align": 16 + 48 * (number % 2),
                      "serving.policy.order": "ab"[number // 2 % 2]},
        "values": {THROUGHPUT: rate, "ttft_s.p99": 1.0 + gamma}, "constraints": {"x <= 1": -1.0},
        "metrics": {THROUGHPUT: rate, "utilization": 0.5},
    }  # fmt: skip
    if number == 3:
        record |= {"state": "failed", "values": None, "metrics": {}}
    if number == 4:
        record["constraints"] = {"x <= 1": 0.5}
    return record


def study(path: Path, rates: dict[str, float] | None = None, finale: bool = True) -> Path:
    run = RunDirectory(path)
    run.create(CONFIG_OF_STUDY, PROVENANCE, {})
    for number in range(20):
        run.append(trial(number))
    run.release()
    told = {"trial 17": 147.5, "base": 110.0, "static": 60.0, "oracle": 160.0} | (rates or {})
    lines = [
        {"contender": name, "trial": 17 if name == "trial 17" else None, "rival": None,
         "overrides": {}, "replication": r,
         "metrics": {THROUGHPUT: rate * (1 + r / 100), "phase_share.weights": 0.5}}
        for name, rate in told.items() for r in (5, 6, 7)
    ]  # fmt: skip
    lines.append(
        {
            "contender": "trial 2",
            "trial": 2,
            "rival": None,
            "overrides": {},
            "replication": 3,
            "metrics": {},
        }
    )
    if finale:
        (path / FINALE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def gain(path: Path) -> StudyGain:
    found: StudyGain = read_report(path).findings.own.gain
    return found


@pytest.mark.parametrize(
    ("first", "rates", "best", "sign"),
    [
        ({0: "base"}, {}, "base", 1),
        ({0: "base", 5: "paper"}, {"paper (trial 5)": 147.5}, "paper (trial 5)", 0),
        ({0: "base", 5: "paper"}, {"paper (trial 5)": 100.0}, "base", 1),
        ({5: "paper"}, {"paper (trial 5)": 150.0}, "paper (trial 5)", -1),
        ({17: "paper"}, {}, "paper (trial 17)", None),
    ],
)
def test_what_the_search_added_is_against_the_best_first_trial(
    first: dict[int, str], rates: dict[str, float], best: str, sign: int | None, tmp_path: Path
) -> None:
    study(tmp_path, rates)
    path = tmp_path / "results.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [json.dumps({**r, "first": first.get(r["trial"])}) + "\n" for r in records]
    path.write_text("".join(lines))
    found = gain(tmp_path)
    assert found.first == best
    assert (found.added and found.added.sign) == sign


def test_importance_finds_the_parameter_that_matters(tmp_path: Path) -> None:
    trials = read_report(study(tmp_path)).findings.own.trials
    found = importances(trials)
    assert found["serving.policy.gamma"].mean > 0.9
    assert max(found[f"serving.policy.{name}"].mean for name in ("align", "order")) < 0.2
    assert found == importances(trials)  # resamples are the same ones
    for share in found.values():
        assert 0 <= share.low <= share.high <= 1 and share.count == 18
    assert found["serving.policy.gamma"].low > found["serving.policy.order"].mean


@pytest.mark.parametrize("finale", [None, "{", '{"contender": 3}\n', ""])
def test_a_damaged_finale_is_named(finale: str | None, tmp_path: Path) -> None:
    study(tmp_path, finale=False)
    if finale is not None:
        (tmp_path / FINALE).write_text(finale)
    section = read_report(tmp_path).section
    assert f"> {FINALE}" in markdown([section]) and page([section])


def test_a_study_that_lost_its_config_is_still_shown(tmp_path: Path) -> None:
    study(tmp_path)
    (tmp_path / CONFIG).unlink()
    text = markdown([read_report(tmp_path).section])
    assert "> config.yaml is missing" in text and "History: output tokens/s" in text
