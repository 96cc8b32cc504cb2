"""Does `bankwise` alone name the card of this machine, and nothing where it does not know it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.library import names
from hwmodel.specs.device import load_device
from sweeps.cli.this_machine import suggestions, this_accelerator
from tests.sweeps.cli.test_command_line import bankwise


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that is all of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def says(folder: Path, program: str, text: str, code: int = 0) -> None:
    file = folder / program
    file.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("program", "text", "name"),
    [
        ("nvidia-smi", "NVIDIA L4", "l4"),
        ("nvidia-smi", "NVIDIA L40S", "l40s"),
        ("nvidia-smi", "NVIDIA H200", "h200"),
        ("nvidia-smi", "NVIDIA L40", None),
        ("nvidia-smi", "NVIDIA GeForce RTX 4090 D", "rtx-4090"),
        ("rocm-smi", "device,Card Series\ncard0,AMD Instinct MI300X OAM", "mi300x"),
        ("unknown-smi", "NVIDIA L4", None),
    ],
)
def test_the_card_that_a_driver_names(
    program: str, text: str, name: str | None, driver: Path
) -> None:
    says(driver, program, text)
    assert this_accelerator() == name


def test_a_driver_that_fails_says_nothing(driver: Path) -> None:
    says(driver, "nvidia-smi", "NVIDIA L4", code=9)
    assert this_accelerator() is None and suggestions() == ""


def test_bankwise_alone_ends_with_three_commands(driver: Path, tmp_path: Path) -> None:
    says(driver, "nvidia-smi", "NVIDIA H100 80GB HBM3")
    done = bankwise(cwd=tmp_path)
    assert "Usage: bankwise" in done.stdout + done.stderr
    lines = [line.strip() for line in done.stderr.splitlines()]
    begun = lines.index("This machine's accelerator is described: h100-sxm. To begin:")
    commands = lines[begun + 1 : begun + 4]
    assert [line.split()[:2] for line in commands] == [
        ["bankwise", "fit"], ["bankwise", "size"], ["bankwise", "run"]
    ]  # fmt: skip


def test_no_two_accelerators_have_a_name() -> None:
    known = [
        each for name in names("accelerators")
        for each in load_device(name).accelerator.known_as  # type: ignore[union-attr]
    ]  # fmt: skip
    assert len(known) == len(set(known)) > 20
