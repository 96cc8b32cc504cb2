"""What a memory file says of one channel: its commands, times and addresses."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Annotated, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator

from hwmodel.description.description import Strict
from hwmodel.description.expression import evaluate
from hwmodel.description.units import Clock
from hwmodel.specs.command_names import by_name, named_by_kind
from hwmodel.specs.commands import LEAST_BELOW_ODD, MASKED_WRITES, PERIODIC_COMMANDS
from hwmodel.specs.controller import FIELDS, AddressMap, Hash, MemoryController
from hwmodel.specs.dram_energy import Energy
from hwmodel.specs.memory_fields import (
    Activate,
    Alerts,
    Bus,
    ClockSpec,
    Command,
    Data,
    DelayRow,
    Density,
    Hot,
    Organisation,
    PowerStates,
    Refresh,
    Sync,
    Timing,
)
from hwmodel.specs.plausible import Plausible

_BESIDE = {"REFPB": "RFM", "REFAB": "RFMAB", **MASKED_WRITES}
"""Command -> one for which its rows hold as well, where the memory has it."""


@lru_cache(maxsize=4096)
def _stood_for(names: tuple[str, ...], activate: str, issued: tuple[bool, ...]) -> frozenset[str]:
    """As `DescribedMemory.in_rows`; `issued`: which of `_BESIDE`'s values there are."""
    commands = {activate if name == "ACT" else name for name in names}
    pairs = zip(_BESIDE.items(), issued, strict=True)
    return frozenset(commands | {beside for (one, beside), there in pairs
                                 if there and one in commands})  # fmt: skip


class DescribedMemory(Strict):
    """The fields of a memory, and what they say by themselves; see `MemorySpec`."""

    kind: Literal["memory"]
    name: str
    summary: str
    sources: dict[str, str] = {}
    based_on: str | None = None
    """Another memory, which has what this one leaves out."""
    organisation: Organisation
    clock: ClockSpec
    timing: dict[str, Timing]
    """Names of the standard, each a time or a number of clocks; constraints and data are
    expressions over them."""
    density: str | None = None
    """Which of `densities` is meant; its numbers have taken their places when this is built."""
    densities: dict[str, Density] = {}
    """What other dies have otherwise."""
    buses: dict[str, Bus]
    """Names of command buses."""
    commands: dict[str, Command]
    """Which commands there are, and what each occupies."""
    activate: Activate = Activate()
    data: Data
    sync: Sync | None = None
    refresh: Refresh = Refresh()
    power_states: PowerStates | None = None
    temperature: Annotated[float, Field(ge=-40, le=125)] = 45
    """Of the die, degrees Celsius; `hot` says what it changes."""
    hot: Hot | None = None
    constraints: list[DelayRow]
    constraint_changes: list[DelayRow] = []
    """Beside `based_on`: rows that replace the base's of the same scope, commands and window, or
    with `delay: null` remove them."""
    energy: Energy
    controller: MemoryController = MemoryController()
    address_map: AddressMap
    """Fields of an address from its least bit up, with their bits; the last takes what is left."""
    bank_hash: list[Hash] = []
    """Bits of a field that are xored with bits of the row."""
    plausible: dict[str, Plausible] = {}
    """Name -> what it may be instead, where its vendor publishes nothing."""

    @model_validator(mode="wrap")
    @classmethod
    def _kinds(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        named = named_by_kind(data)
        try:
            return handler(named)
        except ValidationError as error:
            if named is data:
                raise
            raise by_name(error, named) from None

    def command_name(self, kind: str) -> str:
        """What the description calls a command of this kind."""
        command = self.commands.get(kind)
        return command.name or kind if command else kind

    @property
    def periodic(self) -> dict[str, int]:
        """Each command of kind PERIODIC, as in PERIODIC_COMMANDS -> ticks from one to the next."""
        described = [(k, self.commands[k]) for k in PERIODIC_COMMANDS if k in self.commands]
        return {kind: self.ticks(c.every) for kind, c in described if c.every is not None}

    @property
    def periodic_closed(self) -> set[str]:
        """Those of them for which all banks of their rank have to be closed."""
        return {kind for kind, command in self.commands.items() if command.banks == "closed"}

    @cached_property
    def tick_clock(self) -> Clock:
        return Clock(self.clock.tCK, self.clock.ticks_per_ck)

    @property
    def peak_gbps(self) -> float:
        """Data-bus peak of the whole channel, GB/s of data."""
        o = self.organisation
        wires = (
            o.width_bits * o.pseudochannels / 8 * self.clock.beats_per_ck / float(self.clock.tCK)
        )
        return wires * o.burst_bytes / o.wire_bytes

    def clocks(self, expression: str) -> Fraction:
        """Value of a timing expression in clocks (names rounded up to ticks first, but not inside
        `ceil()` and `floor()`)."""
        return evaluate(expression, self.timing_clocks, self.exact_clocks)

    def ticks(self, expression: str) -> int:
        """Value of a timing expression in ticks, rounded up."""
        return self.tick_clock.ticks(self.clocks(expression))

    @cached_property
    def timing_clocks(self) -> dict[str, Fraction]:
        """Every timing in clocks; nanoseconds are rounded up to whole ticks."""
        clock = self.tick_clock
        return {
            name: value if unit == "nCK" else clock.clocks_of_ns(value)
            for name, (unit, value) in self._heated().items()
        }

    @property
    def heat(self) -> Hot | None:
        """What the temperature changes; None: nothing."""
        return self.hot if self.hot and self.temperature > self.hot.above else None

    def _heated(self) -> dict[str, Timing]:
        """Every timing, at the temperature. What is added to clocks is rounded up to ticks."""
        found = dict(self.timing)
        for name, ns in self.heat.adds.items() if self.heat else ():
            unit, value = found[name]
            found[name] = unit, value + (ns if unit == "ns" else self.tick_clock.clocks_of_ns(ns))
        return found

    @cached_property
    def exact_clocks(self) -> dict[str, Fraction]:
        """Every timing in clocks, not rounded."""
        return {
            name: value if unit == "nCK" else value / self.clock.tCK
            for name, (unit, value) in self._heated().items()
        }

    @property
    def activate_command(self) -> str:
        """The (first) command that opens a row."""
        return "ACT1" if self.activate.steps == 2 else "ACT"

    def reference(self, command: str) -> str:
        """The command that `ACT` stands for in rows; others stand for themselves."""
        return self.activate.reference if command == "ACT" else command

    def in_rows(self, names: Iterable[str]) -> frozenset[str]:
        """The commands that names in a row stand for: ACT as in `reference`, a write for its masked
        form as well where the memory has it, REFPB and REFAB for RFM and RFMAB where these are
        issued."""
        issued = (
            self.managed, self.alerts is not None, "MWR" in self.commands, "MWRA" in self.commands,
        )  # fmt: skip
        return _stood_for(tuple(names), self.activate.reference, issued)

    @property
    def managed(self) -> bool:
        """Whether RFMs are issued."""
        return self.controller.refresh_management == "rfm"

    @property
    def alerts(self) -> Alerts | None:
        """What rows are counted for; None where they are not."""
        return self.refresh.alerts if self.controller.row_counting == "prac" else None

    @property
    def mechanisms(self) -> list[str]:
        """What the controller must have, by the names of `hwmodel.kernel.hooks`."""
        asked = {"rfm": self.managed, "prac": self.alerts, "periodic": self.periodic}
        return [name for name, there in asked.items() if there] + list(self.controller.rules)

    @property
    def masked_writes(self) -> bool:
        """Whether partial writes take commands of their own (MWR, MWRA)."""
        return "MWR" in self.commands and self.controller.partial_write == "masked"

    def field_bits(self) -> dict[str, int]:
        """Bits that each address field needs in this memory."""
        o = self.organisation
        sizes = (
            o.columns, o.banks_per_group, o.bankgroups, o.stacks, o.ranks, o.pseudochannels, o.rows,
        )  # fmt: skip
        return {name: (size - 1).bit_length() for name, size in zip(FIELDS, sizes, strict=True)}

    def address_sizes(self) -> list[tuple[str, int, int]]:
        """(field, bits, values) from the least significant part above the burst: an address is
        read part by part, each taken modulo its values, a power of two but for `rows` and
        `stacks` that are none. Raises ValueError."""
        o = self.organisation
        odd = {name: n for name, n in (("row", o.rows), ("stack", o.stacks)) if n & (n - 1)}
        result, below = [], 0
        for name, bits in self.resolved_address_map():
            if name in odd and bits != (odd[name] - 1).bit_length():
                raise ValueError(
                    f"address_map: {odd[name]} {name}s take one part; they cannot split"
                )
            if name in odd and below < LEAST_BELOW_ODD:
                raise ValueError(
                    f"address_map: {odd[name]} {name}s, no power of two, need {LEAST_BELOW_ODD} or"
                    f" more bits of other fields below; there are {below}"
                )
            result.append((name, bits, odd.get(name, 1 << bits)))
            below += bits
        return result

    def resolved_address_map(self) -> list[tuple[str, int]]:
        """(field, bits) from the least significant bit above the burst. Raises ValueError."""
        needed = self.field_bits()
        given = dict.fromkeys(FIELDS, 0)
        result: list[tuple[str, int]] = []
        for item in self.address_map:
            bits = needed[item.field] - given[item.field] if item.bits is None else item.bits
            given[item.field] += bits
            result.append((item.field, bits))
        for name, bits in needed.items():
            if given[name] != bits:
                raise ValueError(
                    f"address_map: gives {name} {given[name]} bits; this memory has {bits}"
                )
        return [(name, bits) for name, bits in result if bits]

    @property
    def refreshes_per_round(self) -> int:
        """Refresh commands that it takes to refresh every bank of a rank once."""
        return len(self.refresh_sets()) if self.controller.refresh == "per_bank" else 1

    def refresh_sets(self) -> list[list[int]]:
        """Banks (within a rank) of each per-bank refresh set, in order."""
        per_rank = self.organisation.banks // (
            self.organisation.pseudochannels * self.organisation.ranks
        )
        if self.refresh.per_bank is None or self.refresh.per_bank.sets == "single":
            return [[bank] for bank in range(per_rank)]
        return self.refresh.per_bank.sets
