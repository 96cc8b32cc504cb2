"""Which of several devices carry a load within an objective, and at what price."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.description.files import steady
from hwmodel.description.library import names
from hwmodel.specs.device import Device, load_device
from sweeps.analyse.statistics import Interval, interval
from sweeps.ask.as_one import as_one
from sweeps.ask.served import answers, objective_record
from sweeps.ask.sizing import answer, answer_where_it_fits, with_users
from sweeps.ask.sizing_runs import SizingQuestion, SizingRun, Target


class SizedDevice(NamedTuple):
    """Of a device: what a replica carries and how many carry the target."""

    cards: int
    """Of a replica."""
    load: float | None
    """The largest of a replica; None: none attains the objective."""
    replicas: int | None = None
    """The fewest that carry the target; None: none do."""
    runs: tuple[SizingRun, ...] = ()
    """With the most users: what became of them on requests that no search has seen."""

    @property
    def loop(self) -> tuple[float, Interval] | None:
        """Requests a second of the most users, and the share that attains the objective."""
        if not self.runs:
            return None
        shares = interval([run.attained for run in self.runs]).within(0.0, 1.0)
        return sum(run.per_s for run in self.runs) / len(self.runs), shares


@dataclass(frozen=True)
class Sized:
    """`loads`: of each device, or why there is none."""

    target: Target
    devices: dict[str, Device]
    loads: dict[str, SizedDevice | str]
    prices: dict[str, float] = field(default_factory=dict)
    """Of a card, by device; devices that have none come last."""
    watts: dict[str, float] = field(default_factory=dict)
    """Of a card, by device; they decide where prices do not."""

    def fleet(self, name: str) -> int:
        """Cards of the fewest replicas that meet the target; 0: none do."""
        found = self.loads[name]
        return 0 if isinstance(found, str) else (found.replicas or 0) * found.cards

    @property
    def meeting(self) -> list[str]:
        """Devices of which some replicas meet the target, the least price of all their cards first,
        then the least power, then the least bandwidth x capacity."""

        def costs(name: str) -> tuple[float, float, float]:
            cards, device = self.fleet(name), self.devices[name]
            given = [cards * each.get(name, math.inf) for each in (self.prices, self.watts)]
            return given[0], given[1], cards * device.peak_gbps * device.capacity_bytes

        return sorted(filter(self.fleet, self.devices), key=costs)

    @property
    def cheapest(self) -> str | None:
        return next(iter(self.meeting), None)

    def record(self) -> dict[str, Any]:
        """In JSON's types: requests or tokens a second, users."""
        target = self.target
        return {
            "model": target.model.name, "policy": target.policy.name,
            "slo": objective_record(target.slo), "unit": target.unit("output tokens/s"),
            "target": target.load, "think_s": target.think_s,
            "devices": {name: _device_record(each) for name, each in self.loads.items()},
            "meet": self.meeting, "cheapest": self.cheapest, "prices": self.prices,
            "watts": self.watts,
        }  # fmt: skip


def _device_record(found: SizedDevice | str) -> dict[str, Any] | str:
    """What a device carries, in JSON's types; why it carries nothing."""
    if isinstance(found, str):
        return found
    more: dict[str, Any] = {}
    if (loop := found.loop) is not None:
        per_s, share = loop
        ends = {"mean": share.mean, "low": share.low, "high": share.high}
        more = {"requests_per_s": per_s, "attained": ends}
    return {"load": found.load, "cards": found.cards, "replicas": found.replicas, **more}


@steady
def size_devices(
    target: Target, named: Sequence[str], sets: Sequence[str], prices: Iterable[str],
    watts: Iterable[str], workers: int,
) -> Sized:  # fmt: skip
    """What each device carries; none named: all that ship. prices, watts: `NAME=AMOUNT`, of a
    card. Raises DescriptionError, CapacityFailed."""
    loaded = (as_one(load_device(name, sets)) for name in named or names("accelerators"))
    devices = {each.name: each for each in loaded}
    amounts = amounts_of(prices, devices, "--price"), amounts_of(watts, devices, "--watts")
    return Sized(target, devices, _loads(target, devices, workers), *amounts)


def _loads(
    target: Target, devices: dict[str, Device], workers: int
) -> dict[str, SizedDevice | str]:
    """What each device carries, and how many replicas of it carry the target."""
    asked = [SizingQuestion("load", target, device) for device in devices.values()]
    loads = answers("devices", asked, workers, answer_where_it_fits)
    pairs = zip(devices, loads, strict=True)
    found = {name: each if isinstance(each, str) else SizedDevice(*each) for name, each in pairs}
    some = {
        name: each for name, each in found.items() if isinstance(each, SizedDevice) and each.load
    }
    fleets, loops = [], []
    for name, each in some.items():
        of = SizingQuestion("load", target._replace(cards=each.cards), devices[name])
        assert each.load is not None
        fleets.append(of._replace(what="replicas", guess=math.ceil(target.load / each.load)))
        loops.append((of, each.load))
    if not target.at_once:
        numbers = answers("replicas", fleets, workers, answer)
        for (name, each), number in zip(some.items(), numbers, strict=True):
            found[name] = each._replace(replicas=None if number is None else int(number))
    if target.think_s is not None:
        for name, runs in zip(some, answers("users", loops, workers, with_users), strict=True):
            now = found[name]
            found[name] = now if isinstance(now, str) else now._replace(runs=tuple(runs))
    return found


def amounts_of(given: Iterable[str], devices: Iterable[str], option: str) -> dict[str, float]:
    """Of a card, by device. Raises DescriptionError."""
    found = {}
    for each in given:
        name, _, amount = each.partition("=")
        if name not in (known := list(devices)):
            raise DescriptionError(f"no device {name!r} is asked about; {nearest(name, known)}",
                                   option)  # fmt: skip
        try:
            found[name] = float(amount)
        except ValueError:
            found[name] = 0.0
        if not 0 < found[name] < math.inf:
            raise DescriptionError(f"expected NAME=AMOUNT, above 0; got {each!r}", option)
    return found
