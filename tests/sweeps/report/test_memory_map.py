"""Does the map of memory show who held what?"""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.plan.logs import FOLDER
from sweeps.report.memory_map import memory_map

HEAD = "request,first_slot,slots,from_s,until_s,replica\n"


def recorded(path: Path, rows: str) -> Path:
    (path / FOLDER).mkdir(parents=True)
    (path / FOLDER / "point0-r1-memory.csv").write_text(HEAD + rows)
    return path


def test_patches_are_the_rows(tmp_path: Path) -> None:
    # the upper half is one request's all the time, the lower half two requests' in turn
    recorded(
        tmp_path, "7,100,100,0.0,4.0,0\n8,0,100,0.0,1.0,0\n9,0,100,1.0,4.0,0\n1,0,400,0.0,4.0,1\n"
    )
    chart = memory_map(tmp_path, "card, paged", 0, 1)
    assert chart is not None
    found = {row[0]: row[1:] for row in chart.rows()}
    assert found["7"] == pytest.approx([0, 4, 100, 200])
    assert found["8"] == pytest.approx([0, 1, 0, 100])
    assert found["9"] == pytest.approx([1, 4, 0, 100])


def test_what_is_smaller_than_a_place_is_seen_where_a_middle_lies_in_it(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i},1,0.0,4.0,0\n" for i in range(1000))
    chart = memory_map(recorded(tmp_path, rows), "x", 0, 1)
    assert chart is not None and len(chart.spans) == 100


@pytest.mark.parametrize("rows", ["", "a,b\n", "1,2,3\n"])
def test_a_record_that_cannot_be_read_is_no_map(rows: str, tmp_path: Path) -> None:
    assert memory_map(recorded(tmp_path, rows), "x", 0, 1) is None
    assert memory_map(tmp_path, "x", 1, 1) is None
