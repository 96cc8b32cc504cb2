"""Which device meets an objective: at a rate, for users, or for requests at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sweeps.ask.question import Amounts, DeviceNames, Seconds, SloText, Typed
from sweeps.ask.served import Rate, ServedQuestion, slo_of
from sweeps.ask.size_section import size_section
from sweeps.ask.sized import Sized, size_devices
from sweeps.ask.sizing_runs import Target
from sweeps.sections.section import Section

Users = Annotated[int, Field(ge=1), Typed("USERS", argument=True)]


class OfDevices(BaseModel):
    """What a question about several devices has beside what is served."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    devices: DeviceNames = ()
    """Shipped accelerators, or YAML files (default: all that ship)."""
    price: Amounts = ()
    """Price of a card, in any currency; repeatable."""
    watts: Amounts = ()
    """Power of a card; repeatable."""

    def section(self, findings: Sized) -> Section:
        return size_section(findings)


def _sized(asked: SizeQuestion | SizeUsersQuestion | SizeBatchQuestion, target: Target) -> Sized:
    """What the devices of a question carry."""
    return size_devices(target, asked.devices, asked.set, asked.price, asked.watts, asked.workers)


class SizeQuestion(OfDevices, ServedQuestion):
    """Say which device meets an objective at a rate of requests.

    For each device the largest rate that attains it on as few cards as hold the model, and how many
    replicas carry the load.
    """

    former: ClassVar[Mapping[str, str]] = {
        "--device": "a verb: `bankwise size settings DEVICE`",
        "--devices": "the devices themselves: `bankwise size DEVICE...`",
        "--tokens-per-s": "`--rate 2000tokens/s`",
        "--users": "a verb: `bankwise size users USERS`",
        "--think": "of `bankwise size users USERS`",
        "--at-once": "a verb: `bankwise size batch`",
        "--vary": "a verb: `bankwise size memory DEVICE`",
        "--confirm": "a verb: `bankwise size confirm DEVICE`",
        "--pools": "a verb: `bankwise size pools DEVICE --link LINK`",
        **dict.fromkeys(
            ("--only", "--replications", "--requests", "--fidelity", "--dry-run"),
            "of `bankwise size settings DEVICE`",
        ),
    }

    slo: SloText | None = None
    """What 9 of 10 requests attain; may be left out where --rate is of tokens."""
    rate: Rate = "1"
    """Requests a second, or output tokens a second as 2000tokens/s."""

    def answer(self) -> Sized:
        return _sized(self, self.target_at(self.slo, self.rate))


class SizeUsersQuestion(OfDevices, ServedQuestion):
    """Say which device meets an objective for users who wait for answers.

    Each user asks, waits for the answer, thinks, and asks again. For each device the most users who
    attain it, and how many replicas carry all.
    """

    users: Users
    """How many users there are."""
    slo: SloText
    """What 9 of 10 requests attain."""
    think: Seconds = 0.0
    """Seconds from an answer to the user's next request."""

    def answer(self) -> Sized:
        target = self.target(slo_of(self.slo), float(self.users), think_s=self.think)
        return _sized(self, target)


class SizeBatchQuestion(OfDevices, ServedQuestion):
    """Say how many requests run at once on each device within an objective."""

    slo: SloText
    """What 9 of 10 requests attain; the first token may be left out: tpot=30ms."""

    def answer(self) -> Sized:
        target = self.target(slo_of(self.slo, patient=True), 1.0, think_s=0.0, at_once=True)
        return _sized(self, target)
