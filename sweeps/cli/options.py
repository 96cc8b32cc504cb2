"""Options that several commands have, and how commands end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

DONE, FOUND, AT_FAULT, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
"""Exit codes: done; violations or failures were found; the input is at fault; Ctrl-C; SIGTERM."""

RUNS = "A run directory, or NAME for the last runs/NAME-N."


def shipped(*folders: str) -> Callable[[str], list[str]]:
    """What a shell completes a name to: shipped ones of these folders that begin so."""

    def beginning(incomplete: str) -> list[str]:
        from hwmodel.description.library import names

        known = (name for folder in folders for name in names(folder))
        return [name for name in known if name.startswith(incomplete)]

    return beginning


Device = Annotated[
    str,
    typer.Argument(
        metavar="DEVICE",
        help="A shipped accelerator or memory, or a YAML file.",
        autocompletion=shipped("accelerators", "memories"),
    ),
]


def _each_once(assignments: list[str] | None) -> list[str] | None:
    """Raise DescriptionError where one path is given twice."""
    if assignments:
        from sweeps.ask.question import once

        once(assignments)
    return assignments


Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", callback=_each_once,
        help="Override a described value; repeatable.",
    ),
]  # fmt: skip


def take_up_rules(arguments: Sequence[str]) -> None:
    """Read the files of `--plugin` for rules of the memory controller, before a verb is looked up:
    its question may load the kernels, which such rules are compiled into."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=True)
    files = [value for option, value in pairs if option == "--plugin"]
    files += [each.partition("=")[2] for each in arguments if each.startswith("--plugin=")]
    if files:
        from hwmodel.specs.controller_rule import read_and_announce

        read_and_announce(files)


def _plugged(files: list[Path] | None) -> list[Path] | None:
    """Load them before the command looks for what they define."""
    if files:
        from sweeps.plan.plugged import load_plugin  # heavy

        for file in files:
            load_plugin(file)
    return files


Plugin = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin", metavar="FILE.py", callback=_plugged,
        help="Allocators, schedulers, routers, measures, verdict rules, ... of your own; "
        "repeatable.",
    ),
]  # fmt: skip
Jobs = Annotated[
    int | None, typer.Option("--jobs", help="Worker processes; one per core by default.")
]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="Use the workers of this Dask scheduler."),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Run directory; runs/NAME-N by default.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page to FILE.")]
Markdown = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write Markdown to FILE.")
]


def mistake(text: str, option: str) -> Exception:
    """A DescriptionError about an option; loads its module when there is one."""
    from hwmodel.description.description import DescriptionError

    return DescriptionError(text, option)


def failure(error: Exception) -> str | None:
    """The line for an error that is the input's or the machine's, None where it is ours."""
    description = sys.modules.get("hwmodel.description.description")
    if description is not None and isinstance(error, description.DescriptionError):
        from sweeps.plan.place import shortened

        return shortened(str(error))
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    faults = sys.modules.get("policies.serving.plugin_faults")
    fault = None if faults is None else faults.blamed(error)
    return None if fault is None else str(fault)


def usage(error: Any) -> str:
    """The line for an error of Typer's about what was typed; help, where nothing was."""
    text: str = error.format_message()
    if error.ctx is None or text == error.ctx.get_help():
        return text
    if near := getattr(error, "possibilities", None):
        text = f"{error.message}; did you mean {near[0]!r}?"
    where = error.ctx.command_path
    return f"{where}: {text[0].lower()}{text[1:].rstrip('.')}; see {where} --help"


def refuse(why: str, given: Mapping[str, Any]) -> None:
    """Raise DescriptionError for the first of these options that has a value: with `why`, such as
    "needs --states"."""
    for option, value in given.items():
        if value is not None and value is not False:
            raise mistake(why, option)


def wrote(files: Sequence[Path], json: bool) -> None:
    """Say which files were written: beside JSON on stderr."""
    for path in files:
        print(f"wrote {path}", file=sys.stderr if json else sys.stdout)
