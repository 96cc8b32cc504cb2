"""`bankwise transfer pause` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sweeps.cli.test_command_line import bankwise, refusal

ASKED = (
    "transfer", "pause", "pcie4-a30-batched", "--device", "a100-80gb", "--model", "llama-2-7b",
)  # fmt: skip


def test_waste_by_pause(tmp_path: Path) -> None:
    found = json.loads(bankwise(*ASKED, "--seconds", "0.01,100", "--json", cwd=tmp_path).stdout)
    assert [pause["least"] for pause in found["pauses"]] == ["keep", "swap"]
    hidden = found["hidden_tokens_a_step"]
    assert 0 < hidden["as it lies"] <= hidden["whole blocks"]
    assert "Keeping wastes as much as dropping at" in bankwise(*ASKED, cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--seconds", "-1"), "--seconds: expected a number above 0; got '-1'"),
        (("--pages", "old"), "expected fresh, aged, descending"),
        (("--tokens", "1,2"), "--tokens: expected a whole number; got '1,2'"),
        (("--running", "500"), "GiB; a100-80gb has 80.0"),
    ],
)
def test_a_mistake_is_answered_in_a_line(
    options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    assert said in refusal(*ASKED, *options, cwd=tmp_path)
