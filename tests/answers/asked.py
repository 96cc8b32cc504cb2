"""One relation, over one draw."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import ValidationError

from hwmodel.description.description import DescriptionError
from tests.answers.draws import draw
from tests.answers.relations import RELATIONS


class Asked(NamedTuple):
    """`refused`: why what was drawn could not be asked; None: it was."""

    relation: str
    draw: str
    breaches: list[str]
    refused: str | None = None


def asked(seed: int, number: int, only: str | None = None) -> Asked:
    """The so many-th of a seed, of each relation in turn."""
    name = only or [*RELATIONS][number % len(RELATIONS)]
    drawn = draw(seed, number)
    try:
        return Asked(name, str(drawn), list(RELATIONS[name].holds(drawn)))
    except (DescriptionError, ValidationError) as error:
        return Asked(name, str(drawn), [], " ".join(str(error).split())[:160])
    except Exception as error:
        return Asked(name, str(drawn), [f"{type(error).__name__}: {error}"])
