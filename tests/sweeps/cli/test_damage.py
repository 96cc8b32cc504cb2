"""Is every damaged file answered with lines, and never with a traceback?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.library import LIBRARY
from sweeps.cli.inspection import inspect
from tools.damage import faults

MEMORY = LIBRARY / "memories/lpddr5-6400-x16-8b.yaml"


def test_200_damaged_files_are_answered(tmp_path: Path) -> None:
    assert faults(tmp_path, seed=1, count=200) == []


@pytest.mark.long
@pytest.mark.parametrize("thousand", range(10))
def test_10_000_damaged_files_are_answered(thousand: int, tmp_path: Path) -> None:
    """`python -m tools.damage --seed 37 --count 10000` is the same."""
    assert faults(tmp_path, seed=37, count=1000, first=1000 * thousand) == []


def test_a_character_that_is_no_text_has_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("a: b\nc: \x17")
    assert inspect([str(tmp_path / "mine.yaml")], []) == 1
    assert ":2: not YAML: special characters are not allowed" in capsys.readouterr().err


def test_an_alias_is_its_value(tmp_path: Path) -> None:
    text = MEMORY.read_text()
    text = text.replace("tWTR_S: null", "tWTR_S: &gone null").replace(
        "tWTR_L: null", "tWTR_L: *gone"
    )
    (tmp_path / "mine.yaml").write_text(text)
    assert inspect([str(tmp_path / "mine.yaml")], []) == 0
