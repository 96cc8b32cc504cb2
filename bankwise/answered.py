"""The answer to a question, as Python sees it, and the functions that ask."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from sweeps.ask.question import Question, in_order, is_several, record, typing_of
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

    def __getitem__(self, name: str) -> Any:
        """One value of the record, where that has names."""
        return self._record[name]

    def sections(self) -> list[Section]:
        return self._shown


def answered(question: Question) -> Answered | Frame:
    """The answer to a question; where that is rows, a table. Raises DescriptionError."""
    findings = question.answer()
    section, plain = question.section(findings), record(findings)
    plain = [*plain] if isinstance(plain, Iterator) else plain
    question.write_files(findings)
    if isinstance(plain, list):
        return Frame(section.title, plain, [b for b in section.blocks if isinstance(b, Grid)])
    return Answered([section], plain)


def function_of(verb: str) -> Callable[..., Answered | Frame]:
    """A verb as a function: its fields are the parameters, those that stand without a name on the
    command line first."""
    question, kinds = question_of(verb), inspect.Parameter
    fields = [(name, question.model_fields[name]) for name in in_order(question)]
    places = [name for name, _ in fields if typing_of(question, name).argument]
    many = is_several(question, places[-1]) if places else False

    def kind(name: str) -> Any:
        if name not in places:
            return kinds.KEYWORD_ONLY
        return kinds.VAR_POSITIONAL if many and name == places[-1] else kinds.POSITIONAL_OR_KEYWORD

    def ask(*given: Any, **named: Any) -> Answered | Frame:
        if many and len(given) >= len(places):
            given = (*given[: len(places) - 1], given[len(places) - 1 :])
        if len(given) > len(places):
            raise TypeError(f"{ask.__name__} takes {len(places)} without a name; got {len(given)}")
        return answered(question.of(dict(zip(places, given, strict=False)) | named))

    parts = (f"{name}: {' '.join((field.description or '').split())}" for name, field in fields)
    text = inspect.cleandoc(question.__doc__ or "")
    ask.__name__ = ask.__qualname__ = verb.replace(" ", "_")
    ask.__doc__ = "\n\n".join([text, "\n".join(parts), "Raises DescriptionError."])
    ask.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        kinds(
            name, kind(name), annotation=field.annotation,
            default=kinds.empty if field.is_required() or kind(name) is kinds.VAR_POSITIONAL
            else field.default,
        )
        for name, field in fields
    ])  # fmt: skip
    return ask
