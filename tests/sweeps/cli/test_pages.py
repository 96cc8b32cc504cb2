"""Are the descriptions that the documentation shows without mistakes, and do the commands of README
work as typed?"""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest
import typer

import yaml
from sweeps.cli.main import app
from sweeps.plan.sweep import load_sweep, planned_kind
from sweeps.plan.variant import ROLES
from sweeps.study.study_spec import load_study
from tests.sweeps.cli.test_command_line import bankwise

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
    rule = {"change": "effects", "condition": "effects"}.get(role)
    name = {"objection": "answer", "reading": "answer"}.get(role, "quickstart")
    content: dict[str, Any] = yaml.safe_load((SWEEPS / f"{name}.yaml").read_text(encoding="utf-8"))
    content |= {"skip": []}
    if rule:
        window = {"set": {"device_set.dma.window": "32KiB"}, "role": "change"}
        content |= {"rule": rule, "variants": {"twice the DMA window": window, **shown}}
    elif name == "answer":
        content["variants"] |= shown
    else:
        content["axes"].pop("device" if role == "case" else "", None)
        content["variants"] = shown
    assert load_sweep(content).points


def test_the_break_evens() -> None:
    text = (DOCS / "experiments.md").read_text(encoding="utf-8")
    block = text.split("in each case, where there are cases:\n\n")[1].split("\n\n")[0]
    sweep = yaml.safe_load((SWEEPS / "break-even-mlu370-x4.yaml").read_text(encoding="utf-8"))
    shown = yaml.safe_load(textwrap.dedent(block))
    assert len(load_sweep({**sweep, **shown}).spec.crossing) == 2


README = (DOCS.parent / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line.split("  # ")[0].removeprefix("    $ ").strip(), comments=True)
    for line in README.splitlines()
    if line.startswith(("    $ bankwise ", "    bankwise "))
]
QUICK = ("fit", "memory")
"""Commands of README that are run; what they print stands below them."""


def parsed(words: list[str]) -> dict[str, Any]:
    """The arguments of a command as typed, without running it."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("bankwise", words[1:])
    for _ in range(2):
        name, command, rest = context.command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = command.make_context(name, rest, parent=context)
        if not hasattr(command, "commands"):
            break
    return dict(context.params)


def test_readme_has_commands() -> None:
    assert len(COMMANDS) > 10 and {words[1] for words in COMMANDS} >= {*QUICK}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_of_readme_is_understood(words: list[str]) -> None:
    given = parsed(words)
    if words[1] == "run":
        load = {"sweep": load_sweep, "study": load_study}[planned_kind(given["name"])]
        assert load(given["name"], given["overrides"] or ()).points


@pytest.mark.parametrize("name", QUICK)
def test_a_command_of_readme_prints_what_readme_shows(name: str, tmp_path: Path) -> None:
    typed, _, after = README.partition(f"    $ bankwise {name} ")[2].partition("\n")
    shown = [line.strip() for line in after.split("\n\n")[0].splitlines()]
    done = bankwise(name, *shlex.split(typed), cwd=tmp_path)
    printed = {" ".join(line.split()) for line in done.stdout.splitlines()}
    assert done.returncode == 0 and shown
    assert not [line for line in shown if " ".join(line.split()) not in printed]
