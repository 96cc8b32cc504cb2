"""Verbs that installed packages bring by the entry points `bankwise.verbs`: `NAME =
module:function`, a command of Typer; "new NAME" stands under `new`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup
from typer.models import CommandInfo

from sweeps.cli.options import mistake

PACKAGES = {"measure": "bankwise-measure", "new predictor": "bankwise-trained-predictor"}
"""Verb -> the package under `examples/packages` that brings it."""


@cache
def brought() -> dict[str, EntryPoint]:
    """The verbs of installed packages."""
    return {point.name: point for point in entry_points(group="bankwise.verbs")}


def packaged(name: str) -> Any:
    """A verb of a package as a command; None: no package has it. Raises DescriptionError where one
    that comes with bankwise would, and is not installed, or where a package is at fault."""
    point = brought().get(name)
    if point is None:
        if name not in PACKAGES:
            return None
        from hwmodel.description.written import install

        raise mistake(install(PACKAGES[name]), f"bankwise {name}")
    try:
        function = point.load()
    except (ImportError, AttributeError) as error:
        package = "" if point.dist is None else f" of {point.dist.name}"
        raise mistake(f"{point.value}{package}: {error}", f"bankwise {name}") from None
    return made(name.split()[-1], function)


def made(name: str, function: Any, kind: Any = None) -> Any:
    """A function, as a command of this name."""
    info = CommandInfo(name, cls=kind, callback=function)
    return typer.main.get_command_from_info(
        info, pretty_exceptions_short=True, rich_markup_mode=None
    )


class NewGroup(TyperGroup):
    """`bankwise new`, with what packages add to it."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = [name.removeprefix("new ") for name in brought() if name.startswith("new ")]
        return [*super().list_commands(ctx), *own]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or packaged(f"new {cmd_name}")
