"""The pages of the site that the code writes: `command-line.md` from the verbs, `yaml.md` and a
page for each kind from the specs that read descriptions (`tools.site_pages`)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from sweeps.cli.main import app
from sweeps.cli.verbs import VERBS
from tools.reference_yaml import yaml_pages

WRITTEN_BY = "*Made of the code that reads what you type and describe.*"
_BEGINNING = """`bankwise VERB --help` prints what stands here. `bankwise DEVICE` lists what can be
asked of a device. Every value that a description states can be set with `--set PATH=VALUE`; the
paths are those of [the YAML reference](yaml.md). `bankwise --install-completion` makes your shell
complete verbs, options and names.

The exit code is 0 when all was done, 1 when something that was looked for was found (a violation, a
disagreement) or a simulation failed, 2 when what you typed or described is at fault, with one line
that says where and what was expected, and 130 after an interruption.""".splitlines()
_PANELS = {
    "Ask": "Questions that need no sweep.",
    "Describe": "What ships, and descriptions of your own.",
    "Run": "Simulations.",
    "Look": "What runs found.",
    "Trust": "The model beside measurements and other tools.",
}


def reference_pages() -> dict[str, str]:
    """The text of each page by its file's name."""
    return {"command-line.md": _command_line(), **yaml_pages(WRITTEN_BY)}


def _command_line() -> str:
    lines = ["# The command line", "", WRITTEN_BY, "", *_BEGINNING, ""]
    group: Any = typer.main.get_command(app)
    context = group.make_context("bankwise", [], resilient_parsing=True)
    told = ""
    for name, panel in VERBS.items():
        if panel != told:
            lines += [f"## {panel}", "", _PANELS[panel], ""]
            told = panel
        lines += _verb(group.get_command(context, name), f"bankwise {name}", "###")
    return "\n".join(lines).rstrip() + "\n"


def _verb(command: Any, called: str, level: str) -> Iterator[str]:
    """A heading, the help, and a row for each argument and option."""
    yield from (f"{level} {called}", "")
    yield from (_prose(command.help or command.callback.__doc__ or ""), "")
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from _verb(each, f"{called} {name}", f"{level}#")
        return
    context = command.context_class(command, info_name=called)
    records = [each.get_help_record(context) for each in command.params if each.name != "help"]
    yield from ("| argument or option | meaning |", "|---|---|")
    yield from (f"| `{_cell(name)}` | {_cell(told)} |" for name, told in filter(None, records))
    yield ""


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
