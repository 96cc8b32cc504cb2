"""Does the run directory keep what was finished, and refuse what does not belong?"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from hwmodel.description.yaml_reader import loads
from hwmodel.description.yaml_writer import plain, to_yaml, to_yaml_flow
from sweeps.analyse.rows import differences
from sweeps.run.store import RESULTS, RunDirectory, default_directory

CONFIG = {"kind": "sweep", "name": "t"}

texts = st.text(
    st.characters(codec="ascii", min_codepoint=32, exclude_characters="\x7f"), max_size=12
)
scalars = st.one_of(
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    st.sampled_from(["1e9", "010", "12:30", "yes", "off", "n", "18ns", "0x10", "null", "~", "1_0"]),
)
keys = st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(
    lambda key: (
        key not in ("value", "source", "y", "n", "yes", "no", "on", "off", "null", "true", "false")
    )
)
data = st.dictionaries(
    keys, st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5), max_size=4
)


@given(data)
def test_what_is_written_reads_back_through_the_strict_reader(value: dict[str, object]) -> None:
    assert loads(to_yaml(value) if value else "{}").data == value
    for item in value.values():
        assert loads(f"a: {to_yaml_flow(item)}").data["a"] == item


def open_run(path: Path) -> RunDirectory:
    run = RunDirectory(path)
    run.create(CONFIG, {"version": "0"}, {})
    return run


def test_results_are_there_as_soon_as_they_are_appended(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run")
    run.append({"point": 1, "metrics": {"x": np.float64(2.5), "n": np.int64(3), "bad": math.nan}})
    assert RunDirectory(tmp_path / "run").records() == [
        {"point": 1, "metrics": {"x": 2.5, "n": 3, "bad": None}}
    ]
    run.release()


def test_a_torn_last_line_is_dropped_and_the_next_result_is_whole(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    run.append({"point": 0})
    run.release()
    with (tmp_path / RESULTS).open("a") as file:
        file.write('{"point": 1, "met')
    assert RunDirectory(tmp_path).records() == [{"point": 0}]
    run = open_run(tmp_path)
    run.append({"point": 2})
    run.release()
    lines = (tmp_path / RESULTS).read_text().splitlines()
    assert [json.loads(line)["point"] for line in lines] == [0, 2]


def test_a_bad_line_in_the_middle_is_said_with_its_place(tmp_path: Path) -> None:
    (tmp_path / RESULTS).write_text('{"point": 0}\n{"poi\n{"point": 2}\n')
    with pytest.raises(DescriptionError, match=r"results\.jsonl:2: not a JSON object"):
        RunDirectory(tmp_path).records()


def test_two_processes_cannot_run_into_one_directory(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    with pytest.raises(DescriptionError, match="another process"):
        open_run(tmp_path)
    run.release()
    open_run(tmp_path).release()


def test_a_directory_that_is_taken_is_refused(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "new").refuse_if_taken()
    RunDirectory(tmp_path).refuse_if_taken()
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DescriptionError, match="not a run directory"):
        RunDirectory(tmp_path).refuse_if_taken()
    open_run(tmp_path / "run").release()
    with pytest.raises(DescriptionError, match="--resume"):
        RunDirectory(tmp_path / "run").refuse_if_taken()


def test_default_directories_count_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_directory("a", resume=True) == Path("runs/a-1")
    for name in ("a-1", "a-10", "a-x", "ab-99"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert default_directory("a", resume=False) == Path("runs/a-11")
    assert default_directory("a", resume=True) == Path("runs/a-10")


def test_differences_name_their_place() -> None:
    ours = {"a": {"b": [1, 2]}, "c": 1}
    theirs = {"a": {"b": [1, 3]}, "d": 4}
    assert list(differences(ours, theirs)) == [("a.b[1]", 2, 3), ("c", 1, None), ("d", None, 4)]
    assert list(differences(ours, json.loads(json.dumps(ours)))) == []


def test_plain_has_no_infinities() -> None:
    assert plain({"a": (1, math.inf), 2: np.array([1.5])}) == {"a": [1, None], "2": [1.5]}
