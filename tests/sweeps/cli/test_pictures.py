"""Is every figure of a run and of a study a picture in which something is drawn?"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.cli.picture import pictures
from sweeps.report.presenters import read_table
from sweeps.run.store import RunDirectory
from tests.sweeps.made import made
from tests.sweeps.study.test_study_report import study

MARK = re.compile(r'class="mark-(?:rect|line|symbol|area)[^>]*>\s*<path')


@pytest.mark.parametrize(
    ("make", "name"),
    [(made, "bandwidth"), (study, "pareto-front-ttft-p99-s-against-output-tokens-s")],
)
def test_every_figure_is_drawn(make: Callable[[Path], Path], name: str, tmp_path: Path) -> None:
    found = pictures(read_table(RunDirectory(make(tmp_path / "run"))))
    assert name in found
    for each, picture in found.items():
        drawn = picture.save(tmp_path / f"{each}.svg").read_text()
        assert len(MARK.findall(drawn)) >= len(picture.charts), each
    assert found[name].save(tmp_path / "deep/er.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(DescriptionError, match=r"of \.svg, \.png, \.pdf, \.html, \.md"):
        found[name].save(tmp_path / "a.bmp")
