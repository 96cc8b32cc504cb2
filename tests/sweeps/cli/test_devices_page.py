"""Do the device and the memory that the documentation describes do what it says there?"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.sweeps.cli.test_command_line import bankwise

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE, MEMORIES = DOCS / "your-device.md", DOCS / "memories.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orin.yaml").write_text(shown())
    return tmp_path


def shown() -> str:
    """The first description of an accelerator on its page."""
    return PAGE.read_text().split("```yaml\n")[1].split("```")[0]


def described(kind: str, page: Path) -> str:
    """The page's description of this kind."""
    lines = page.read_text().splitlines()
    first = lines.index(f"    kind: {kind}")
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("    "))
    return textwrap.dedent("\n".join(lines[first:last])) + "\n"


def test_it_is_checked_and_its_assumptions_are_listed(folder: Path) -> None:
    done = bankwise("check", "orin.yaml", "--assumed", cwd=folder)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "orin.yaml: accelerator, no mistakes"
    assert "assumed: dma.window = 32KiB  (as a100-80gb)" in done.stdout


def test_its_peak_is_what_the_page_says(folder: Path) -> None:
    done = bankwise("memory", "orin.yaml", "--pattern", "sequential", "--json", cwd=folder)
    assert json.loads(done.stdout)[0]["peak_gbps"] == pytest.approx(204.8)


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


def test_the_memory_differs_from_its_base_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(described("memory", MEMORIES))
    done = bankwise("check", "mine.yaml", "--assumed", cwd=tmp_path)
    assert done.stdout.splitlines()[0] == "mine.yaml: memory, no mistakes"
    assert "assumed: timing.nLECC = 1nCK  (link ECC on)" in done.stdout
    assert "assumed: controller.scheduler = frfcfs" in done.stdout
