"""Does a study's report say what its trials and its finale show?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.yaml_writer import to_yaml
from sweeps.analyse.figures import THROUGHPUT
from sweeps.report.contents import contents
from sweeps.report.markdown import markdown
from sweeps.report.page import page
from sweeps.report.presenters import read_table, sentences
from sweeps.report.study_page import StudyTable
from sweeps.run.store import CONFIG, RunDirectory
from sweeps.study.trials import FINALE, importances, unbeaten
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
        {"contender": name, "overrides": {}, "replication": r,
         "metrics": {THROUGHPUT: rate * (1 + r / 100), "phase_share.weights": 0.5}}
        for name, rate in told.items() for r in (5, 6, 7)
    ]  # fmt: skip
    lines.append({"contender": "trial 2", "overrides": {}, "replication": 3, "metrics": {}})
    if finale:
        (path / FINALE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def said(path: Path) -> str:
    return "\n".join(sentences(read_table(RunDirectory(path))))


def test_gains_are_those_of_the_finale(tmp_path: Path) -> None:
    text = said(study(tmp_path))
    assert (
        "On 3 replications not used in the search, trial 17 has 156.4 output tokens/s: 34 % (95 %"
        " CI 34 to 34) against base; 146 % (146 to 146) against static" in text
    )
    # (147.5 - 110) / (160 - 110)
    assert "Of the gap from the base to oracle, 75 % (95 % CI 75 to 75) is closed." in text


def test_other_results_other_sentences(tmp_path: Path) -> None:
    text = said(study(tmp_path / "a", {"trial 17": 100.0}))
    assert "The search found nothing better than the base." in text
    text = said(study(tmp_path / "b", {"oracle": 105.0}))
    assert "oracle is not above the base in every replication: there is no gap to close." in text


@pytest.mark.parametrize(
    ("first", "rates", "words"),
    [
        ({0: "base"}, {}, "The search added 34 % (95 % CI 34 to 34) to the best trial without a"
         " search, base."),
        ({0: "base", 5: "paper"}, {"paper (trial 5)": 147.5}, "The search added nothing that 3"
         " replications resolve to the best trial without a search, paper (trial 5)"),
        ({5: "paper"}, {"paper (trial 5)": 150.0}, "The search found worse than the best trial"),
        ({17: "paper"}, {}, "The search added nothing to the best trial without a search, paper"
         " (trial 17)."),
    ],
)  # fmt: skip
def test_what_the_search_added_is_against_the_best_first_trial(
    first: dict[int, str], rates: dict[str, float], words: str, tmp_path: Path
) -> None:
    study(tmp_path, rates)
    path = tmp_path / "results.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [json.dumps({**r, "first": first.get(r["trial"])}) + "\n" for r in records]
    path.write_text("".join(lines))
    assert words in said(tmp_path)


def test_without_a_finale_the_best_so_far_is_named_with_care(tmp_path: Path) -> None:
    text = said(study(tmp_path, finale=False))
    assert "Best so far: trial 17, 147.5 output tokens/s on the replications of the search" in text


def test_importance_finds_the_parameter_that_matters(tmp_path: Path) -> None:
    table = read_table(RunDirectory(study(tmp_path)))
    assert isinstance(table, StudyTable)
    trials = table.trials
    found = importances(trials)
    assert found["serving.policy.gamma"].mean > 0.9
    assert max(found[f"serving.policy.{name}"].mean for name in ("align", "order")) < 0.2
    assert found == importances(trials)  # resamples are the same ones
    for share in found.values():
        assert 0 <= share.low <= share.high <= 1 and share.count == 18
    assert found["serving.policy.gamma"].low > found["serving.policy.order"].mean


def test_the_front_keeps_what_no_other_beats(tmp_path: Path) -> None:
    table = read_table(RunDirectory(study(tmp_path)))
    assert isinstance(table, StudyTable)
    trials = table.trials
    # both objectives grow with gamma, one wanted large and one small: no trial beats another
    assert len(unbeaten(trials)) == 18
    trials.objectives[1]["direction"] = "maximize"
    assert [record["trial"] for record in unbeaten(trials)] == [17]


@pytest.mark.parametrize("finale", [None, "{", '{"contender": 3}\n', ""])
def test_a_damaged_finale_is_named(finale: str | None, tmp_path: Path) -> None:
    study(tmp_path, finale=False)
    if finale is not None:
        (tmp_path / FINALE).write_text(finale)
    section = contents(read_table(RunDirectory(tmp_path)))
    assert f"> {FINALE}" in markdown([section]) and page([section])


def test_all_forms_have_its_charts(tmp_path: Path) -> None:
    section = contents(read_table(RunDirectory(study(tmp_path))))
    text, html = markdown([section]), page([section])
    for title in (
        "History: output tokens/s", "Pareto front: TTFT p99 s against output tokens/s",
        "Importance for output tokens/s, %",
        "output tokens/s against serving.policy.gamma", "All 20 trials",
        "What differs between the trials", "What it has instead of the base",
    ):  # fmt: skip
        assert title in text and title in html


def test_a_study_that_lost_its_config_is_still_shown(tmp_path: Path) -> None:
    study(tmp_path)
    (tmp_path / CONFIG).unlink()
    text = markdown([contents(read_table(RunDirectory(tmp_path)))])
    assert "> config.yaml is missing" in text and "History: output tokens/s" in text


def test_studies_are_compared_by_their_contenders(tmp_path: Path) -> None:
    from sweeps.report.comparison_page import compare
    from sweeps.report.comparison_page import sentences as told

    ours = study(tmp_path / "a")
    text = "\n".join(told(compare(ours, study(tmp_path / "b", {"trial 17": 155.0}))))
    assert (
        "best: 164.3 output tokens/s in b against 156.3, 5.1 % (95 % CI 5.1 to 5.1) more." in text
    )
    assert "base: 116.6 output tokens/s in b against 116.6, the same in every" in text
    assert to_yaml(CONFIG_OF_STUDY)


def test_the_limit_of_known_lengths_is_named(tmp_path: Path) -> None:
    path = study(tmp_path)
    assert "With all output lengths known" not in said(path)
    unused = {"least": 0.1, "chosen": 0.2, "base": 0.3}
    limit = {"bounds": [64, 128], "levels": [0.5, 1.0], "unused": unused}
    (path / "limit.json").write_text(json.dumps(limit))
    assert (
        "2 buckets would leave at least 10.0 % of the output reservation unused over time (bounds"
        " 64, 128 tokens); the quantiles of trial 17 leave 20.0 %, those of the base 30.0 %."
    ) in said(path)
