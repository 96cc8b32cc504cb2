"""Verbs that installed packages bring by the entry points `bankwise.verbs`: `NAME =
module:function`, a command of Typer; "new NAME" stands under `new`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
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


def formerly(options: Mapping[str, str]) -> Callable[[Any], Any]:
    """Of a command's function: options of earlier versions -> what to type now."""

    def marked(function: Any) -> Any:
        function.former = options
        return function

    return marked


class OnceCommand(TyperCommand):
    """Refuses an option of one value that is given twice: which of them counts would be a guess.
    Answers an option of earlier versions with what is typed now."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        former = getattr(self.callback, "former", {})
        for name in (word.partition("=")[0] for word in args):
            if name in former:
                raise mistake(f"is now {former[name]}", name)
        for param in self.params:
            if param.multiple or getattr(param, "is_flag", False) or param.nargs != 1:
                continue
            names = [name for name in param.opts if name.startswith("--")]
            given = [word for word in args if word.partition("=")[0] in names]
            if len(given) > 1:
                raise mistake("given twice; it has one value", given[0].partition("=")[0])
        return super().parse_args(ctx, args)


def made(name: str, function: Any) -> Any:
    """A function, as a command of this name."""
    info = CommandInfo(name, cls=OnceCommand, callback=function)
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
