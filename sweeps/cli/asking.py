"""A question as a command: its fields are the arguments and options, its docstring the help."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from sweeps.ask.questions import QUESTIONS, does, question
from sweeps.cli.options import FOUND, Json, Plugin, shipped, wrote
from sweeps.cli.packaged import formerly, made

Save = Annotated[
    Path | None,
    typer.Option(
        "--save", metavar="FILE",
        help="Write the answer as a page (.html, .md), its charts (.svg, .png, .pdf) or their"
        " values (.csv).",
    ),
]  # fmt: skip


def asking(verb: str) -> Any:
    """The command of a question."""
    return made(verb, formerly(question(verb).former)(_function(verb)))


def _function(verb: str) -> Any:
    """What a command does, with a signature that Typer reads."""
    from sweeps.ask.question import in_order

    asked = question(verb)

    def run(save: Path | None = None, json: bool = False, plugin: Any = None, **given: Any) -> None:
        from sweeps.ask.question import record
        from sweeps.report.screen import print_json, print_lines, print_section
        from sweeps.report.shown import check_name
        from sweeps.report.shown import save as write

        stated = {key: value for key, value in given.items() if value not in (None, [], False)}
        one = asked.of(stated)
        if save is not None:
            check_name(save)
        findings = one.answer()
        section = None if json and save is None else one.section(findings)
        if json:
            found = record(findings)
            print_lines(found) if isinstance(found, Iterator) else print_json(found)
        elif section is not None:
            print_section(section)
        if save is not None and section is not None:
            write([section], save)
            wrote([save], json)
        if files := one.write_files(findings):
            wrote(files, json)
        if one.failed(findings):
            raise typer.Exit(FOUND)

    every = [
        *(_parameter(name, _typed(asked, name), _default(asked.model_fields[name]))
          for name in in_order(asked)),
        *([_parameter("plugin", Plugin, None)] if asked.plugs else []),
        _parameter("save", Save, None), _parameter("json", Json, False),
    ]  # fmt: skip
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in every}
    run.__doc__ = inspect.cleandoc(asked.__doc__ or "") + _beside(verb)
    return run


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _default(field: Any) -> Any:
    """What Typer gives where nothing is typed; the question has its own."""
    if field.is_required():
        return inspect.Parameter.empty
    return False if field.annotation is bool else None


def _beside(verb: str) -> str:
    """The verbs of two words that begin with this one."""
    others = [name for name in QUESTIONS if name.startswith(f"{verb} ")]
    return "".join(f"\n\nbankwise {name}: {does(name)}" for name in others)


def _typed(asked: Any, name: str) -> Any:
    """A field as Typer knows it: a flag, or text that the question reads and checks."""
    from sweeps.ask.question import core_of, is_several, option, typing_of

    field, typed = asked.model_fields[name], typing_of(asked, name)
    core = core_of(field.annotation)
    known: dict[str, Any] = {"help": _help(field)}
    if typed.completes:
        known["autocompletion"] = shipped(*typed.completes)
    if core is not bool:
        known["metavar"] = typed.metavar or _metavar(core)
    kind: Any = bool if core is bool else list[str] if is_several(asked, name) else str
    if not field.is_required() and core is not bool:
        kind = kind | None
    if typed.argument:
        return Annotated[kind, typer.Argument(**known)]
    return Annotated[kind, typer.Option(option(asked, name), **known)]


def _metavar(core: Any) -> str:
    """What a value looks like: choices, or a number."""
    from sweeps.ask.question import core_of

    parts = [core_of(each) for each in get_args(core) if each is not Ellipsis]
    if parts and all(isinstance(each, str) for each in parts):
        return "|".join(parts)
    kind = core_of(parts[0]) if parts else core
    letter = {int: "N", float: "NUMBER", Path: "FILE"}.get(kind, "TEXT")
    if get_origin(core) is tuple:
        return f"{letter},..." if Ellipsis in get_args(core) else f"{letter}[:{letter}]"
    return letter


def _help(field: Any) -> str:
    """Its docstring, with the default where there is one to tell."""
    text = " ".join((field.description or "").split())
    if field.is_required() or field.default in (None, False, (), ""):
        return text
    value = field.default
    if isinstance(value, tuple):
        value = (":" if _is_pair(field.annotation) else ",").join(map(str, value))
    return f"{text.rstrip('.')} (default: {value})."


def _is_pair(annotation: Any) -> bool:
    """Whether it is of two ends."""
    from sweeps.ask.question import core_of

    return Ellipsis not in get_args(core_of(annotation))
