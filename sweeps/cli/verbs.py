"""The verbs, and what `bankwise WORD` does with each word: a verb, a device, a former command.

A new verb is a file `sweeps/cli/VERB_command.py` with its `command`, and a line here.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from sweeps.cli.former import FORMER, successor
from sweeps.cli.options import AT_FAULT, mistake

ASK, DESCRIBE, RUN, LOOK, TRUST = "Ask", "Describe", "Run", "Look", "Trust"
VERBS = {
    "fit": ASK, "size": ASK, "transfer": ASK,
    "list": DESCRIBE, "new": DESCRIBE, "check": DESCRIBE,
    "run": RUN, "memory": RUN, "replay": RUN,
    "report": LOOK, "explain": LOOK, "compare": LOOK,
    "validate": TRUST, "calibrate": TRUST, "audit": TRUST, "export": TRUST,
}  # fmt: skip
"""Verb -> the panel of `bankwise --help` that it stands in."""


class Verbs(TyperGroup):
    """Lists verbs beside their panels, each with the first sentence of its help, in plain text:
    Typer draws panels with rich alone, which would be loaded for it."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        formatter.write("\n")
        told = ""
        for name, panel in VERBS.items():
            does = self.commands[name].get_short_help_str(limit=80)
            formatter.write(f"{'' if panel == told else panel:9} {name:10} {does}\n")
            told = panel

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in self.commands or ctx.resilient_parsing or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        if args[0] in FORMER:
            typer.echo(f"{args[0]}: now `{successor(args[0], args[1:])}`", err=True)
            raise typer.Exit(AT_FAULT)
        from sweeps.cli.asked_of import show_questions, what_it_is

        if what_it_is(args[0], list(self.commands)) != "device":
            raise AssertionError("a word that is nothing is refused")
        if len(args) > 1:
            raise mistake(f"{args[0]} is a device; say what of it: bankwise fit {args[0]}", args[1])
        show_questions(args[0])
        raise typer.Exit
