"""Does the run directory keep what was finished, and refuse what does not belong?"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from hwmodel.description.yaml_reader import loads
from hwmodel.description.yaml_writer import plain, to_yaml, to_yaml_flow
from sweeps.analyse.rows import at, differences, is_number
from sweeps.run import store
from sweeps.run.store import (
    CALIBRATION,
    PROVENANCE,
    RESULTS,
    SUMMARY,
    RunDirectory,
    default_directory,
    last_run,
    to_csv,
    write_atomically,
)
from tests.rotation import LONG

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


@settings(max_examples=1000 if LONG else 40)
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
    assert plain([True, None, Path("a/b"), -math.inf]) == [True, None, "a/b", None]


def test_what_does_each_file_of_a_finished_run_hold(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "deep/run")
    assert not run.exists and not run.is_open and run.records() == []
    run.create(CONFIG, {"version": "0", "share": math.inf}, {"rate": 1.5})
    assert run.exists and run.is_open
    run.append({"point": 2})
    run.write_calibration([1])
    run.settle([{"point": 1}, {"point": 2}], [{"x": 1, "y": 2}, {"z": "a,b"}])
    run.release()
    assert not run.is_open
    run.release()
    files = {file.name: file.read_text() for file in run.path.iterdir()}
    assert files == {
        store.CONFIG: "kind: sweep\nname: t\n",
        RESULTS: '{"point": 1}\n{"point": 2}\n',
        SUMMARY: 'x,y,z\n1,2,\n,,"a,b"\n',
        PROVENANCE: '{\n  "version": "0",\n  "share": null\n}\n',
        CALIBRATION: "[\n  1\n]\n",
    }
    assert (run.config(), run.read_json(PROVENANCE)["version"]) == (CONFIG, "0")
    # resumed: what was asked stays, with what it is computed is written anew
    again = RunDirectory(run.path)
    again.create({"kind": "other"}, {"version": "1"}, {})
    again.append({"point": 3})
    again.release()
    assert (again.config(), again.read_json(PROVENANCE)) == (CONFIG, {"version": "1"})
    assert [each["point"] for each in again.records()] == [1, 2, 3]


def test_which_files_are_missing_or_broken(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert run.read_json(PROVENANCE) is None
    (tmp_path / PROVENANCE).write_text("{")
    with pytest.raises(DescriptionError, match="not JSON") as caught:
        run.read_json(PROVENANCE)
    assert caught.value.file == str(tmp_path / PROVENANCE)
    with pytest.raises(DescriptionError, match="not a run directory"):
        run.config()
    with pytest.raises(DescriptionError, match="no such directory"):
        RunDirectory(tmp_path / "no").config()
    (tmp_path / "file").write_text("")
    with pytest.raises(DescriptionError, match="another --out"):
        RunDirectory(tmp_path / "file").refuse_if_taken()
    (tmp_path / "lost").mkdir()
    (tmp_path / "lost" / RESULTS).write_text("")  # its config is gone
    RunDirectory(tmp_path / "lost").refuse_if_taken()


def test_does_a_survey_tell_what_is_left_out(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert run.survey({}) == ([], [f"{RESULTS} is missing"])
    lines = ['{"point": 0, "x": 1}', '{"point": "0"}', "[3]", '{"point": 4}', '{"po']
    (tmp_path / RESULTS).write_text("\n".join(lines))
    found, problems = run.survey({"point": int})
    assert [each["point"] for each in found] == [0, 4]
    assert [problem.split(":")[1:-1] for problem in problems] == [[], ["2"], ["3"]]


def test_is_a_file_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("a longer text")
    write_atomically(file, "ü\r\n")
    assert (file.read_bytes(), list(tmp_path.iterdir())) == ("ü\r\n".encode(), [file])


def test_is_a_value_on_one_line_and_are_keys_in_their_order() -> None:
    assert "\n" not in to_yaml_flow(list(range(1000)))
    assert to_yaml_flow({"b": 1, "a": [1e-7, 2.0, "1e5", "ü"]}) == (
        '{b: 1, a: [0.0000001, 2.0, "1e5", ü]}'
    )
    assert (to_yaml_flow("on"), to_yaml_flow("x"), to_yaml_flow(3)) == ("'on'", "x", "3")
    shared = [1]
    assert to_yaml({"b": shared, "a": shared}) == "b:\n- 1\na:\n- 1\n"


def test_what_lies_under_keys_and_what_is_a_number() -> None:
    assert at({"a": {"b": 3}}, "a", "b") == 3
    assert at({"a": 3}, "a", "b") is None and at([], "a") is None and at(5) == 5
    assert [is_number(each) for each in (1, 1.5, True, "1", None)] == [True, True, *[False] * 3]
    assert to_csv([]) == "\n"
    assert list(differences([1], [1, 2])) == [("", [1], [1, 2])]
    assert list(differences({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, "top")) == [("top.a[0].b", 1, 2)]


def test_a_run_is_found_by_its_name_or_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        (tmp_path / f"runs/smoke-{number}").mkdir(parents=True)
    assert last_run(Path("smoke")) == Path("runs/smoke-2")
    assert last_run(Path("smoke-1")) == Path("runs/smoke-1")
    assert last_run(Path("smoke-3")) == Path("smoke-3")
