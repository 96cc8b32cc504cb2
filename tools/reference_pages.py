"""The two pages that the code writes: `docs/command-line.md` from the verbs, `docs/yaml.md` from
the specs that read descriptions.

    python -m tools.reference_pages          # write both
    python -m tools.reference_pages check    # name what is out of date, with exit status 1
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from sweeps.cli.main import app
from sweeps.cli.verbs import VERBS
from tools.reference_yaml import yaml_page

DOCS = Path(__file__).resolve().parents[1] / "docs"
WRITTEN_BY = "*Written by `python -m tools.reference_pages`; do not edit.*"
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


def pages() -> dict[str, str]:
    """The text of each page by its file's name."""
    return {"command-line.md": _command_line(), "yaml.md": yaml_page(WRITTEN_BY)}


def stale() -> list[str]:
    """The pages that are not as the code would write them."""
    return [name for name, text in pages().items() if _read(DOCS / name) != text]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


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


def main(arguments: list[str]) -> int:
    """Write the pages, or with `check` say which are out of date."""
    if arguments == ["check"]:
        found = stale()
        for name in found:
            print(f"docs/{name}: out of date; python -m tools.reference_pages")
        return 1 if found else 0
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/{name}, {len(text.split()):,} words")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
