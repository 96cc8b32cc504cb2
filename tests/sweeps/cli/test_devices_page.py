"""Does the device that the documentation describes do what it says there?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sweeps.cli.test_command_line import bankwise

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "your-device.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orin.yaml").write_text(shown())
    return tmp_path


def shown() -> str:
    """The first description of an accelerator on its page."""
    return PAGE.read_text().split("```yaml\n")[1].split("```")[0]


def test_it_is_checked_and_its_assumptions_are_listed(folder: Path) -> None:
    done = bankwise("check", "orin.yaml", "--assumed", cwd=folder)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "orin.yaml: accelerator, no mistakes"
    assert "assumed: dma.window = 32KiB  (as a100-80gb)" in done.stdout


def test_quickstart_answers_for_it(folder: Path) -> None:
    settings = {
        "device": "orin.yaml", "requests": 15, "warmup_requests": 15, "replications": 2,
        "fidelity": "analytic",
    }  # fmt: skip
    words = [word for path, value in settings.items() for word in ("--set", f"{path}={value}")]
    done = bankwise("run", "quickstart", "--out", "run", "--jobs", "1", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "\norin: " in done.stdout
    provenance = json.loads((folder / "run/provenance.json").read_text())
    assert "dma.window" in provenance["assumed"]["my-orin"]
