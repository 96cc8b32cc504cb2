"""The answer to a question, as Python sees it, and the functions that ask."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sweeps.ask.question import Question, record, typing_of
from sweeps.ask.questions import question as question_of
from sweeps.report.frame import Frame
from sweeps.report.shown import Shown
from sweeps.sections.section import Grid, Section


class Answered(Shown):
    """Shows itself in a notebook; `save("page.html")`, `.md` or `.svg` writes it."""

    def __init__(self, shown: list[Section], record: Any) -> None:
        self._shown, self._record = shown, record

    def record(self) -> Any:
        """In JSON's types, as the command's `--json` prints it."""
        return self._record

    def sections(self) -> list[Section]:
        return self._shown


def answered(question: Question) -> Answered | Frame:
    """The answer to a question; where that is rows, a table. Raises DescriptionError."""
    findings = question.answer()
    section, plain = question.section(findings), record(findings)
    if isinstance(plain, list):
        return Frame(section.title, plain, [b for b in section.blocks if isinstance(b, Grid)])
    return Answered([section], plain)


def function_of(verb: str) -> Callable[..., Answered | Frame]:
    """A verb as a function: its fields are the parameters, those that stand without a name on the
    command line first."""
    question = question_of(verb)
    places, names = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    fields = sorted(
        question.model_fields.items(), key=lambda each: not typing_of(question, each[0]).argument
    )
    signature = inspect.Signature([
        inspect.Parameter(
            name, places if typing_of(question, name).argument else names,
            annotation=field.annotation,
            default=inspect.Parameter.empty if field.is_required() else field.default,
        )
        for name, field in fields
    ])  # fmt: skip

    def ask(*given: Any, **named: Any) -> Answered | Frame:
        return answered(question.of(signature.bind(*given, **named).arguments))

    parts = (f"{name}: {' '.join((field.description or '').split())}" for name, field in fields)
    text = inspect.cleandoc(question.__doc__ or "")
    ask.__name__ = ask.__qualname__ = verb.replace(" ", "_")
    ask.__doc__ = "\n\n".join([text, "\n".join(parts), "Raises DescriptionError."])
    ask.__signature__ = signature  # type: ignore[attr-defined]
    return ask
