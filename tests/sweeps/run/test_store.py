"""Does the run directory keep what was finished, and refuse what does not belong?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from hwmodel.description.yaml_reader import loads
from hwmodel.description.yaml_writer import to_yaml, to_yaml_flow
from sweeps.run.store import (
    PROVENANCE,
    RESULTS,
    RunDirectory,
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
