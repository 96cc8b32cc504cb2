"""Are results written as Parquet, with the units of their columns?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.run import parquet
from sweeps.run.store import RESULTS, RunDirectory
from tests.sweeps.cli.test_command_line import bankwise, refusal
from tests.sweeps.made import CONFIG, made
from tests.sweeps.study.test_study_report import study


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("output_tokens_per_s", "tokens/s"),
        ("ttft_s.p99", "s"),
        ("kv_gbps", "10^9 B/s"),
        ("energy.mj_per_token", "mJ/token"),
        ("energy.parts_mj_per_token.read", "mJ/token"),
        ("memory.phases.attention.row_hit_rate", "1"),
        ("limit_share.kv_memory", "1"),
        ("preemptions", None),
    ],
)
def test_a_column_has_the_unit_that_its_name_ends_in(name: str, unit: str | None) -> None:
    assert parquet.unit_of(name) == unit


def test_a_row_has_what_made_a_result_and_its_numbers(tmp_path: Path) -> None:
    found = parquet.rows(RunDirectory(made(tmp_path / "run")))
    keys = ("point", "control", "replication", "device", "serving.policy", "output_tokens_per_s")
    other = CONFIG["axes"]["device"][1]
    assert [tuple(row[key] for key in keys) for row in found[2:21:6]] == [
        (0, "", 3, "card", "paged", 103.0), (2, "", 3, other, "paged", 103.0),
        (4, "analytic", 3, "card", "paged", 103.0), (6, "analytic", 3, other, "paged", 103.0),
    ]  # fmt: skip
    assert len(found) == 24 and found[3]["serving.policy"] == "odma"
    assert found[0]["rate_per_s"] == 1.0 and found[0]["energy.parts_mj_per_token.read"] == 2.0
    assert "energy.confidence" not in found[0]  # a text
    assert not any(isinstance(value, (list, dict)) for value in found[0].values())


def test_a_row_of_a_study_has_its_trial_and_settings(tmp_path: Path) -> None:
    found = parquet.rows(RunDirectory(study(tmp_path / "study")))
    assert [row["trial"] for row in found] == [*range(20)]
    assert found[3]["state"] == "failed" and "output_tokens_per_s" not in found[3]
    assert found[5]["serving.policy.gamma"] == 0.75 and found[5]["output_tokens_per_s"] == 137.5


def test_a_run_without_results_is_refused(tmp_path: Path) -> None:
    (made(tmp_path / "run") / RESULTS).write_text("")
    with pytest.raises(DescriptionError, match="has no results"):
        parquet.rows(RunDirectory(tmp_path / "run"))


def test_a_column_is_of_numbers_or_of_texts() -> None:
    assert parquet._of_one_type([8, None, 0.5]) == [8, None, 0.5]
    assert parquet._of_one_type([8, None, "all"]) == ["8", None, "all"]


def test_results_are_read_back_with_units(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet", reason="pyarrow, the extra data, is missing")
    made(tmp_path / "run")
    done = bankwise("export", "run", "--format", "parquet", "--out", "a.parquet", cwd=tmp_path)
    assert done.returncode == 0 and "24 results" in done.stdout
    table = pyarrow.read_table(tmp_path / "a.parquet")
    assert table.num_rows == 24
    assert table.schema.field("kv_gbps").metadata == {b"unit": b"10^9 B/s"}
    assert table.schema.metadata[b"name"] == b"made"


def test_a_mistake_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "run")
    asked = ("export", "run", "--format", "parquet", "--out")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    text = refusal(*asked, "a.parquet", cwd=tmp_path)
    assert text == "--format parquet: pip install 'bankwise[data]'"
    with pytest.raises(DescriptionError, match="has no results"):
        parquet.rows(RunDirectory(tmp_path / "none"))
