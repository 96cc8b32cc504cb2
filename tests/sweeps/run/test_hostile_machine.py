"""Is a full disk, an unwritable directory, a NaN or a hostile name answered in a line?"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bankwise
from hwmodel.description.description import DescriptionError
from sweeps.run import store
from sweeps.run.store import RunDirectory, write_atomically
from sweeps.study.journal import Journal
from tests.sweeps.cli.test_command_line import ROOT, refusal
from tests.sweeps.made import made

BAD = "x</script><img src=x onerror=alert(1)>\"'&|"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of a run."""
    out = tmp_path_factory.mktemp("run") / "whole"
    return {file.name: file.read_text() for file in made(out).iterdir()}


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_one_line_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept.txt").write_text("before")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: '.*kept.txt'"):
            write_atomically(tmp_path / "kept.txt", "after")
    assert (tmp_path / "kept.txt").read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["kept.txt"]
    directory = RunDirectory(tmp_path / "run")
    directory.create({"kind": "sweep"}, {}, {})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*results.jsonl'"):
        directory.append({"point": 0})
    directory.release()


def test_a_full_disk_names_the_journal_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "journal.log", "study", ["maximize"])
    journal.ask({}, {})
    monkeypatch.setattr(os, "fsync", full)
    result = {"state": "complete", "constraints": {}}
    for write in (
        lambda: journal.ask({}, {}),
        lambda: journal.tell(0, result, [1.0]),
        lambda: journal.write_note("rates", [1]),
        lambda: Journal(tmp_path / "another.log", "study", ["maximize"]),
    ):
        with pytest.raises(OSError, match=r"No space left on device: '.*.log'"):
            write()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("arguments", [["--version"], ["list", "models", "--json"]])
def test_an_output_that_is_full_is_one_line(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "sweeps.cli.main", *arguments]
    with open("/dev/full", "w") as out:
        done = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.PIPE, text=True)
    assert done.stderr == "standard output: No space left on device\n"
    assert done.returncode == 2


def test_a_directory_that_cannot_be_written_is_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.os, "access", lambda *_: False)
    said = refusal("run", "smoke", "--out", "new/run", cwd=tmp_path)
    assert said == f"{tmp_path}: cannot be written"
    (tmp_path / "file").touch()
    monkeypatch.undo()
    said = refusal("run", "smoke", "--out", "file/run", cwd=tmp_path)
    assert said == "file/run: cannot be made: file is a file"


def test_a_nan_in_a_result_is_no_result(small: dict[str, str], tmp_path: Path) -> None:
    lines = [json.loads(line) for line in small["results.jsonl"].splitlines()]
    lines[0]["metrics"]["output_tokens_per_s"] = float("nan")
    for name, text in small.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = bankwise.report(tmp_path)
    assert "results.jsonl:1: not a result; it is left out" in result.report.problems
    assert "nan" not in " ".join(result.sentences)
    with pytest.raises(DescriptionError, match=r"results.jsonl:1: not a JSON object"):
        RunDirectory(tmp_path).records()


def test_a_hostile_name_is_text_on_every_page(small: dict[str, str], tmp_path: Path) -> None:
    for name, text in small.items():
        quoted = json.dumps(BAD)[1:-1]
        text = text.replace("paged", quoted).replace("card", quoted)
        (tmp_path / name).write_text(text if name != "config.yaml" else small[name])
    result = bankwise.report(tmp_path)
    page = result.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<img src=x" not in page and "x</script><img" not in page and "&lt;img src=x" in page
    assert "<img src=x" not in result.save(tmp_path / "page.md").read_text(encoding="utf-8")
    for figure in result.figures[:3]:
        drawn = result.figure(figure).save(tmp_path / "f.svg").read_text(encoding="utf-8")
        assert "<img src=x" not in drawn
