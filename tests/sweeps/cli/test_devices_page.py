"""Does the device that the documentation describes do what it says there?"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.sweeps.cli.test_command_line import bankwise

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "devices.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orin.yaml").write_text(described())
    return tmp_path


def described() -> str:
    """The page's description of a device."""
    lines = PAGE.read_text().splitlines()
    first = lines.index("    kind: accelerator")
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("    "))
    return textwrap.dedent("\n".join(lines[first:last])) + "\n"


def test_twenty_lines_are_enough() -> None:
    assert len(described().splitlines()) <= 20


def test_it_is_checked_and_its_assumptions_are_listed(folder: Path) -> None:
    done = bankwise("check", "orin.yaml", "--assumed", cwd=folder)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "orin.yaml: accelerator, no mistakes"
    assert "assumed: dma.window = 32KiB  (as a100-80gb)" in done.stdout


def test_its_bandwidth_is_what_the_page_says(folder: Path) -> None:
    done = bankwise(
        "memory", "orin.yaml", "--pattern", "sequential", "--pattern", "random_16KiB", "--json",
        cwd=folder,
    )  # fmt: skip
    sequential, random = json.loads(done.stdout)
    assert sequential["peak_gbps"] == pytest.approx(204.8)
    told = f"{sequential['bandwidth_gbps']:.1f} GB/s sequential, {random['bandwidth_gbps']:.1f} in"
    assert told in PAGE.read_text()


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
    assert "dma.window" in provenance["assumed"]["jetson-agx-orin"]
