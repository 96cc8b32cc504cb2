"""Is what is there shown, and what is missing named, whatever became of a run directory?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.cli.reporting import report
from sweeps.report.contents import read_report
from sweeps.report.markdown import markdown
from sweeps.report.page import page
from sweeps.run.findings import Findings, as_data, find
from sweeps.run.reading import SWEEP, read_run, read_sweep
from sweeps.run.store import CONFIG, PROVENANCE, RESULTS, RunDirectory
from sweeps.run.sweep_run import summarise
from tests.sweeps.made import CONFIG as MADE
from tests.sweeps.made import PROVENANCE as PROVENANCE_OF
from tests.sweeps.made import made

POINTS = [line // 3 for line in range(24)]
"""Of each line of `made`: three replications each."""


def shown(path: Path) -> str:
    """The Markdown of a run; its page is made too."""
    section = read_report(path).section
    assert page([section])
    return markdown([section])


def test_a_whole_run_has_no_problem(tmp_path: Path) -> None:
    parts = read_run(RunDirectory(made(tmp_path)), {"sweep": SWEEP})
    assert (parts.config, parts.provenance, parts.problems) == (MADE, PROVENANCE_OF, [])
    assert [each["point"] for each in parts.records] == POINTS
    table = read_report(tmp_path).table
    assert table.state == "24 results"
    assert table.origin()["commit"] == "abc (with changes that are not committed)"
    table.provenance["dirty"] = False
    assert table.origin()["commit"] == "abc"
    rows = summarise(parts.records[:4])
    assert [row["replications"] for row in rows] == [3, 1]
    assert rows[0]["output_tokens_per_s_half"] > 0 and rows[1]["output_tokens_per_s_half"] is None


def test_findings_as_data_name_what_they_are_of(tmp_path: Path) -> None:
    table = read_sweep(RunDirectory(made(tmp_path)))
    found = as_data(find(table))
    assert json.loads(json.dumps(found)) == found
    assert [each["title"] for each in found["verdicts"]] == [g.title for g in table.groups]
    group = table.groups[0]
    own = [table, {"group": group}, (group.rows[0], group.objective)]
    data = as_data(Findings(table, [], [], own))
    titles = [group.rows[0].title, group.objective.metric]
    assert data["own"] == [table.name, {"group": group.title}, titles]


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


def test_what_is_compared_where_no_policy_is_an_axis(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / CONFIG).unlink()
    text = (tmp_path / RESULTS).read_text()
    (tmp_path / RESULTS).write_text(text.replace("serving.policy", "serving.model"))
    assert read_run(RunDirectory(tmp_path), {"sweep": SWEEP}).config["compare"] == "serving.model"


@pytest.mark.parametrize(
    ("key", "value"), [("axes", []), ("axes", {"device": 3}), ("base", 1), ("compare", None)]
)
def test_a_config_of_another_version_is_left_out(tmp_path: Path, key: str, value: Any) -> None:
    made(tmp_path, config=MADE | {key: value})
    parts = read_run(RunDirectory(tmp_path), {"sweep": SWEEP})
    assert parts.config["summary"] == "(its config is missing)"
    assert [problem.split()[1] for problem in parts.problems] == [key]


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
    parts = read_run(RunDirectory(tmp_path), {"sweep": SWEEP})
    assert (parts.config, parts.records, len(parts.problems)) == (MADE, [], 1)
    assert "--resume" in parts.problems[0]
    assert "serving.policy" in shown(tmp_path)


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
