"""Does the page of several runs have what their reports have, without charts?"""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.report.contents import read_report
from sweeps.report.findings_page import findings, main
from sweeps.report.markdown import markdown
from tests.sweeps.made import made


def test_the_findings_page_is_the_report_without_its_charts(tmp_path: Path) -> None:
    first, other = made(tmp_path / "made"), made(tmp_path / "again")
    report = read_report(first)
    page = findings([first, other])
    assert page.startswith("# Findings\n") and page.count("\n## made\n") == 2
    for text in report.sentences:
        assert f"- {text}\n" in page
    whole = markdown([report.section])
    for line in page.split("## made\n")[1].split("\nFrom bankwise")[0].splitlines():
        assert line.removeprefix("#") in whole
    assert "| policy | output tokens/s |" in page and "Assumed numbers" not in page
    assert "commit: abc" in page


def test_the_findings_of_nothing_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["findings", str(tmp_path / "nothing")])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    shown = capsys.readouterr()
    assert "no such directory" in shown.err and not shown.out
