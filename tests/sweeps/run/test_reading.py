"""Is what is there shown, and what is missing named, whatever became of a run directory?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.cli.reporting import report
from sweeps.report.contents import contents
from sweeps.report.markdown import markdown
from sweeps.report.page import page
from sweeps.report.presenters import read_table
from sweeps.run.store import CONFIG, PROVENANCE, RESULTS, RunDirectory
from tests.sweeps.made import made


def shown(path: Path) -> str:
    """The Markdown of a run; its page is made too."""
    section = contents(read_table(RunDirectory(path)))
    assert page([section])
    return markdown([section])


def rewrite(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_a_whole_run_has_no_problem(tmp_path: Path) -> None:
    assert "\n> " not in shown(made(tmp_path))


def test_a_corrupt_line_is_named_and_the_rest_shown(tmp_path: Path) -> None:
    made(tmp_path)
    lines = (tmp_path / RESULTS).read_text().splitlines()
    lines[2], lines[5] = '{"point": 0, "met', '{"point": 0}'
    (tmp_path / RESULTS).write_text("\n".join(lines) + "\n")
    text = shown(tmp_path)
    assert f"> {RESULTS}:3: not a result; it is left out." in text
    assert f"> {RESULTS}:6: not a result; it is left out." in text
    assert "unfinished: 22 of 24 results" in text and "card: odma serves" in text


def test_a_line_that_was_being_written_is_named(tmp_path: Path) -> None:
    made(tmp_path)
    with (tmp_path / RESULTS).open("a") as file:
        file.write('{"point": 9, "con')
    assert f"> {RESULTS}: the last line is cut off; it is left out." in shown(tmp_path)


def test_a_line_that_is_not_text_is_left_out(tmp_path: Path) -> None:
    made(tmp_path)
    content = (tmp_path / RESULTS).read_bytes()
    (tmp_path / RESULTS).write_bytes(b"\xff\xfe\x00\n" + content)
    assert f"> {RESULTS}:1: not a result; it is left out." in shown(tmp_path)


@pytest.mark.parametrize("content", [None, "a: [1,\n", "axes: 3\n", "\xff", "[]\n", "name: x\n"])
def test_without_its_config_the_results_tell_what_was_asked(
    content: str | None, tmp_path: Path
) -> None:
    made(tmp_path)
    (tmp_path / CONFIG).unlink()
    if content is not None:
        (tmp_path / CONFIG).write_text(content)
    text = shown(tmp_path)
    assert f"> {CONFIG}" in text
    assert "card: odma serves 132.6 output tokens/s" in text and "24 results" in text


@pytest.mark.parametrize("content", [None, '{"version": ', "[]", '{"assumed": 3, "seeds": 4}'])
def test_without_provenance_the_results_are_shown(content: str | None, tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / PROVENANCE).unlink()
    if content is not None:
        (tmp_path / PROVENANCE).write_text(content)
    text = shown(tmp_path)
    assert "card: odma serves" in text and "Assumed numbers: 0" in text
    assert content is not None or f"> {PROVENANCE} is missing" in text


def test_an_older_version_has_fewer_charts_and_says_which(tmp_path: Path) -> None:
    made(tmp_path)
    lines = []
    for line in (tmp_path / RESULTS).read_text().splitlines():
        record = json.loads(line)
        for name in ("quantiles", "over_time", "energy", "compute_share", "memory"):
            record["metrics"].pop(name, None)
        del record["rate_per_s"], record["seed"]
        lines.append(json.dumps(record))
    (tmp_path / RESULTS).write_text("\n".join(lines) + "\n")
    text = shown(tmp_path)
    assert "> no latency distributions: version 0.1.0 did not record them." in text
    assert "> no curves over time: version 0.1.0 did not record them." in text
    assert "Output tokens/s" in text and "**Time to first token" not in text


def test_metrics_of_another_shape_are_passed_over(tmp_path: Path) -> None:
    made(tmp_path, quantiles=[1], over_time="x", policy={"over_time": [3]}, memory=None, energy=[])
    assert "card: odma serves" in shown(tmp_path)


def test_a_config_without_results_says_so(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / RESULTS).write_text("")
    text = shown(tmp_path)
    assert "> there is no result to show yet; --resume computes them." in text
    assert "serving.policy" in text


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
