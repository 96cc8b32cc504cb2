"""Whether a whole sweep attains an objective at a load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hwmodel.description.files import steady
from hwmodel.specs.device import load_device
from sweeps.analyse.statistics import interval
from sweeps.ask.as_one import as_one
from sweeps.ask.question import Count, Seconds, ServedDevice, SloText
from sweeps.ask.served import Rate, ServedQuestion, answers, by_path, objective_record, wanted
from sweeps.ask.sizing import answer, attained, cards_of, confirmation
from sweeps.ask.sizing_runs import SizingQuestion, Target
from sweeps.sections.formats import percent
from sweeps.sections.section import Say, Section


@dataclass(frozen=True)
class Confirmed:
    """`attained`: shares of the requests, of each replication; none where no load was found."""

    device: str
    target: Target
    """With the load that was tried; 0: none attains the objective."""
    attained: list[float]

    def record(self) -> dict[str, Any]:
        """In JSON's types."""
        target = self.target
        return {
            "device": self.device, "model": target.model.name, "policy": target.policy.name,
            "slo": objective_record(target.slo), "unit": target.unit(), "load": target.load,
            "think_s": target.think_s, "cards": target.cards, "attained": self.attained,
        }  # fmt: skip


class SizeConfirmQuestion(ServedQuestion):
    """Say what share of requests attains an objective in ten replications of a sweep.

    They are other requests than those that `bankwise size` searches with, and memory is as in a
    sweep.
    """

    needs: ClassVar[Mapping[str, str]] = {"think": "users"}
    apart: ClassVar[tuple[tuple[str, str], ...]] = (("users", "rate"),)

    device: ServedDevice
    """Accelerator that serves: a shipped name or a YAML file."""
    slo: SloText
    """What 9 of 10 requests are to attain."""
    rate: Rate | None = None
    """Requests a second, or 2000tokens/s (default: the most that attain it, which is searched
    for)."""
    users: Count | None = None
    """Users, each of whom waits for an answer and then thinks."""
    think: Seconds = 0.0
    """Seconds from an answer to the user's next request."""

    @steady
    def answer(self) -> Confirmed:
        target = self.target_at(self.slo, self.rate or "1", self.users, self.think)
        asked = SizingQuestion("load", target, as_one(load_device(self.device, self.set)))
        asked = asked._replace(target=target._replace(cards=cards_of(asked)))
        if self.rate is None and self.users is None:
            asked = asked._replace(target=asked.target._replace(load=answer(asked) or 0.0))
        name, load = asked.device.name, asked.target.load
        if not load:
            return Confirmed(name, asked.target, [])
        tasks = confirmation(
            asked, self.device, self.model, self.workload, by_path(self.set), load
        )  # fmt: skip
        shares = answers(f"a sweep at {load:.3g}", tasks, self.workers, attained)
        return Confirmed(name, asked.target, shares)

    def section(self, findings: Confirmed) -> Section:
        target, name = findings.target, findings.device
        assert target.slo is not None
        text = f"No load of {name} attains it, so that a sweep has none to confirm."
        if findings.attained:
            found = percent(interval(findings.attained).within(0.0, 1.0), digits=0)
            text = (
                f"At {target.load:.3g} {target.unit()} a sweep of {name} has {found} attain it in"
                f" {len(findings.attained)} replications of other requests; asked for:"
                f" {target.slo.attainment:.0%}."
            )
        return Section(f"{target.model.name} on {name}, confirmed", [
            Say(wanted(target), "question"), Say(text, "verdict"),
        ])  # fmt: skip
