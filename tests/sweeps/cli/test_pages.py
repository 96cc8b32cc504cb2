"""Are the descriptions that the documentation shows without mistakes?"""

from __future__ import annotations

import textwrap
from pathlib import Path

from sweeps.plan.sweep import load_sweep
from sweeps.study.study_spec import load_study

DOCS = Path(__file__).resolve().parents[3] / "docs"


def shown(page: str, first: str, folder: Path) -> Path:
    """The indented block of a page that begins with this line, as a file."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    start = lines.index(f"    {first}")
    block = []
    for line in lines[start:]:
        if not line.startswith("    "):
            break
        block.append(line)
    file = folder / "shown.yaml"
    file.write_text(textwrap.dedent("\n".join(block)), encoding="utf-8")
    return file


def test_the_sweep(tmp_path: Path) -> None:
    sweep = load_sweep(shown("experiments.md", "kind: sweep", tmp_path))
    assert len(sweep.points) == 6


def test_the_study(tmp_path: Path) -> None:
    study = load_study(shown("studies.md", "kind: study", tmp_path))
    assert [trial.name for trial in study.first][:2] == ["base", "paper"]
