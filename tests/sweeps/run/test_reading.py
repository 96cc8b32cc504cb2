"""Is what is there shown, and what is missing named, whatever became of a run directory?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.cli.reporting import report
from sweeps.report.contents import read_report
from sweeps.report.markdown import markdown
from sweeps.report.page import page
from sweeps.run.reading import SWEEP, read_run
from sweeps.run.store import CONFIG, PROVENANCE, RESULTS, RunDirectory
from tests.sweeps.made import CONFIG as MADE
from tests.sweeps.made import made

POINTS = [line // 3 for line in range(24)]
"""Of each line of `made`: three replications each."""


def shown(path: Path) -> str:
    """The Markdown of a run; its page is made too."""
    section = read_report(path).section
    assert page([section])
    return markdown([section])


def test_a_damaged_line_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    made(tmp_path)
    lines = (tmp_path / RESULTS).read_bytes().splitlines()
    lines[2], lines[5], lines[7] = b'{"point": 0, "met', b'{"point": 0}', b"\xff\xfe\x00"
    (tmp_path / RESULTS).write_bytes(b"\n".join(lines) + b'\n{"point": 9, "con')
    parts = read_run(RunDirectory(tmp_path), {"sweep": SWEEP})
    kept = [point for line, point in enumerate(POINTS) if line not in (2, 5, 7)]
    assert [each["point"] for each in parts.records] == kept
    last, *others = parts.problems
    assert last.startswith(f"{RESULTS}: the last line")
    assert [problem.split(":")[:2] for problem in others] == [[RESULTS, n] for n in ("3", "6", "8")]
    assert "unfinished: 21 of 24 results" in shown(tmp_path)


@pytest.mark.parametrize("content", [None, "a: [1,\n", "axes: 3\n", "\xff", "[]\n", "name: x\n"])
def test_without_its_config_the_results_tell_what_was_asked(
    content: str | None, tmp_path: Path
) -> None:
    made(tmp_path)
    (tmp_path / CONFIG).unlink()
    if content is not None:
        (tmp_path / CONFIG).write_text(content)
    parts = read_run(RunDirectory(tmp_path), {"sweep": SWEEP})
    assert parts.config == {
        "name": tmp_path.name, "summary": "(its config is missing)", "axes": MADE["axes"],
        "variants": {"analytic": {"role": "control", "set": {}}}, "base": {"replications": 3},
        "compare": "serving.policy",
    }  # fmt: skip
    assert len(parts.records) == 24
    assert parts.problems[0].startswith(CONFIG)
    if content is None:
        assert "card: odma serves 132.6 output tokens/s" in shown(tmp_path)


@pytest.mark.parametrize(
    ("content", "known", "problems"),
    [
        (None, {}, ["is missing"]),
        ('{"version": ', {}, ["cannot be read"]),
        ("[]", {}, []),
        ('{"assumed": 3, "seeds": 4, "version": 5}', {"version": 5}, ["assumed", "seeds"]),
    ],
)
def test_without_provenance_the_results_are_there(
    content: str | None, known: dict[str, Any], problems: list[str], tmp_path: Path
) -> None:
    made(tmp_path)
    (tmp_path / PROVENANCE).unlink()
    if content is not None:
        (tmp_path / PROVENANCE).write_text(content)
    parts = read_run(RunDirectory(tmp_path), {"sweep": SWEEP})
    assert (parts.provenance, len(parts.records)) == (known, 24)
    assert len(parts.problems) == len(problems)
    for problem, word in zip(parts.problems, problems, strict=True):
        assert problem.startswith(PROVENANCE) and word in problem
    assert "Assumed numbers: 0" in shown(tmp_path)


def test_nothing_to_show_is_the_users_mistake_unless_others_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("hello")
    with pytest.raises(DescriptionError, match="is empty: it has neither results nor config"):
        report([tmp_path / "empty"])
    with pytest.raises(DescriptionError, match="is not a run directory"):
        report([tmp_path / "other"])
    report([tmp_path / "empty", made(tmp_path / "run")])
    assert "left out: " in capsys.readouterr().err
    assert (tmp_path / "run/report.html").exists() and not (tmp_path / "empty/report.html").exists()
