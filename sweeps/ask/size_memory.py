"""How much memory a device would need for a load: bandwidth by capacity, and what gathering may
cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hwmodel.description.files import steady
from hwmodel.specs.device import Device, load_device
from sweeps.ask.as_one import as_one
from sweeps.ask.fit import NARROWER
from sweeps.ask.fit_section import GIB
from sweeps.ask.question import Count, Seconds, ServedDevice, SloText
from sweeps.ask.served import Rate, ServedQuestion, answers, objective_record, wanted
from sweeps.ask.size_section import best_memory_text
from sweeps.ask.sizing import LEAST_GATHER, answer, cards_of
from sweeps.ask.sizing_runs import SizingQuestion, Target, delivered
from sweeps.sections.formats import NONE
from sweeps.sections.section import Grid, Say, Section

CAPACITIES = (0.5, 1, 2, 4)
"""Times the device's own."""


@dataclass(frozen=True)
class LeastMemory:
    """`least`: of each of `questions`; a figure, None, or in words why there is none."""

    target: Target
    device: Device
    questions: list[SizingQuestion]
    least: list[float | str | None]

    def record(self) -> dict[str, Any]:
        """In JSON's types."""
        target = self.target
        keys = {"bandwidth": "bandwidth_bytes_per_s", "gather": "gather"}
        return {
            "device": self.device.name, "model": target.model.name, "policy": target.policy.name,
            "slo": objective_record(target.slo), "unit": target.unit("output tokens/s"),
            "target": target.load, "think_s": target.think_s, "cards": target.cards,
            "capacity_bytes": self.device.capacity_bytes,
            "delivered_bytes_per_s": delivered(self.device),
            "frontier": [
                {"capacity_bytes": of.capacity, "weights": of.weights, keys[of.what]: least}
                for of, least in zip(self.questions, self.least, strict=True)
            ],
        }  # fmt: skip


class SizeMemoryQuestion(ServedQuestion):
    """Say what memory a device would need to meet an objective.

    The least bandwidth of one replica, for half to four times its capacity and by format of the
    weights, and how slowly scattered KV may be read before the objective is lost.
    """

    needs: ClassVar[Mapping[str, str]] = {"think": "users"}
    apart: ClassVar[tuple[tuple[str, str], ...]] = (("users", "rate"),)

    device: ServedDevice
    """Accelerator whose memory is varied: a shipped name or a YAML file."""
    slo: SloText | None = None
    """What 9 of 10 requests attain; may be left out where --rate is of tokens."""
    rate: Rate | None = None
    """Requests a second, or output tokens a second as 2000tokens/s (default: 1)."""
    users: Count | None = None
    """Users, each of whom waits for an answer and then thinks."""
    think: Seconds = 0.0
    """Seconds from an answer to the user's next request."""

    @steady
    def answer(self) -> LeastMemory:
        """Users think for times that are drawn with the mean `think`, lest they ask in step."""
        target = self.target_at(self.slo, self.rate or "1", self.users, self.think)
        device = as_one(load_device(self.device, self.set))
        cards = cards_of(SizingQuestion("load", target, device))
        drawn = target._replace(cards=cards, drawn=True)
        formats = formats_of(target)
        capacities = [round(share * device.capacity_bytes) for share in CAPACITIES]
        asked = [
            SizingQuestion("bandwidth", drawn, device, weights, capacity)
            for capacity in capacities
            for weights in formats
        ]
        scattered = formats if target.gathers else []
        asked += [SizingQuestion("gather", drawn, device, weights) for weights in scattered]
        stage = f"{device.name}, least bandwidth and gather"
        return LeastMemory(drawn, device, asked, answers(stage, asked, self.workers, answer))

    def section(self, findings: LeastMemory) -> Section:
        target, device = findings.target, findings.device
        own = (
            f"Least delivered GB/s of {device.name} (its own: {delivered(device) / 1e9:,.0f} at"
            f" {device.capacity_bytes / GIB:,.0f} GiB)"
        )
        notes = (
            " –: no bandwidth does, for want of FLOPs or room. Near that, bandwidth makes up for"
            " FLOPs: a format whose products are slower then needs more of it. Gather: the least"
            " that scattered KV may be read at, as a share of contiguous KV;"
            f" {LEAST_GATHER:g}: no more was asked."
        )
        if target.think_s:
            notes += " Think times are drawn with that mean here, lest users ask in step."
        return Section(f"{target.model.name} on {device.name}", [
            Say(wanted(target), "question"),
            Grid(own, ["capacity", *formats_of(target)], _rows(findings)),
            Say(best_memory_text(target) + notes),
        ])  # fmt: skip


def formats_of(target: Target) -> list[str]:
    """Of the weights: the one that is asked about, or the model's own and narrower ones."""
    model = target.model
    if target.weights is not None:
        return [target.weights]
    own = model.weight_bytes
    return [model.weights, *(f for f in NARROWER if model.stored_as(f, None).weight_bytes < own)]


def _rows(findings: LeastMemory) -> list[list[str]]:
    rows: dict[str, list[str]] = {}
    for asked, least in zip(findings.questions, findings.least, strict=True):
        gather = asked.what == "gather"
        name = "gather" if gather else f"{(asked.capacity or 0) / GIB:,.0f} GiB"
        text = NONE
        if isinstance(least, float):
            text = f"{least:.2f}" if gather else f"{least / 1e9:,.0f}"
        rows.setdefault(name, [name]).append(text)
    return list(rows.values())
