"""Is every damaged file answered with lines, and never with a traceback?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import LIBRARY
from hwmodel.specs.device import load_device
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


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("constraints[3].delay=tRCD / 0", "constraints[3].delay: divides by zero"),
        ("activate.max_gap=" + "+".join(["1"] * 400), "at most 300 characters; got 799"),
        ("timing.tREFI=" + "9" * 40 + "ns", "timing.tREFI: expected at most 1099511627776 ticks"),
        ("clock.tCK=0." + "0" * 400 + "1ns", "tCK must be at least 1ps"),
        ("clock.beats_per_ck=" + "9" * 400, "clock.beats_per_ck: Input should be less than"),
        ("organisation.rows=1073741824", "more than 17592186044416 B a channel"),
        ("commands.RD.slots=.inf", "commands.RD.slots: Input should be less than"),
        ("energy.activate=" + "9" * 400 + "pJ", "energy.activate: energy out of range"),
        (
            "controller.page_timeout=2s",
            "controller: page_timeout must be above zero and at",
        ),
        ("refresh.per_bank.sets=[[99]]", "refresh.per_bank.sets: no bank 99; a rank has 16"),
    ],
)
def test_what_no_kernel_holds_is_refused(setting: str, said: str) -> None:
    with pytest.raises(DescriptionError) as error:
        load_device("lpddr5-6400-x16", [setting])
    assert said in str(error.value)
