"""Is every figure of a run and of a study a picture in which something is drawn?"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.report.contents import read_report
from sweeps.report.picture import picture, pictures
from sweeps.report.shown import save
from sweeps.sections.chart import file_name
from sweeps.sections.section import Grid, Say, Section
from tests.sweeps.cli.test_command_line import bankwise
from tests.sweeps.made import made
from tests.sweeps.study.test_study_report import study

MARK = re.compile(r'class="mark-(?:rect|line|symbol|area)[^>]*>\s*<path')


@pytest.mark.parametrize(
    ("make", "name"),
    [(made, "bandwidth"), (study, "front")],
)
def test_every_figure_is_drawn(make: Callable[[Path], Path], name: str, tmp_path: Path) -> None:
    found = pictures(read_report(make(tmp_path / "run")))
    assert name in found
    for each, drawing in found.items():
        drawn = drawing.save(tmp_path / f"{each}.svg").read_text()
        assert len(MARK.findall(drawn)) >= len(drawing.charts), each
    assert found[name].save(tmp_path / "deep/er.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(DescriptionError, match=r"of \.svg, \.png, \.pdf, \.html, \.md, \.csv"):
        found[name].save(tmp_path / "a.bmp")
    head, *values = found[name].save(tmp_path / "a.csv").read_text().splitlines()
    assert head.startswith("chart,") and len(values) == len(found[name].rows)


def test_without_a_chart_the_values_are_those_of_the_tables(tmp_path: Path) -> None:
    section = Section("", [Say("A sentence."), Grid("cards", ["name", "GB/s"], [["l4", "300"]])])
    assert save([section], tmp_path / "a.csv").read_text() == "table,name,GB/s\ncards,l4,300\n"


def test_a_figure_is_written_from_the_command_line_in_each_form_and_theme(tmp_path: Path) -> None:
    made(tmp_path / "run")
    listed = bankwise("report", "figure", "run", cwd=tmp_path).stdout
    assert re.search(r"^throughput +card: Output tokens/s", listed, re.MULTILINE)
    asked = ("report", "figure", "run", "throughput")
    assert bankwise(*asked, cwd=tmp_path).stdout == "wrote throughput.svg\n"
    light = (tmp_path / "throughput.svg").read_text()
    for name in ("a.png", "a.pdf", "a.svg"):
        done = bankwise(*asked, "--out", name, "--dark", cwd=tmp_path)
        assert done.stdout == f"wrote {name}\n"
    dark = (tmp_path / "a.svg").read_text()
    assert 'fill="#ffffff"' in light.lower() and 'fill="#16181b"' in dark and dark != light


def test_the_whole_title_of_a_chart_is_a_name_too(tmp_path: Path) -> None:
    report = read_report(study(tmp_path / "run"))
    assert len(pictures(report)["against"].charts) >= 1
    one = pictures(report)["front"].charts[0].chart
    assert picture(report, file_name(one.title)).charts[0].chart == one
    named = [series for series in one.series if series.names]
    assert named and all(name.isdigit() for name in named[0].names)
