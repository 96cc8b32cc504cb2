"""Are the descriptions that the documentation shows without mistakes?"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweeps.plan.sweep import load_sweep
from sweeps.plan.variant import ROLES
from sweeps.study.study_spec import load_study

DOCS = Path(__file__).resolve().parents[3] / "docs"
SWEEPS = DOCS.parent / "yaml/sweeps"


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


def examples(role: str) -> dict[str, Any]:
    """The variants that docs/experiments.md shows for a role."""
    text = (DOCS / "experiments.md").read_text(encoding="utf-8")
    after = text.split(f"\n**{role}**")[1].split("\n\n")[1]
    return yaml.safe_load(textwrap.dedent(after))


@pytest.mark.parametrize("role", ROLES)
def test_the_example_of_each_role(role: str) -> None:
    shown = examples(role)
    assert {each["role"] for each in shown.values()} == {role}
    design = {"change": "what_if", "condition": "what_if"}.get(role)
    name = {"objection": "answer", "reading": "answer"}.get(role, "quickstart")
    content: dict[str, Any] = yaml.safe_load((SWEEPS / f"{name}.yaml").read_text(encoding="utf-8"))
    content |= {"skip": []}
    if design:
        window = {"set": {"device_set.dma.window": "32KiB"}, "role": "change"}
        content |= {"design": design, "variants": {"twice the DMA window": window, **shown}}
    elif name == "answer":
        content["variants"] |= shown
    else:
        content["axes"].pop("device" if role == "case" else "", None)
        content["variants"] = shown
    assert load_sweep(content).points


def test_the_break_evens() -> None:
    text = (DOCS / "experiments.md").read_text(encoding="utf-8")
    block = text.split("It takes no other variants:\n\n")[1].split("\n\n")[0]
    sweep = yaml.safe_load((SWEEPS / "break-even-mlu370-x4.yaml").read_text(encoding="utf-8"))
    shown = yaml.safe_load(textwrap.dedent(block))
    assert len(load_sweep({**sweep, **shown}).spec.break_even) == 2  # type: ignore[attr-defined]
