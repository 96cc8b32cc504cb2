"""What the description of a memory is made of: organisation, clock, commands, rows.

Data only: no standard is known here. Field names are those of `yaml/memories/*.yaml`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from hwmodel.description.description import Strict, checked
from hwmodel.description.expression import names_in
from hwmodel.description.units import (
    ExactNanoseconds,
    PositiveBytes,
    parse_quantity,
)
from hwmodel.description.written import WithJsonSchema, text
from hwmodel.specs.command_names import CommandList, CommandName
from hwmodel.specs.commands import LEVELS, MAX_CAPACITY, MAX_WINDOW

Scope = Literal[
    "channel", "pseudochannel", "rank", "stack", "bankgroup", "bank", "other_rank", "other_stack"
]
Positive = Annotated[int, Field(ge=1, le=2**31)]


def _timing_value(value: object) -> object:
    if isinstance(value, (tuple, Fraction)):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f"expected a time with its unit, such as {value}nCK or 18ns")
    if isinstance(value, str) and (
        match := re.fullmatch(r"\s*(-?[0-9]+(?:\.[0-9]+)?)\s*nCK\s*", value)
    ):
        if Fraction(match.group(1)) < 0:
            raise ValueError(f"a timing cannot be negative; got {value!r}")
        return ("nCK", Fraction(match.group(1)))
    try:
        return ("ns", parse_quantity(value, "time"))
    except ValueError as error:
        raise ValueError(str(error).replace("such as 18ns", "such as 18ns or 15nCK")) from None


_WRITTEN = text(r"^\s*[0-9][0-9_]*(\.[0-9]+)?\s*(nCK|ps|ns|us|µs|ms|s)\s*$", "18ns")
Timing = Annotated[tuple[str, Fraction], BeforeValidator(_timing_value), _WRITTEN]
"""Field type: `18ns` or `15nCK`."""


def _expression(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"expected an expression over timing names, in clocks; got {value!r}")
    names_in(value)
    return value


Expression = Annotated[
    str, BeforeValidator(_expression), WithJsonSchema({"type": ["string", "integer"]})
]
"""Field type: an expression such as `RL + nBL + 2 - WL`, in clocks."""


class Organisation(Strict):
    """How many of each level, and the size of a row and a burst.

    Sizes are powers of two, but for `rows` (dies of 12 or 24 Gb) and `stacks` (12-high stacks).
    """

    pseudochannels: Positive = 1
    """Of a channel."""
    ranks: Positive = 1
    """Of a pseudo-channel."""
    stacks: Positive = 1
    """Stack ids of a rank (HBM)."""
    bankgroups: Positive
    """Of a stack."""
    banks_per_group: Positive
    """Of a bank group."""
    rows: Positive
    """Of a bank."""
    row_bytes: PositiveBytes
    """Of data in a row."""
    width_bits: Positive
    """Data pins of a pseudo-channel."""
    burst_length: Positive
    """Beats of a burst."""
    payload_bytes: PositiveBytes | None = None
    """Data in a burst where its wires carry more: of LPDDR6's 36 B, 4 are metadata or checks."""

    @property
    def wire_bytes(self) -> int:
        """Bytes that a burst takes on DQ."""
        return self.width_bits * self.burst_length // 8

    @property
    def burst_bytes(self) -> int:
        """Bytes of data that a burst moves; addresses count these."""
        return self.payload_bytes or self.wire_bytes

    @property
    def banks(self) -> int:
        """Banks of the whole channel."""
        per_stack = self.bankgroups * self.banks_per_group
        return self.pseudochannels * self.ranks * self.stacks * per_stack

    @property
    def stack_numbers(self) -> int:
        """Numbers of stacks: the next power of two. Those from `stacks` on are of none."""
        return 1 << (self.stacks - 1).bit_length()

    @property
    def bank_numbers(self) -> int:
        """Numbers of banks of the whole channel; with three stacks a quarter is of no bank."""
        return self.banks // self.stacks * self.stack_numbers

    @property
    def columns(self) -> int:
        """Bursts in a row."""
        return self.row_bytes // self.burst_bytes

    @property
    def capacity_bytes(self) -> int:
        """Bytes of the whole channel."""
        return self.banks * self.rows * self.row_bytes

    def count(self, level: str) -> int:
        """Numbers of instances of `level` in a channel."""
        sizes = (
            1, self.pseudochannels, self.ranks, self.stack_numbers, self.bankgroups,
            self.banks_per_group,
        )  # fmt: skip
        total = 1
        for name, size in zip(LEVELS, sizes, strict=True):
            total *= size
            if name == level:
                return total
        raise KeyError(level)

    @checked
    def _sizes(self) -> None:
        if self.width_bits * self.burst_length % 8:
            raise ValueError("width_bits x burst_length is not a whole number of bytes")
        if self.payload_bytes and self.payload_bytes > self.wire_bytes:
            raise ValueError(
                f"payload_bytes: {self.payload_bytes} B are more than the {self.wire_bytes} B that"
                " a burst has on DQ"
            )
        if self.burst_bytes & (self.burst_bytes - 1):
            raise ValueError(
                f"a burst of {self.burst_bytes} B is not a power of two; payload_bytes says what of"
                " it is data"
            )
        if self.row_bytes % self.burst_bytes:
            raise ValueError("row_bytes is not a multiple of a burst")
        for name in ("pseudochannels", "ranks", "bankgroups", "banks_per_group"):
            value = getattr(self, name)
            if value & (value - 1):
                raise ValueError(f"{name} must be a power of two; got {value}")
        if self.columns & (self.columns - 1):
            raise ValueError("bursts a row must be a power of two")
        if self.capacity_bytes > MAX_CAPACITY:
            raise ValueError(f"more than {MAX_CAPACITY} B a channel")
        if self.bank_numbers // self.pseudochannels > 64:
            raise ValueError("more than 64 banks a pseudo-channel")
        if self.pseudochannels > 2:
            raise ValueError("more than 2 pseudo-channels a channel")


class ClockSpec(Strict):
    """The command clock and how many data beats fit in one of its cycles."""

    tCK: ExactNanoseconds
    """Of the command clock."""
    beats_per_ck: Positive
    """Data beats in a clock."""
    ticks_per_ck: Positive = 1
    """Parts of a clock in which commands may be issued."""

    @checked
    def _positive(self) -> None:
        if self.tCK < Fraction(1, 1000):
            raise ValueError("tCK must be at least 1ps")


class Bus(Strict):
    """A bus on which commands occupy slots."""

    scope: Literal["channel", "pseudochannel"] = "channel"
    """What shares it."""


class Command(Strict):
    """Where a command goes and how long it occupies the bus, in clocks; of what kind it is, where
    it has a name of its own."""

    bus: str
    """Which bus carries it."""
    slots: Annotated[float, Field(gt=0, le=1024)] = 1
    """Clocks of the bus that it occupies."""
    kind: CommandName | None = None
    every: Expression | None = None
    """PERIODIC: from one to the next in a rank."""
    banks: Literal["open", "closed"] | None = None
    """PERIODIC: whether all banks of its rank have to be closed."""
    name: str = ""
    """What the description calls it; put there by `command_names`."""


class Activate(Strict):
    """One- or two-step activation."""

    steps: Literal[1, 2] = 1
    """1, or 2 where ACT1 and ACT2 open a row."""
    reference: Literal["ACT", "ACT1", "ACT2"] = "ACT"
    """From which of the two the rules of ACT count."""
    max_gap: Expression | None = None
    """From ACT1 to ACT2, at the latest."""
    second: Literal["eager", "lazy"] = "eager"
    """Whether ACT2 comes as soon as it may, or as late."""

    @checked
    def _consistent(self) -> None:
        if self.steps == 2 and (self.max_gap is None or self.reference == "ACT"):
            raise ValueError("steps: 2 needs max_gap and reference: ACT1 or ACT2")
        if self.steps == 1 and self.reference != "ACT":
            raise ValueError("steps: 1 has reference: ACT")


class DataSlots(Strict):
    """When a column command occupies DQ: segments [from, to) after its latency, in clocks."""

    latency: Expression
    """From the command to the first beat."""
    segments: list[list[Expression]]
    """When the bus is occupied, counted from the latency on."""

    @checked
    def _pairs(self) -> None:
        if not self.segments or any(len(pair) != 2 for pair in self.segments):
            raise ValueError("expected segments as [[from, to], ...]")


class Data(Strict):
    """DQ occupation of reads and writes."""

    read: DataSlots
    write: DataSlots


class SyncHold(Strict):
    """How long after each command the data clock still runs, in clocks."""

    CAS: Expression
    """How long the data clock runs after it."""
    RD: Expression
    """How long the data clock runs after a read."""
    WR: Expression
    """How long the data clock runs after a write."""


class Sync(Strict):
    """A data clock (WCK) that expires and is started again by CAS."""

    always_on: bool = False
    """Whether the data clock runs all the time."""
    hold: SyncHold


class AllBank(Strict):
    interval: Expression = "tREFI"
    """Between two refreshes of a rank."""


class PerBank(Strict):
    interval: Expression = "tREFI"
    """In which each set is refreshed once."""
    sets: list[list[int]] | Literal["single"] = "single"
    """Banks (numbered within a rank) refreshed together; `single`: each by itself."""


class Management(Strict):
    """What a die asks for beyond refresh: activations of a bank are counted (RAA), and an RFM is
    due before they are too many (docs/dram.md)."""

    RAAIMT: Annotated[int, Field(ge=1, le=2**20)]
    """Activations of a bank from which an RFM is owed."""
    RAAMULT: Annotated[int, Field(ge=1, le=64)]
    """RAAMMT / RAAIMT: from RAAMMT on the bank takes no more activations."""
    RAADEC: Annotated[float, Field(gt=0, le=64)] = 1
    """What an RFM takes off the counters of its banks, of RAAIMT."""
    RAAREF: Annotated[float, Field(ge=0, le=64)] = 1
    """What a refresh takes off, of RAAIMT."""

    @property
    def RAAMMT(self) -> int:
        """Activations of a bank at most."""
        return self.RAAIMT * self.RAAMULT

    def lowers(self, share: float) -> int:
        """Activations that a share of RAAIMT takes off, rounded down, at least one."""
        return max(1, int(self.RAAIMT * share))


class Alerts(Strict):
    """What a die that counts the activations of each row (PRAC) asks for when a row has too many:
    it alerts, and the controller backs off (docs/dram.md)."""

    threshold: Annotated[int, Field(ge=1, le=2**30)]
    """Activations of a row from which the die alerts."""
    react: Expression
    """From an alert to the back-off."""
    rfms: Annotated[int, Field(ge=1, le=64)]
    """RFMABs of a back-off."""
    delay: Annotated[int, Field(ge=0, le=2**20)]
    """Rows that close after a back-off before the rank may alert again."""
    reset: Literal["rfm", "refresh"] = "rfm"
    """What makes a counter 0: an RFMAB that picks its row alone, or a refresh of the row too."""
    refreshes: Annotated[int, Field(ge=1, le=2**20)] = 8192
    """Refreshes of a bank that refresh each of its rows once."""


class Refresh(Strict):
    """The refresh commands that a memory has; `interval`: each bank is refreshed once in it."""

    all_bank: AllBank | None = None
    """Of a whole rank at once."""
    per_bank: PerBank | None = None
    """Of a set of banks while the others work."""
    derating: Annotated[float, Field(gt=0, le=8)] = 1
    """Factor on the interval: below 1 in the heat, above 1 in the cold."""
    management: Management | None = None
    alerts: Alerts | None = None


class Hot(Strict):
    """What heat changes."""

    above: float = 85
    """Degrees Celsius from which on, not included."""
    derating: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Factor on the refresh interval."""
    adds: dict[str, ExactNanoseconds] = {}
    """What timings grow by."""


class PowerStates(Strict):
    """How long a channel takes to leave each state, and how long it stays at least, in clocks."""

    power_down_exit: Expression = "tXP"
    """From waking out of power-down to the first command."""
    self_refresh_exit: Expression = "tXSR"
    """From waking out of self-refresh to the first command."""
    deep_sleep_exit: Expression | None = None
    """From deep sleep, of a memory that has it."""
    power_down_stay: Expression = "0"
    """The least time in power-down."""
    self_refresh_stay: Expression = "0"
    """The least time in self-refresh."""
    deep_sleep_stay: Expression = "0"
    """The least time in deep sleep."""


class DelayRow(Strict):
    """A minimum delay between two commands in a scope; with `window` N, after the N-th last. What
    its names stand for: `MemorySpec.in_rows`."""

    scope: Scope
    """In what the two commands have to meet: bank, bankgroup, stack, rank, pseudochannel, channel,
    other_stack or other_rank."""
    after: CommandList
    """The commands that have been issued."""
    before: CommandList
    """The commands that wait."""
    delay: Expression
    """How long, in clocks over the names of `timing`."""
    window: Annotated[int, Field(ge=1, le=MAX_WINDOW)] | None = None
    """After the so-manieth last of them; without it the last."""
    source: str | None = None

    @checked
    def _window_scope(self) -> None:
        if self.window is not None and self.scope.startswith("other_"):
            raise ValueError(f"a window cannot have scope {self.scope}")


class Density(Strict):
    """What differs between dies of one memory: their rows and some timings."""

    rows: Positive
    """Of a bank."""
    timing: dict[str, Timing]
    """Times that this die has otherwise."""
