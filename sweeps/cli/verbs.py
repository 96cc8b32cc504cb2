"""The verbs, and what `bankwise WORD` does with each word: a question, another verb, a device.

A new question is a line of `sweeps/ask/questions.py`; another verb is a file
`sweeps/cli/VERB_command.py` with its `command`. Either has a line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from sweeps.ask.questions import QUESTIONS, does, words_of
from sweeps.cli.options import mistake, take_up_rules
from sweeps.cli.packaged import PACKAGES, brought, made, packaged

ASK, DESCRIBE, RUN, LOOK, TRUST = "Ask", "Describe", "Run", "Look", "Trust"
VERBS = {
    "fit": ASK, "size": ASK, "transfer": ASK,
    "list": DESCRIBE, "new": DESCRIBE, "check": DESCRIBE,
    "run": RUN, "memory": RUN, "replay": RUN,
    "report": LOOK, "explain": LOOK, "compare": LOOK,
    "validate": TRUST, "calibrate": TRUST, "audit": TRUST, "export": TRUST,
}  # fmt: skip
"""Verb -> the panel of `bankwise --help` that it stands in."""


def _of(name: str) -> Any:
    """A verb's function, or its Typer where it has verbs of its own."""
    return import_module(f"sweeps.cli.{name}_command").command


def _does(name: str) -> str:
    """The first sentence of its help."""
    if name in QUESTIONS:
        return does(name)
    found = _of(name)
    own: Any = found.registered_callback if isinstance(found, typer.Typer) else None
    text = (own.callback if own else found).__doc__
    return " ".join(text.split()).partition(". ")[0].rstrip(".") + "."


def _of_packages() -> list[str]:
    """Verbs of one word that packages bring, which replace none."""
    return [name for name in brought() if " " not in name and name not in VERBS]


class Verbs(TyperGroup):
    """Lists verbs beside their panels, each with the first sentence of its help, in plain text:
    Typer draws panels with rich alone, which would be loaded for it. The options of a verb are read
    when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*VERBS, *_of_packages()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in QUESTIONS and cmd_name not in self.commands:
            from sweeps.cli.asking import asking

            self.commands[cmd_name] = asking(cmd_name)
        elif cmd_name in VERBS and cmd_name not in self.commands:
            found = _of(cmd_name)
            if isinstance(found, typer.Typer):
                group: Any = typer.main.get_group(found)
                group.name = cmd_name
                self.commands[cmd_name] = group
            else:
                self.commands[cmd_name] = made(cmd_name, found)
        return self.commands.get(cmd_name) or packaged(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        formatter.write("\n")
        told = ""
        for name, panel in VERBS.items():
            formatter.write(f"{'' if panel == told else panel:9} {name:10} {_does(name)}\n")
            told = panel
        for name in _of_packages():
            does = packaged(name).get_short_help_str(limit=99)
            formatter.write(f"{'Packages':9} {name:10} {does}\n")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        take_up_rules(args)
        if words := words_of(args):
            name = " ".join(args[:words])
            return name, self.get_command(ctx, name), args[words:]
        known = {*VERBS, *PACKAGES, *_of_packages()}
        if args[0] in known or ctx.resilient_parsing or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        from sweeps.cli.asked_of import show_questions, what_it_is

        if what_it_is(args[0], list(VERBS)) != "device":
            raise AssertionError("a word that is nothing is refused")
        if len(args) > 1:
            raise mistake(f"{args[0]} is a device; say what of it: bankwise fit {args[0]}", args[1])
        show_questions(args[0])
        raise typer.Exit
