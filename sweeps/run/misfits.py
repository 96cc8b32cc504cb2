"""The points of a run that do not fit, in its directory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hwmodel.description.description import DescriptionError
from hwmodel.description.yaml_writer import plain
from sweeps.analyse.label import title
from sweeps.analyse.rows import Record
from sweeps.analyse.unfit_point import UnfitPoint
from sweeps.plan.place import shortened
from sweeps.plan.room import fits_with
from sweeps.plan.sweep_spec import Point
from sweeps.run.progress import Progress
from sweeps.run.store import RunDirectory, write_atomically

FILE = "does_not_fit.json"


class Misfits:
    """Those of a run, `points` in their order."""

    def __init__(self, directory: RunDirectory) -> None:
        self.points: list[UnfitPoint] = []
        self._directory = directory

    def read(self) -> None:
        """Take those that the directory has. Raises DescriptionError."""
        self.points = read_misfits(self._directory)

    def keep(self) -> None:
        """Write them into the directory; nothing where every point fits."""
        if self.points:
            text = json.dumps(plain([asdict(each) for each in self.points]), indent=2)
            write_atomically(self._directory.path / FILE, text + "\n")

    def note(self, points: Sequence[Point], unfit: Mapping[int, str], progress: Progress) -> None:
        """Add and say those of the points that do not fit, by number why, and with what they
        would."""
        known: dict[str, dict[str, Any] | None] = {}
        said: dict[str, list[str]] = {}
        for point in points:
            if (why := unfit.get(point.index)) is None or point.index in self._numbers:
                continue
            key = point.experiment.model_dump_json()
            if key not in known:
                known[key] = fits_with(point.experiment)
            of = point.index, point.control, point.overrides
            self.points.append(UnfitPoint(*of, shortened(why), known[key]))
            said.setdefault(shortened(why), []).append(title(point.overrides, point.control))
        for why, (first, *others) in said.items():
            more = f", and {len(others)} more" if others else ""
            progress.say(f"does not fit: {first}{more}: {why}")
        self.points.sort(key=lambda each: each.point)
        if said and self._directory.is_open:
            self.keep()

    @property
    def _numbers(self) -> set[int]:
        return {each.point for each in self.points}

    def results(self, records: Iterable[Record]) -> list[Record]:
        """The results among these lines, without those of points that do not fit."""
        return results(records, self.points)

    def among(self, records: Iterable[Record]) -> list[Record]:
        """The same, and for each point that does not fit that it does not."""
        return [*self.results(records), *(each.result() for each in self.points)]

    def others(self, points: Sequence[Point]) -> list[Point]:
        """The points that fit. Raises DescriptionError where none does."""
        unfit = self._numbers
        left = [point for point in points if point.index not in unfit]
        if points and not left:
            raise DescriptionError(self.points[0].why)
        return left


def read_misfits(directory: RunDirectory) -> list[UnfitPoint]:
    """Those of a run directory; none where it has no such file. Raises DescriptionError."""
    try:
        return [UnfitPoint(**each) for each in directory.read_json(FILE) or ()]
    except TypeError:
        raise DescriptionError("is of another version", directory.path / FILE) from None


def results(records: Iterable[Record], misfits: Iterable[UnfitPoint]) -> list[Record]:
    """The results among these lines, without those of points that do not fit."""
    unfit = {each.point for each in misfits}
    return [each for each in records if "metrics" in each and each["point"] not in unfit]
