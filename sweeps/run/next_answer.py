"""What came of the next question: a gap with one thing after another changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError
from hwmodel.description.yaml_writer import plain
from sweeps.analyse.statistics import Interval, family_signs
from sweeps.run.explanation import FOLDER, interval_of
from sweeps.run.store import RunDirectory

NEXT = "next.json"
"""In the folder of explanations."""


@dataclass(frozen=True)
class Reply:
    """One change."""

    question: str
    """See `sweeps.plan.next_question.QUESTIONS`."""
    change: str
    gap: Interval | None
    """Logarithm of the winner's rate over the loser's, paired; None where one could not serve."""
    why: str = ""
    """There: what failed."""


@dataclass(frozen=True)
class NextAnswer:
    """A gap, and what becomes of it."""

    group: str
    winner: str
    loser: str
    total: Interval
    """As described, as a logarithm."""
    replies: list[Reply]

    @cached_property
    def known(self) -> list[tuple[Reply, Interval]]:
        """Those with a gap, the smallest first."""
        found = [(each, each.gap) for each in self.replies if each.gap is not None]
        return sorted(found, key=lambda pair: pair[1].mean)

    @cached_property
    def signs(self) -> dict[str, int]:
        """Of each change with a gap: 1 where the winner leads, -1 where the loser does, 0 where
        that is not significant; all changes are one family (Holm)."""
        return family_signs({each.change: gap for each, gap in self.known})

    def with_sign(self, sign: int) -> list[str]:
        """The changes that come out so."""
        return [name for name, each in self.signs.items() if each == sign]


def record(answers: list[NextAnswer], origin: dict[str, Any]) -> dict[str, Any]:
    """In JSON's types, with where they come from."""
    return {"answers": plain([asdict(each) for each in answers]), **origin}


def read(directory: Path) -> list[NextAnswer]:
    """Those in a run directory; none where there are none, or of another version."""
    try:
        data = RunDirectory(directory / FOLDER).read_json(NEXT)
        return [_read(each) for each in data["answers"]] if data else []
    except (DescriptionError, KeyError, TypeError):
        return []


def _read(data: dict[str, Any]) -> NextAnswer:
    replies = [
        Reply(**{**each, "gap": each["gap"] and interval_of(each["gap"])})
        for each in data["replies"]
    ]
    return NextAnswer(**{**data, "total": interval_of(data["total"]), "replies": replies})
