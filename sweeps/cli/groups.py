"""`bankwise --help`: commands by what one wants of them, in plain text.

Typer draws `rich_help_panel`s with rich alone, which would be loaded for it.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

ASK, DESCRIBE, RUN, LOOK, TRUST = "Ask", "Describe", "Run", "Look", "Trust"


class Grouped(TyperGroup):
    """Lists its commands under the panels that they name, in order of registration, each with
    its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shown = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        panels: dict[str, list[tuple[str, str]]] = {}
        widest = max(map(len, shown))
        for name, command in shown.items():
            panel = str(getattr(command, "rich_help_panel", None) or "Commands")
            text = command.get_short_help_str(limit=200) if command else ""
            panels.setdefault(panel, []).append((name.ljust(widest), text))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)
