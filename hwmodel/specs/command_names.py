"""What a memory's description calls its commands: by their kinds, or by names of its own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ValidationError

from hwmodel.description.description import again
from hwmodel.description.written import TEXT_TOO, WithJsonSchema
from hwmodel.specs.commands import COMMANDS, KINDS, PERIODIC_COMMANDS

CommandName = Literal[
    "ACT", "ACT1", "ACT2", "RD", "RDA", "WR", "WRA", "MWR", "MWRA",
    "PRE", "PREA", "REFPB", "REFAB", "CAS", "RFM", "RFMAB",
    "PDE", "PDX", "SRE", "SRX", "PERIODIC",
]  # fmt: skip


def named_by_kind(data: object) -> object:
    """A memory's description with its commands, and the rows that name them, called by their kinds;
    those of kind PERIODIC by PERIODIC_COMMANDS, in their order. Raises ValueError where there are
    more of these, or two of another kind, or a name is that of another kind."""
    commands = data.get("commands") if isinstance(data, dict) else None
    if not isinstance(commands, dict) or not isinstance(data, dict):
        return data
    kinds: dict[object, object] = {}
    left = list(PERIODIC_COMMANDS)
    for name, command in commands.items():
        kind = (command.get("kind") or name) if isinstance(command, dict) else None
        if not isinstance(kind, str) or kind == name not in PERIODIC_COMMANDS:
            continue
        if name in COMMANDS and (kind != name or name != "PERIODIC"):
            raise ValueError(f"commands.{name}: kind {kind} has a name of its own")
        if kind == "PERIODIC" and not left:
            most = len(PERIODIC_COMMANDS)
            raise ValueError(f"commands.{name}: at most {most} commands of kind PERIODIC fit")
        if kind != "PERIODIC" and (kind in commands or kind in kinds.values()):
            raise ValueError(f"commands.{name}: there is another command of kind {kind}")
        kinds[name] = left.pop(0) if kind == "PERIODIC" else kind
    if not kinds:
        return data
    named = {
        kinds.get(name, name): {**command, "name": name} if name in kinds else command
        for name, command in commands.items()
    }
    rows = data.get("constraints")
    if isinstance(rows, list):
        rows = [_by_kind(row, kinds) if isinstance(row, dict) else row for row in rows]
    return {**data, "commands": named, **({} if rows is None else {"constraints": rows})}


def by_name(error: ValidationError, named: Any) -> ValidationError:
    """A mistake in what `named_by_kind` gave, placed as the description calls its commands."""
    called = {
        kind: c.get("name", kind) for kind, c in named["commands"].items() if isinstance(c, dict)
    }
    found = [again(item) for item in error.errors()]
    for item in found:
        if item["loc"][:1] == ("commands",):
            item["loc"] = tuple(called.get(part, part) for part in item["loc"])
    return ValidationError.from_exception_data(error.title, found)


def _by_kind(row: dict[str, object], kinds: dict[object, object]) -> dict[str, object]:
    found = dict(row)
    for side in ("after", "before"):
        if (names := row.get(side)) is not None:
            every = names if isinstance(names, list) else [names]
            found[side] = [kinds.get(n, n) if isinstance(n, str) else n for n in every]
    return found


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Named = Annotated[str, WithJsonSchema({"enum": list(KINDS)}), TEXT_TOO]
CommandList = Annotated[list[_Named], BeforeValidator(_listed), TEXT_TOO]
"""Field type: commands by their kinds, or by names of the description's own."""
