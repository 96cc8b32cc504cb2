"""Is every damaged file answered with lines, and never with a traceback?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.library import LIBRARY
from sweeps.cli.inspection import inspect
from tools.damage import faults

BOMB = "\n".join(["a: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"] + [
    f"b{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)
])  # fmt: skip
MEMORY = LIBRARY / "memories/lpddr5-6400-x16-8b.yaml"


def test_200_damaged_files_are_answered(tmp_path: Path) -> None:
    assert faults(tmp_path, seed=1, count=200) == []


@pytest.mark.long
@pytest.mark.parametrize("thousand", range(10))
def test_10_000_damaged_files_are_answered(thousand: int, tmp_path: Path) -> None:
    """`python -m tools.damage --seed 37 --count 10000` is the same."""
    assert faults(tmp_path, seed=37, count=1000, first=1000 * thousand) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [*a]", ":1: a[0]: an alias stands inside what it names"),
        ("kind: memory\na: &a\n  b: {c: *a}", ":2: a.b.c: an alias stands inside what it names"),
        (BOMB, "aliases expand to more than 100,000 values"),
        ("a: " + "[" * 200 + "]" * 200, ":1: not YAML: nested over 50 deep"),
        ("a: b\nc: \x17", ":2: not YAML: special characters are not allowed"),
        ("kind: [memory]", ":1: kind: unknown kind ['memory']"),
    ],
)
def test_what_has_no_end_has_its_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    assert inspect([str(tmp_path / "mine.yaml")], []) == 1
    assert said in capsys.readouterr().err


def test_an_alias_is_its_value(tmp_path: Path) -> None:
    text = MEMORY.read_text()
    text = text.replace("tWTR_S: null", "tWTR_S: &gone null").replace(
        "tWTR_L: null", "tWTR_L: *gone"
    )
    (tmp_path / "mine.yaml").write_text(text)
    assert inspect([str(tmp_path / "mine.yaml")], []) == 0
