"""The description of one memory channel, and what must hold between its parts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from hwmodel.description.description import checked, nearest
from hwmodel.description.expression import names_in
from hwmodel.specs.commands import (
    COLUMN_COMMANDS,
    COMMANDS,
    KINDS,
    LEVELS,
    MAX_REQUESTS,
    MAX_TICKS,
    MAX_WINDOW_INSTANCES,
    MAX_WINDOWS,
    PERIODIC_COMMANDS,
    POWER_COMMANDS,
    RANK_COMMANDS,
)
from hwmodel.specs.described_memory import DescribedMemory
from hwmodel.specs.memory_fields import Hot
from hwmodel.specs.periodic import periodic_fit, periodic_lanes


class MemorySpec(DescribedMemory):
    """One memory, as `yaml/memories/*.yaml` describes it."""

    @property
    def unissued(self) -> set[str]:
        """Commands that the controller never issues, described or not: nothing waits for them."""
        c, masked, steps = self.controller, self.masked_writes, self.activate.steps
        rests = c.refresh == "all_bank" or self.alerts is not None
        idle = {
            "ACT": steps == 2, "ACT1": steps == 1, "ACT2": steps == 1,
            "RDA": c.page_policy != "closed", "WRA": c.page_policy != "closed",
            "MWR": not masked, "MWRA": c.page_policy != "closed" or not masked,
            "PREA": not rests and not self.periodic_closed,
            "REFPB": c.refresh != "per_bank" and not self.managed, "REFAB": not rests,
            "CAS": self.sync is None or self.sync.always_on,
            "RFM": not self.managed, "RFMAB": not self.alerts,
        }  # fmt: skip
        return {name for name, never in idle.items() if never}

    def refresh_ticks(self) -> int:
        """The refresh interval tREFI of the controller's policy, derated; 0 without refresh."""
        kinds = {"all_bank": self.refresh.all_bank, "per_bank": self.refresh.per_bank}
        interval = kinds.get(self.controller.refresh)
        if interval is None:
            return 0
        derating = Fraction(str(self.refresh.derating))
        heat = Fraction(str(self.heat.derating if self.heat else 1))
        return int(self.ticks(interval.interval) * derating * heat)

    def postpone_margin_ticks(self) -> int:
        """Ticks that postponing leaves to close banks: an eighth of tREFI, or what closing takes at
        worst if that is longer (docs/dram.md: postponing)."""
        return max(self.refresh_ticks() // 8, self.closing_ticks())

    def closing_ticks(self) -> int:
        """Ticks that closing the banks of a rank takes at worst, behind requests of the channel's
        activation buffers."""
        o, refreshes = self.organisation, {"RFM"} if self.managed else {"REFAB", "REFPB", "RFM"}
        refreshes = refreshes | (set() if self.alerts else {"RFMAB"})
        rows = [row for row in self.constraints if not refreshes & set(row.after)]
        longest = max((self.ticks(row.delay) for row in rows), default=0)
        burst = max(
            self.ticks(kind.latency) + self.ticks(end)
            for kind in (self.data.read, self.data.write)
            for _, end in kind.segments
        )
        slots = max(self.tick_clock.ticks(Fraction(str(c.slots))) for c in self.commands.values())
        banks = o.bank_numbers // o.pseudochannels
        steps = o.pseudochannels * min(self.controller.activation_buffer, banks) + 3
        if self.managed:  # an RFM of each set may go before
            steps += len(self.refresh_sets())
        if self.alerts:  # and a back-off
            steps += self.alerts.rfms + 1
        steps += len(self.periodic)
        return steps * (longest + burst + slots)

    @property
    def requests_held(self) -> int:
        """Requests that the queues and the activation buffer of a pseudo-channel hold. With a
        buffer, each queue may be one over: by a write whose read left it for the buffer."""
        c = self.controller
        banks = self.organisation.banks // self.organisation.pseudochannels
        queues = banks if c.queue_scope == "bank" else 1
        entries = c.read_queue + (c.write_queue if c.queues == "separate" else 0)
        return entries * queues + (max(c.activation_buffer, queues) if c.activation_buffer else 0)

    @property
    def data_bytes(self) -> int:
        """Capacity of a channel without the check bytes of in-line ECC, which lie behind it."""
        size, protects = self.organisation.capacity_bytes, self.controller.inline_ecc
        return size - size // protects if protects else size

    @property
    def sleeps(self) -> bool:
        """Whether a channel that nothing waits for powers down or refreshes itself."""
        c = self.controller
        return c.power_down_after is not None or c.self_refresh_after is not None

    @checked
    def _complete(self) -> None:
        _check(self)


def _check(memory: MemorySpec) -> None:
    """What a memory must satisfy beyond the types of its fields. Raises ValueError, its message
    headed by the dotted path at fault."""
    _commands(memory)
    _heat(memory)
    _delays(memory)
    _constraints(memory)
    _controller(memory)
    _refresh_sets(memory)
    _refreshes_fit(memory)
    periodic_lanes(memory.commands, memory.unissued)
    periodic_fit(dict(_periodic_takes(memory)))
    _two_steps_cannot_deadlock(memory)
    if memory.sync and _sync_hold_too_short(memory):
        raise ValueError("sync.hold.CAS: is over before the column command may follow")
    memory.address_sizes()
    for i, entry in enumerate(memory.bank_hash):
        if entry.field == "stack" and memory.organisation.stacks & (memory.organisation.stacks - 1):
            raise ValueError(
                f"bank_hash[{i}]: {memory.organisation.stacks} stacks cannot be hashed"
            )


def _commands(memory: MemorySpec) -> None:
    wanted = {"RD", "WR", "PRE", *(["ACT1", "ACT2"] if memory.activate.steps == 2 else ["ACT"])}
    if memory.refresh.all_bank:
        wanted |= {"PREA", "REFAB"}
    if memory.refresh.per_bank:
        wanted |= {"REFPB"}
    if memory.sync:
        wanted |= {"CAS"}
    if memory.refresh.management:
        wanted |= {"REFPB", "RFM"}
    if memory.refresh.alerts:
        wanted |= {"PREA", "RFMAB"}
    if memory.periodic_closed:
        wanted |= {"PREA"}
    if set(POWER_COMMANDS) & set(memory.commands):
        wanted |= set(POWER_COMMANDS)
    if "MWRA" in memory.commands:
        wanted |= {"MWR"}
    if missing := sorted(wanted - set(memory.commands)):
        raise ValueError(f"commands: {', '.join(missing)} missing")
    for kind, command in memory.commands.items():
        name = command.name or kind
        if kind not in COMMANDS:
            raise ValueError(f"commands.{name}: unknown command; {nearest(name, list(KINDS))}")
        if command.bus not in memory.buses:
            raise ValueError(f"commands.{name}: no bus {command.bus!r}")
        stated = [command.every is not None, command.banks is not None]
        if stated != [kind in PERIODIC_COMMANDS] * 2:
            raise ValueError(f"commands.{name}: every and banks stand with kind PERIODIC")


def _heat(memory: MemorySpec) -> None:
    for name in memory.hot.adds if memory.hot else ():
        if name not in memory.timing:
            hint = nearest(name, list(memory.timing))
            raise ValueError(f"hot.adds.{name}: unknown timing; {hint}")
    if memory.hot is None and memory.temperature > Hot().above:
        raise ValueError("temperature: this memory does not say what changes when it is hot")


def _delays(memory: MemorySpec) -> None:
    known = memory.timing_clocks
    for where, expression in [(f"timing.{name}", name) for name in known] + _expressions(memory):
        for name in names_in(expression):
            if name not in known:
                raise ValueError(f"{where}: unknown timing {name!r}; {nearest(name, list(known))}")
        try:
            ticks = memory.ticks(expression)
        except ZeroDivisionError:
            raise ValueError(f"{where}: divides by zero") from None
        if abs(ticks) > MAX_TICKS:
            raise ValueError(f"{where}: expected at most {MAX_TICKS} ticks of the command clock")


def _constraints(memory: MemorySpec) -> None:
    for i, row in enumerate(memory.constraints):
        for addressed in (*row.after, *row.before):
            if addressed in POWER_COMMANDS:
                raise ValueError(
                    f"constraints[{i}]: the times of {addressed} stand in power_states"
                )
            if memory.reference(addressed) not in memory.commands:
                hint = nearest(addressed, ["ACT", *map(memory.command_name, memory.commands)])
                raise ValueError(
                    f"constraints[{i}]: this memory has no command {addressed!r}; {hint}"
                )
            if addressed in RANK_COMMANDS and row.scope in (
                "bank",
                "bankgroup",
                "stack",
                "other_stack",
            ):
                raise ValueError(
                    f"constraints[{i}]: {memory.command_name(addressed)} addresses a rank, not a"
                    f" {row.scope}"
                )
    windows = [row for row in memory.constraints if row.window is not None]
    if len(windows) > MAX_WINDOWS or len(memory.buses) > MAX_WINDOWS:
        raise ValueError(f"constraints: more than {MAX_WINDOWS} windows, or as many buses")
    for row in windows:
        if memory.organisation.count(row.scope) > MAX_WINDOW_INSTANCES:
            raise ValueError(f"constraints: a window of scope {row.scope} in so many places")


def _controller(memory: MemorySpec) -> None:
    if memory.requests_held > MAX_REQUESTS:
        raise ValueError(
            f"controller.read_queue: a pseudo-channel would hold {memory.requests_held} requests;"
            f" at most {MAX_REQUESTS}"
        )
    if memory.controller.refresh == "per_bank" and not memory.refresh.per_bank:
        raise ValueError("controller.refresh: this memory does not describe refresh.per_bank")
    if memory.controller.refresh == "all_bank" and not memory.refresh.all_bank:
        raise ValueError("controller.refresh: this memory does not describe refresh.all_bank")
    if memory.managed and not (memory.refresh.management and memory.refresh.per_bank):
        raise ValueError(
            "controller.refresh_management: this memory does not describe refresh.management"
        )
    if memory.controller.row_counting == "prac" and not memory.refresh.alerts:
        raise ValueError("controller.row_counting: this memory does not describe refresh.alerts")
    for name, power in (
        ("power_down", "power_down_active"), ("self_refresh", "self_refresh"),
        ("deep_sleep", "deep_sleep"),
    ):  # fmt: skip
        stated = memory.power_states and getattr(memory.energy.background, power) is not None
        if name == "deep_sleep" and memory.power_states:
            stated = stated and memory.power_states.deep_sleep_exit is not None
        if getattr(memory.controller, f"{name}_after") is not None and not stated:
            raise ValueError(
                f"controller.{name}_after: this memory does not describe power_states, and"
                f" energy.background.{power}"
            )
    closing = ["RDA", "WRA", *(["MWRA"] if memory.masked_writes else [])]
    if memory.controller.page_policy == "closed" and not {*closing} <= set(memory.commands):
        raise ValueError(f"controller.page_policy: closed needs commands {', '.join(closing)}")
    if memory.controller.refresh != "none" and memory.refresh_ticks() < memory.refreshes_per_round:
        raise ValueError("refresh.derating: leaves less than a tick between refreshes")


def _refresh_sets(memory: MemorySpec) -> None:
    banks = memory.organisation.banks
    per_rank = banks // (memory.organisation.pseudochannels * memory.organisation.ranks)
    for bank in (bank for each in memory.refresh_sets() for bank in each):
        if not 0 <= bank < per_rank:
            raise ValueError(f"refresh.per_bank.sets: no bank {bank}; a rank has {per_rank}")


def _refreshes_fit(memory: MemorySpec) -> None:
    """The refreshes of an interval must leave time in it to serve a request. Raises ValueError."""
    kinds = {"all_bank": memory.refresh.all_bank, "per_bank": memory.refresh.per_bank}
    kind = memory.controller.refresh
    if (refresh := kinds.get(kind)) is None:
        return
    interval = memory.refresh_ticks()
    name = "REFPB" if kind == "per_bank" else "REFAB"
    opened = row_delay(memory, name, memory.activate_command, LEVELS)
    served = opened
    if memory.controller.activation_buffer == 0:  # whose requests go on when a refresh is urgent
        served += max(row_delay(memory, "ACT", column, LEVELS) for column in ("RD", "WR"))
    path = f"refresh.{kind}.interval"
    if refresh.interval in memory.timing:
        path = f"timing.{refresh.interval}"
    for need, what in (
        (_refreshes_take(memory, name), f"the {name} of an interval take"),
        (served, f"from {name} until its bank serves a request it takes"),
    ):
        if need >= interval:
            took, given = (float(memory.tick_clock.ns_of_ticks(t)) for t in (need, interval))
            raise ValueError(
                f"{path}: refreshes do not fit: {what} {took:g} ns, and {given:g} ns are between"
                " two of a bank"
            )


def _refreshes_take(memory: MemorySpec, name: str) -> int:
    """Ticks, at least, of the refreshes `name` that all ranks need in an interval, one after the
    other where a row or a bus keeps them apart."""
    o = memory.organisation
    bus = memory.commands[name].bus
    slots = memory.tick_clock.ticks(Fraction(str(memory.commands[name].slots)))
    gaps: list[tuple[str, Fraction]] = [(memory.buses[bus].scope, Fraction(slots))]
    for row in memory.constraints:
        both = name in memory.in_rows(row.after) and name in memory.in_rows(row.before)
        if both and not row.scope.startswith("other_"):
            gaps.append((row.scope, Fraction(memory.ticks(row.delay), row.window or 1)))
    many = memory.refreshes_per_round * o.count("rank")
    return max(
        math.ceil(gap * max(Fraction(1), Fraction(many, o.count(scope)))) for scope, gap in gaps
    )


def _two_steps_cannot_deadlock(memory: MemorySpec) -> None:
    """An open ACT1 must always find its ACT2 legal by `max_gap`. Raises ValueError."""
    if memory.activate.steps != 2 or memory.activate.max_gap is None:
        return
    longest = memory.ticks(memory.activate.max_gap)
    harmless_to_rank = {"PREA", "REFAB", "RFMAB"} | memory.periodic_closed
    harmless_to_rank |= {"REFPB", "RFM"} if _second_step_at_once(memory) else set()
    for i, row in enumerate(memory.constraints):
        after, before = memory.in_rows(row.after), memory.in_rows(row.before)
        if "ACT2" not in before:
            continue
        # while a pair is open its bank takes no other command, and its rank no PREA or REFAB
        harmless = {"ACT1", "ACT2"} | (harmless_to_rank if row.scope == "rank" else set())
        stray = sorted(after - harmless)
        if stray and row.scope != "bank":
            called = memory.command_name(stray[0])
            raise ValueError(f"constraints[{i}]: {called} must hold up ACT1, not ACT2")
        if "ACT1" in after and row.scope == "bank" and memory.ticks(row.delay) > longest:
            raise ValueError(f"constraints[{i}]: ACT2 cannot follow within activate.max_gap")
        shared = row.scope == "channel" and memory.organisation.pseudochannels > 1
        if shared and after & before:
            raise ValueError(f"constraints[{i}]: pseudo-channels would block each other's ACT2")
    first, second = memory.commands["ACT1"], memory.commands["ACT2"]
    shared = memory.organisation.pseudochannels > 1 and memory.buses[second.bus].scope == "channel"
    if shared and first.bus == second.bus and second.slots > first.slots:
        raise ValueError("commands.ACT2: holds its bus longer than ACT1")


def _periodic_takes(memory: MemorySpec) -> Iterator[tuple[str, tuple[int, int]]]:
    """Of each command of kind PERIODIC what `periodic_fit` takes."""
    for kind, every in memory.periodic.items():
        command = memory.commands[kind]
        rows = [row for row in memory.constraints if kind in row.after]
        takes = max((memory.ticks(row.delay) for row in rows), default=0)
        takes += memory.tick_clock.ticks(Fraction(str(command.slots)))
        if command.banks == "closed":
            takes += memory.closing_ticks()
        yield command.name, (takes, every)


def _second_step_at_once(memory: MemorySpec) -> bool:
    """Whether no REFPB comes between ACT1 and ACT2: eager, on a bus of one pseudo-channel that
    all three need."""
    buses = {
        c.bus for name, c in memory.commands.items() if name in ("ACT1", "ACT2", "REFPB", "RFM")
    }
    own = memory.organisation.pseudochannels == 1
    return (
        memory.activate.second == "eager"
        and len(buses) == 1
        and (own or all(memory.buses[bus].scope == "pseudochannel" for bus in buses))
    )


def _sync_hold_too_short(memory: MemorySpec) -> bool:
    """Whether the data clock that CAS starts stops before a column command may follow."""
    assert memory.sync is not None
    waits = [
        memory.ticks(row.delay)
        for row in memory.constraints
        if "CAS" in row.after and set(row.before) & set(COLUMN_COMMANDS)
    ]
    return memory.ticks(memory.sync.hold.CAS) < max(waits, default=0)


def _expressions(memory: MemorySpec) -> list[tuple[str, str]]:
    expressions = [
        (f"constraints[{i}].delay", row.delay) for i, row in enumerate(memory.constraints)
    ]
    for kind, slots in (("read", memory.data.read), ("write", memory.data.write)):
        expressions.append((f"data.{kind}.latency", slots.latency))
        expressions += [(f"data.{kind}.segments", e) for pair in slots.segments for e in pair]
    if memory.activate.max_gap:
        expressions.append(("activate.max_gap", memory.activate.max_gap))
    if memory.sync:
        expressions += [(f"sync.hold.{k}", v) for k, v in memory.sync.hold.model_dump().items()]
    if memory.power_states:
        expressions += [(f"power_states.{k}", v) for k, v in memory.power_states if v is not None]
    for kind, command in memory.commands.items():
        if command.every is not None:
            expressions.append((f"commands.{memory.command_name(kind)}.every", command.every))
    if memory.refresh.alerts:
        expressions.append(("refresh.alerts.react", memory.refresh.alerts.react))
    for kind in ("all_bank", "per_bank"):
        if (refresh := getattr(memory.refresh, kind)) is not None:
            expressions.append((f"refresh.{kind}.interval", refresh.interval))
    return expressions


def row_delay(
    memory: MemorySpec, after: str, before: str, scopes: tuple[str, ...], window: int | None = None
) -> int:
    """The longest delay in ticks from `after` to `before` over rows in `scopes`, or 0."""
    a, b = memory.reference(after), memory.reference(before)
    delays = [
        memory.ticks(row.delay)
        for row in memory.constraints
        if row.scope in scopes
        and (row.window == window or (window == -1 and row.window is not None))
        and a in memory.in_rows(row.after)
        and b in memory.in_rows(row.before)
    ]
    return max(delays, default=0)
