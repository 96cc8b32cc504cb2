"""Of the oracle: when a command is legal (rules.md: places, commands, legality)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from hwmodel.specs.commands import COLUMN_COMMANDS
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.oracle.reference_state import Bank, Candidate, Pair, Place, Port, Request

DEPTH = {"channel": 0, "pseudochannel": 1, "rank": 2, "stack": 3, "bankgroup": 4, "bank": 5}
OTHER = {"other_stack": "stack", "other_rank": "rank"}
TIMEOUT = 7
"""Class of a PRE by timeout."""


class Lowered:
    """The numbers of a memory in ticks."""

    def __init__(self, memory: MemorySpec) -> None:
        self.memory = memory
        clock = memory.tick_clock
        self.slots: dict[str, int] = {
            name: clock.ticks(Fraction(str(c.slots))) for name, c in memory.commands.items()
        }
        self.rows = [
            (
                row.scope,
                memory.in_rows(row.after),
                memory.in_rows(row.before),
                memory.ticks(row.delay),
                row.window or 1,
            )
            for row in memory.constraints
        ]
        self.delaying = {
            command: [
                (number, DEPTH[OTHER.get(scope, scope)], delay, window)
                for number, (scope, _, before, delay, window) in enumerate(self.rows)
                if command in before
            ]
            for command in memory.commands
        }
        self.segments = {
            kind: [
                tuple(memory.ticks(d.latency) + memory.ticks(edge) for edge in pair)
                for pair in d.segments
            ]
            for kind, d in (("RD", memory.data.read), ("WR", memory.data.write))
        }
        self.page_timeout = clock.ticks(clock.clocks_of_ns(memory.controller.page_timeout))
        self.max_gap = memory.ticks(memory.activate.max_gap) if memory.activate.max_gap else 0
        self.hold: dict[str, int] = {}
        if memory.sync is not None and not memory.sync.always_on:
            hold = memory.sync.hold
            self.hold = {name: memory.ticks(getattr(hold, name)) for name in ("CAS", "RD", "WR")}


def kind_of(command: str) -> str:
    """RD for RD and RDA; WR for WR and WRA, masked or not."""
    return "RD" if command.startswith("RD") else "WR"


def _instances(scope: str, places: Sequence[Place]) -> set[Place]:
    """Instances of a scope that a command stands in."""
    depth = DEPTH[OTHER.get(scope, scope)]
    return {place[:depth] for place in places}


class Legality:
    """One channel at tick `now`: its banks and pseudo-channels, and what they allow."""

    def __init__(self, memory: MemorySpec) -> None:
        self.memory, self.controller = memory, memory.controller
        self.lowered = Lowered(memory)
        o = memory.organisation
        self.now = 0
        self.ports = [Port() for _ in range(o.pseudochannels)]
        self.banks: dict[Place, Bank] = {
            (p, r, s, g, b): Bank((p, r, s, g, b), self.lowered.page_timeout)
            for p in range(o.pseudochannels)
            for r in range(o.ranks)
            for s in range(o.stacks)
            for g in range(o.bankgroups)
            for b in range(o.banks_per_group)
        }
        self.ranks: list[Place] = [(p, r) for p in range(o.pseudochannels) for r in range(o.ranks)]
        self.sync_until = dict.fromkeys(self.ranks, -1)
        self.bus_free: dict[tuple[str, int], int] = {}
        self.history: dict[tuple[int, Place], list[int]] = {}
        self._ready: dict[tuple[str, tuple[Place, ...]], int] = {}

    # --- Legality 1: rows ---------------------------------------------------------------

    def rows_hold_from(self, command: str, places: tuple[Place, ...]) -> int:
        """Legality 1. The first tick at which no row delays `command`, given what was issued.

        Remembered until the next command, because only a command can change it.
        """
        if (command, places) not in self._ready:
            ready = 0
            for number, depth, delay, window in self.lowered.delaying[command]:
                for instance in {place[:depth] for place in places}:
                    ticks = self.history.get((number, instance), ())
                    if len(ticks) >= window and ticks[-window] + delay > ready:
                        ready = ticks[-window] + delay
            self._ready[command, places] = ready
        return self._ready[command, places]

    def _remember(self, command: str, places: tuple[Place, ...]) -> None:
        """Legality 1. Enter an issued command in the history of every instance that it delays."""
        self._ready.clear()
        for number, (scope, after, _, _, _) in enumerate(self.lowered.rows):
            if command in after:
                for instance in self._delayed(scope, places):
                    self.history.setdefault((number, instance), []).append(self.now)

    def _delayed(self, scope: str, places: tuple[Place, ...]) -> set[Place]:
        """Places and scopes. The command's own instances, or for other_* the rest of the parent."""
        own = _instances(scope, places)
        if scope not in OTHER:
            return own
        o = self.memory.organisation
        size = o.stacks if scope == "other_stack" else o.ranks
        return {(*place[:-1], i) for place in own for i in range(size)} - own

    # --- Legality 2 and 5: buses and the deadline of an open pair -----------------------

    def _bus(self, command: str, pseudochannel: int) -> tuple[str, int]:
        name = self.memory.commands[command].bus
        shared = self.memory.buses[name].scope == "channel"
        return (name, 0 if shared else pseudochannel)

    def bus_allows(self, command: str, pseudochannel: int, request: Request | None) -> bool:
        """Legality 2, 5. The bus is free, and stays free for the ACT2 of every open pair on it."""
        bus = self._bus(command, pseudochannel)
        if self.bus_free.get(bus, 0) > self.now:
            return False
        for number, port in enumerate(self.ports):
            if port.pair is None or self._bus("ACT2", number) != bus:
                continue
            if command == "ACT2" and port.pair.request is request:
                if self.now > port.pair.deadline:
                    return False
            elif self.now + self.lowered.slots[command] > port.pair.deadline:
                return False
        return True

    # --- Legality 3: data ---------------------------------------------------------------

    def _beats(self, command: str) -> list[tuple[int, int]]:
        """Legality 3. The segments [from, to) of DQ that a column command now would occupy."""
        return [(self.now + a, self.now + b) for a, b in self.lowered.segments[kind_of(command)]]

    def data_free(self, command: str, pseudochannel: int) -> bool:
        """Legality 3. No segment overlaps one that is taken."""
        taken = self.ports[pseudochannel].data
        return all(b <= c or d <= a for a, b in self._beats(command) for c, d in taken)

    # --- Legality of each kind of command -----------------------------------------------

    def legal(self, candidate: Candidate) -> bool:
        """Legality. Rules 1 to 6 at `now` (rule 4, state, decided which candidates there are)."""
        command, places = candidate.command, candidate.places
        if self.rows_hold_from(command, places) > self.now:
            return False
        if not self.bus_allows(command, places[0][0], candidate.request):
            return False
        if candidate.group == TIMEOUT:
            bank = self.banks[places[0]]
            return self.now >= bank.used + bank.timeout
        if command in ("ACT", "ACT1"):
            return self._activation_allowed(command, places)
        if command in COLUMN_COMMANDS:
            return self.data_free(command, places[0][0])
        return True

    def _activation_allowed(self, command: str, places: tuple[Place, ...]) -> bool:
        """Legality 5, Activation buffer. One pair; ACT2 could follow; room in the buffer."""
        port = self.ports[places[0][0]]
        size = self.controller.activation_buffer
        if size and len(port.buffer) >= size:
            return False
        if command == "ACT":
            return True
        follow = self.now + self.lowered.slots["ACT1"]
        return port.pair is None and self.rows_hold_from("ACT2", places) <= follow

    def at_this_tick(self, candidate: Candidate) -> Candidate | None:
        """Legality 6. A column command, or in its stead CAS where the data clock has stopped."""
        if candidate.command not in COLUMN_COMMANDS or not self.lowered.hold:
            return candidate
        rank = candidate.places[0][:2]
        if self.now <= self.sync_until[rank]:
            return candidate
        follow = self.now + self.lowered.slots["CAS"]
        if self.rows_hold_from(candidate.command, candidate.places) > follow:
            return None
        return Candidate(
            candidate.group, candidate.rank_in_class, "CAS", (rank,), candidate.request
        )

    def _keep_sync(self, rank: Place, command: str) -> None:
        """Legality 6. The data clock of a rank runs on after a CAS or a column command."""
        if self.lowered.hold:
            until = self.now + self.lowered.hold[command]
            self.sync_until[rank] = max(self.sync_until[rank], until)

    def _pair_in(self, place: Place) -> Pair | None:
        """The open pair in a bank, or anywhere in a rank."""
        pair = self.ports[place[0]].pair
        return pair if pair and pair.request.place[: len(place)] == place else None

    def _buffered_in(self, place: Place) -> bool:
        """Whether an activation-buffer request waits in a bank, or anywhere in a rank."""
        return any(r.place[: len(place)] == place for r in self.ports[place[0]].buffer)
