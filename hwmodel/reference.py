"""The oracle: one DRAM channel, tick by tick, slow and obvious.

Written from docs/controller.md and from nothing else, one short method a paragraph of that page
(its heading stands at the head of the docstring), so that the two can be read side by side. The
kernel is held to it, command by command. Times are integer ticks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from hwmodel.commands import COLUMN_COMMANDS, LEVELS, RANK_COMMANDS
from hwmodel.controller import FIELDS
from hwmodel.memory_spec import MemorySpec
from hwmodel.reference_state import (
    Bank,
    Candidate,
    Issued,
    Pair,
    Place,
    Port,
    ReferenceResult,
    RefreshUnit,
    Request,
)

DEPTH = {"channel": 0, "pseudochannel": 1, "rank": 2, "stack": 3, "bankgroup": 4, "bank": 5}
OTHER = {"other_stack": "stack", "other_rank": "rank"}
POSTPONED, TIMEOUT = 6, 7
"""Classes of candidates that other code asks for."""
PATIENCE = 10_000_000
"""Ticks without a command after which the description is taken to be impossible."""


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
                {memory.reference(name) for name in row.after},
                {memory.reference(name) for name in row.before},
                memory.ticks(row.delay),
                row.window or 1,
            )
            for row in memory.constraints
        ]
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


def _kind(command: str) -> str:
    """RD for RD and RDA, WR for WR and WRA."""
    return command[:2]


def _instances(scope: str, places: Sequence[Place]) -> set[Place]:
    """Instances of a scope that a command stands in."""
    depth = DEPTH[OTHER.get(scope, scope)]
    return {place[:depth] for place in places}


class Channel:
    """One channel and its controller at tick `now`."""

    def __init__(self, memory: MemorySpec, channel: int, channels: int) -> None:
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
        self.flat = {place: number for number, place in enumerate(self.banks)}
        ranks: list[Place] = [(p, r) for p in range(o.pseudochannels) for r in range(o.ranks)]
        self.units = [RefreshUnit(place) for place in ranks]
        self.sets = memory.refresh_sets()
        self.interval, self.divided = memory.refresh_ticks(), memory.refreshes_per_round
        self.sync_until = dict.fromkeys(ranks, -1)
        self.bus_free: dict[tuple[str, int], int] = {}
        self.history: dict[tuple[int, Place], list[int]] = {}
        self.channel, self.channels = channel, channels
        self.two_step = memory.activate.steps == 2
        self.log: list[Issued] = []
        self.end_tick = 0
        self.figures = {"hit": 0, "miss": 0, "conflict": 0}
        self.latencies: list[int] = []
        self.forwarded = self.rmw_reads = self.seq = 0
        self._ready: dict[tuple[str, tuple[Place, ...]], int] = {}

    # --- Legality 1: rows ---------------------------------------------------------------

    def rows_hold_from(self, command: str, places: tuple[Place, ...]) -> int:
        """Legality 1. The first tick at which no row delays `command`, given what was issued.

        Remembered until the next command, because only a command can change it.
        """
        if (command, places) not in self._ready:
            ready = 0
            for number, (scope, _, before, delay, window) in enumerate(self.lowered.rows):
                if command in before:
                    for instance in _instances(scope, places):
                        ticks = self.history.get((number, instance), [])
                        if len(ticks) >= window:
                            ready = max(ready, ticks[-window] + delay)
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
        return [(self.now + a, self.now + b) for a, b in self.lowered.segments[_kind(command)]]

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

    # --- Requests and queues ------------------------------------------------------------

    def enter(self, stream: list[Request], entered: int) -> int:
        """Requests and queues. What has arrived and finds room enters; returns how many did."""
        while entered < len(stream) and stream[entered].arrival <= self.now:
            head = stream[entered]
            if not head.write and self.controller.write_forwarding and self._will_be_filled(head):
                self.forwarded += 1
            elif not self._take(head):
                break
            entered += 1
        return entered

    def _will_be_filled(self, head: Request) -> bool:
        """Write forwarding. Whether a waiting write fills the burst of this read whole."""
        return any(
            other.write
            and not other.partial
            and (other.place, other.row, other.column) == (head.place, head.row, head.column)
            for other in self.ports[head.place[0]].waiting
        )

    def _take(self, head: Request) -> bool:
        """Requests and queues, Partial writes. Put the head into its queue; False without room."""
        port, shared = self.ports[head.place[0]], self.controller.queues == "shared"
        first_reads = head.partial and self.controller.partial_write == "read_modify_write"
        needs_reads = first_reads or not head.write or shared
        needs_writes = head.write and not shared
        if needs_reads and self._held(port.reads, head) >= self.controller.read_queue:
            return False
        places = self._held(port.writes, head) + self._held(port.promised, head)
        if needs_writes and places >= self.controller.write_queue:
            return False
        head.reads_first = first_reads
        if first_reads:
            head.write = False
            if not shared:
                port.promised.append(head)
        self._join(port.reads if needs_reads else port.writes, head)
        return True

    def _held(self, queue: list[Request], head: Request) -> int:
        """Requests in the queue that the head would enter: a pseudo-channel's, or its bank's."""
        if self.controller.queue_scope == "channel":
            return len(queue)
        return sum(request.place == head.place for request in queue)

    def _join(self, queue: list[Request], request: Request) -> None:
        request.seq, request.entered = self.seq, self.now
        self.seq += 1
        queue.append(request)

    def choose_modes(self) -> None:
        """Mode. Each pseudo-channel turns between reads and writes by its watermarks."""
        c = self.controller
        for port in self.ports:
            reads = len(port.reads)
            fullest = max((self._held(port.writes, write) for write in port.writes), default=0)
            if not port.writing:
                if fullest > c.write_drain_high * c.write_queue or (reads == 0 and port.writes):
                    port.writing = True
            elif (fullest < c.write_drain_low * c.write_queue and reads) or not port.writes:
                port.writing = False

    # --- Candidates ---------------------------------------------------------------------

    def candidates(self) -> Iterator[Candidate]:
        """Candidates. Of each pseudo-channel: ACT2, buffered and queued requests; refreshes."""
        for port in self.ports:
            if port.pair is not None:
                group = 0 if self.memory.activate.second == "eager" else 5
                yield self._for_request(group, "ACT2", port.pair.request)
            for request in port.buffer:
                if self._pair_in(request.place) is None:  # or it waits for its ACT2
                    yield self._for_request(1, self._column_command(port, request), request)
            if self.controller.scheduler == "fcfs":
                yield from self._first_come(port)
            else:
                yield from self._first_ready(port)
        for unit in self.units:
            for which in self._sets_to_refresh(unit):
                yield from self._refresh(unit, which)
        yield from self._timeouts()

    def _for_request(self, group: int, command: str, request: Request) -> Candidate:
        return Candidate(group, (request.seq,), command, (request.place,), request)

    def _pair_in(self, place: Place) -> Pair | None:
        """The open pair in a bank, or anywhere in a rank."""
        pair = self.ports[place[0]].pair
        return pair if pair and pair.request.place[: len(place)] == place else None

    def _buffered_in(self, place: Place) -> bool:
        """Whether an activation-buffer request waits in a bank, or anywhere in a rank."""
        return any(r.place[: len(place)] == place for r in self.ports[place[0]].buffer)

    def _column_command(self, port: Port, request: Request) -> str:
        """Page policy. RD/WR, or with `closed` RDA/WRA when nothing else wants the row."""
        name = "WR" if request.write else "RD"
        wanted = any(
            other is not request and other.place == request.place and other.row == request.row
            for other in port.waiting
        )
        closes = self.controller.page_policy == "closed" and not wanted and not request.reads_first
        return name + "A" if closes else name

    def _timeouts(self) -> Iterator[Candidate]:
        """Page policy, `timeout` and `adaptive`. PRE of open banks whose row nobody waits for."""
        if self.controller.page_policy not in ("timeout", "adaptive"):
            return
        for place, bank in self.banks.items():
            wanted = any(
                request.place == place and request.row == bank.open_row
                for request in self.ports[place[0]].waiting
            )
            if bank.open_row is not None and not wanted and not self.blocked(place):
                yield Candidate(TIMEOUT, (self.flat[place],), "PRE", (place,))

    def _next_row_command(self, request: Request) -> Candidate | None:
        """Candidates. ACT on a closed bank; PRE on an open one where no buffered request waits."""
        group = 4 if self.controller.scheduler == "frfcfs" else 3
        if self.banks[request.place].open_row is None:
            if self.held(self._unit(request.place)):
                return None
            return self._for_request(group, "ACT1" if self.two_step else "ACT", request)
        if self._buffered_in(request.place):
            return None
        return self._for_request(group, "PRE", request)

    def _first_come(self, port: Port) -> Iterator[Candidate]:
        """Candidates, `fcfs`. The next command of the oldest request alone."""
        if not port.queue:
            return
        oldest = port.queue[0]
        if self.blocked(oldest.place) or self._pair_in(oldest.place):
            return
        if self.banks[oldest.place].open_row == oldest.row:
            yield self._for_request(3, self._column_command(port, oldest), oldest)
        elif (command := self._next_row_command(oldest)) is not None:
            yield command

    def _first_ready(self, port: Port) -> Iterator[Candidate]:
        """Candidates, `frfcfs` and `frfcfs_oldest_ready`. What each bank offers."""
        by_bank: dict[Place, list[Request]] = {}
        for request in port.queue:
            by_bank.setdefault(request.place, []).append(request)
        limit = self.controller.row_hit_limit
        for place, requests in by_bank.items():
            if self.blocked(place) or self._pair_in(place):
                continue
            bank, oldest = self.banks[place], requests[0]
            hits = [request for request in requests if request.row == bank.open_row]
            oldest_hits = bank.open_row == oldest.row
            if limit and hits and bank.served >= limit and not oldest_hits:
                hits = []  # the streak is over: only PRE for the oldest
            if hits:
                yield self._for_request(3, self._column_command(port, hits[0]), hits[0])
            if oldest_hits or (hits and self.controller.scheduler == "frfcfs"):
                continue
            if (command := self._next_row_command(oldest)) is not None:
                yield command

    # --- Refresh ------------------------------------------------------------------------

    def due(self, k: int) -> int:
        """Refresh. The tick at which the k-th refresh (k >= 1) of every rank is due."""
        interval, sets = self.interval, self.divided
        staggered = self.controller.refresh_phase == "staggered"
        phase = self.channel * interval // (self.channels * sets) if staggered else 0
        return phase + k * interval // sets

    def owed(self, unit: RefreshUnit) -> bool:
        """Refresh. Whether a refresh has fallen due and was not issued yet."""
        return self.controller.refresh != "none" and self.due(unit.issued + 1) <= self.now

    def urgent_from(self, unit: RefreshUnit) -> int:
        """Postponing. The tick from which the oldest refresh not issued is urgent."""
        c, interval = self.controller, self.interval
        patience = 0
        if c.refresh_postpone:
            extra = interval if c.refresh_order == "idle_first" and self.divided > 1 else 0
            patience = max(0, c.refresh_postpone * interval - interval // 8 - extra)
        return self.due(unit.issued + 1) + patience

    def urgent(self, unit: RefreshUnit) -> bool:
        """Postponing. Whether a refresh is owed and can wait no longer."""
        return self.owed(unit) and self.urgent_from(unit) <= self.now

    def held(self, unit: RefreshUnit) -> bool:
        """Urgent. Whether activations must wait, for a second refresh is urgent as well."""
        second = self.urgent_from(unit) - self.due(unit.issued + 1) + self.due(unit.issued + 2)
        return self.urgent(unit) and second <= self.now

    def _unit(self, place: Place) -> RefreshUnit:
        return self.units[place[0] * self.memory.organisation.ranks + place[1]]

    def settle_refreshes(self) -> None:
        """Order. Which set an urgent refresh is for, once and for all."""
        for unit in self.units:
            if self.urgent(unit) and unit.settled is None:
                left = self._turns(unit)
                unit.settled = min(left, key=lambda which: (self._waiting_in(unit, which), which))

    def _turns(self, unit: RefreshUnit) -> list[int]:
        """Order. The sets whose refresh may be next."""
        if self.controller.refresh_order == "round_robin":
            return [unit.issued % self.divided]
        return [which for which in range(self.divided) if which not in unit.done]

    def _banks_of(self, unit: RefreshUnit, which: int) -> tuple[Place, ...]:
        """Refresh. The banks of a set, or the whole rank."""
        banks = [place for place in self.banks if place[:2] == unit.place]
        if self.controller.refresh == "all_bank":
            return tuple(banks)
        return tuple(banks[number] for number in self.sets[which])

    def _waiting_in(self, unit: RefreshUnit, which: int) -> int:
        """Order. Requests that wait for the banks of a set."""
        places = self._banks_of(unit, which)
        return sum(request.place in places for request in self.ports[unit.place[0]].waiting)

    def blocked(self, place: Place) -> bool:
        """Urgent. Whether a bank's queued requests offer nothing because of its refresh."""
        unit = self._unit(place)
        return (
            self.urgent(unit)
            and unit.settled is not None
            and place in self._banks_of(unit, unit.settled)
        )

    def _sets_to_refresh(self, unit: RefreshUnit) -> list[int]:
        """Urgent: the settled set. Owed, not yet urgent: those of the next that are idle."""
        if not self.owed(unit):
            return []
        if self.urgent(unit):
            assert unit.settled is not None
            return [unit.settled]
        return [which for which in self._turns(unit) if not self._waiting_in(unit, which)]

    def _refresh(self, unit: RefreshUnit, which: int) -> Iterator[Candidate]:
        """Refresh. What a refresh of a set needs next."""
        group = 2 if self.urgent(unit) else POSTPONED
        places = self._banks_of(unit, which)
        if self.controller.refresh == "all_bank":
            if not self._buffered_in(unit.place) and self._pair_in(unit.place) is None:
                is_open = any(self.banks[place].open_row is not None for place in places)
                command = "PREA" if is_open else "REFAB"
                yield Candidate(group, (self.flat[places[0]],), command, (unit.place,))
            return
        free = [p for p in places if not self._buffered_in(p) and self._pair_in(p) is None]
        still_open = [p for p in places if self.banks[p].open_row is not None]
        for place in free:
            if place in still_open:
                yield Candidate(group, (self.flat[place],), "PRE", (place,))
        if len(free) == len(places) and not still_open:
            yield Candidate(group, (self.flat[places[0]],), "REFPB", places)

    # --- Issue --------------------------------------------------------------------------

    def issue(self, candidate: Candidate) -> bool:
        """Commands. Take the command's effects; True when it served a request."""
        command, places, request = candidate.command, candidate.places, candidate.request
        port = self.ports[places[0][0]]
        self._remember(command, places)
        bus = self._bus(command, places[0][0])
        self.bus_free[bus] = self.now + self.lowered.slots[command]
        self._log(command, places[0], request)
        if command in COLUMN_COMMANDS:
            assert request is not None
            return self._column(command, port, request)
        if command == "CAS":
            self._keep_sync(places[0], "CAS")
        elif command in ("ACT", "ACT1"):
            assert request is not None
            self._activate(command, port, request)
        elif command == "ACT2":
            assert port.pair is not None
            self._open(port.pair.request)
            port.pair = None
        elif command in ("PRE", "PREA"):
            self._close(candidate)
        else:
            self._refreshed(places)
        return False

    def _activate(self, command: str, port: Port, request: Request) -> None:
        """Activation buffer, Legality 5. The request moves to the buffer; ACT1 opens a pair."""
        request.activated = True
        if self.controller.activation_buffer:
            port.queue.remove(request)
            port.buffer.append(request)
        if command == "ACT1":
            port.pair = Pair(request, self.now + self.lowered.max_gap)
        else:
            self._open(request)

    def _open(self, request: Request) -> None:
        bank = self.banks[request.place]
        bank.open_row, bank.served, bank.used = request.row, 0, self.now
        if self.controller.page_policy == "adaptive" and bank.timed_out == request.row:
            bank.timeout = min(2 * bank.timeout, 16 * self.lowered.page_timeout)
        bank.timed_out = None

    def _close(self, candidate: Candidate) -> None:
        """Commands, Page policy. PRE or PREA; a request that had to ask for it shortens the
        timeout."""
        for place, bank in self.banks.items():
            if place[: len(candidate.places[0])] == candidate.places[0]:
                if candidate.group == TIMEOUT:
                    bank.timed_out = bank.open_row
                bank.open_row = None
        if candidate.request is not None:
            candidate.request.precharged = True
            if self.controller.page_policy == "adaptive":
                bank = self.banks[candidate.places[0]]
                bank.timeout = max(bank.timeout // 2, 1, self.lowered.page_timeout // 16)

    def _refreshed(self, places: tuple[Place, ...]) -> None:
        """Refresh. One more is issued; a round ends when every set has had its own."""
        unit = self._unit(places[0])
        which = (
            next(n for n in range(self.divided) if self._banks_of(unit, n)[0] == places[0])
            if (self.controller.refresh == "per_bank")
            else 0
        )
        unit.issued += 1
        unit.settled = None
        unit.done.add(which)
        if unit.issued % self.divided == 0:
            unit.done.clear()

    def _keep_sync(self, rank: Place, command: str) -> None:
        """Legality 6. The data clock of a rank runs on after a CAS or a column command."""
        if self.lowered.hold:
            until = self.now + self.lowered.hold[command]
            self.sync_until[rank] = max(self.sync_until[rank], until)

    def _column(self, command: str, port: Port, request: Request) -> bool:
        """Legality 3, Figures. Occupy DQ; the request is served; the A forms close the bank.

        False where it is the read of a partial write, which joins the writes now.
        """
        beats = self._beats(command)
        port.data = [(a, b) for a, b in port.data if b > self.now] + beats
        end = max(b for _, b in beats)
        self.end_tick = max(self.end_tick, end)
        self._keep_sync(request.place[:2], _kind(command))
        for queue in (port.reads, port.writes, port.buffer):
            if request in queue:
                queue.remove(request)
        bank = self.banks[request.place]
        bank.served += 1
        bank.used = self.now
        if command.endswith("A"):
            bank.open_row = None
        kind = "conflict" if request.precharged else "miss" if request.activated else "hit"
        self.figures[kind] += 1
        if request.reads_first:
            self._now_write(port, request)
            return False
        if not request.write:
            self.latencies.append(end - request.entered)
        return True

    def _now_write(self, port: Port, request: Request) -> None:
        """Partial writes. The burst is read; the write of the whole of it is a new request."""
        self.rmw_reads += 1
        request.write, request.partial, request.reads_first = True, False, False
        request.precharged = request.activated = False
        if self.controller.queues == "shared":
            self._join(port.reads, request)
        else:
            port.promised.remove(request)
            self._join(port.writes, request)

    def _log(self, command: str, place: Place, request: Request | None) -> None:
        p, r, s, g, b = (*place, -1, -1, -1)[:5]
        row = column = -1
        if request is not None and command not in (*RANK_COMMANDS, "PRE"):
            row = request.row
            column = request.column if command in COLUMN_COMMANDS else -1
        self.log.append(Issued(self.now, command, p, r, s, g, b, row, column))


def decode(memory: MemorySpec, address: int) -> tuple[Place, int, int]:
    """(bank, row, column) of a byte address in the channel; bits above the map are dropped."""
    rest = address // memory.organisation.burst_bytes
    fields = dict.fromkeys(FIELDS, 0)
    taken = dict.fromkeys(fields, 0)
    for name, bits in memory.resolved_address_map():
        fields[name] |= (rest & ((1 << bits) - 1)) << taken[name]
        taken[name] += bits
        rest >>= bits
    for entry in memory.bank_hash:
        mask = (1 << memory.field_bits()[entry.field]) - 1
        fields[entry.field] ^= (fields["row"] >> entry.row_bit) & mask
    place = tuple(fields[level] for level in LEVELS[1:])
    return place, fields["row"], fields["column"]


def simulate(
    memory: MemorySpec,
    requests: Sequence[tuple[int, int, int]],
    *,
    channel: int = 0,
    channels: int = 1,
) -> ReferenceResult:
    """Serve `requests` (arrival tick, byte address in the channel, kind) and log every command.

    kind: 0 a read, 1 a write, 2 a write of less than the burst. `channel` of `channels` sets the
    phase of refresh only. Ends with the column command that serves the last request. Raises
    RuntimeError when a description lets no command become legal.
    """
    stream = [
        Request(at, kind > 0, kind == 2, *decode(memory, address)) for at, address, kind in requests
    ]
    model = Channel(memory, channel, channels)
    entered = served = 0
    offers: list[Candidate] = []
    known: object = None
    last = 0
    while served + model.forwarded < len(stream):
        entered = model.enter(stream, entered)
        model.settle_refreshes()
        model.choose_modes()
        # What is offered changes only with an entry, a command, a mode, or a refresh falling due.
        pressing = [(model.owed(u), model.urgent(u), model.held(u)) for u in model.units]
        modes = tuple(port.writing for port in model.ports)
        state = (entered, len(model.log), modes, pressing)
        if state != known:
            offers, known = sorted(model.candidates(), key=lambda c: c.order), state
        # Choice: the first in order of class and age that is legal at this tick.
        now = (model.at_this_tick(offer) for offer in offers)
        choice = next((c for c in now if c is not None and model.legal(c)), None)
        if choice is not None:
            served += model.issue(choice)
            last = model.now
            continue
        model.now += 1
        waiting = any(port.waiting for port in model.ports)
        if not offers and entered < len(stream) and not waiting:
            model.now = max(model.now, _idle_until(model, stream[entered].arrival))
        elif model.now - last > PATIENCE:
            raise RuntimeError(f"no command becomes legal after tick {last}: {offers[:3]}")
    figures = model.figures
    return ReferenceResult(
        commands=model.log,
        end_tick=model.end_tick,
        row_hits=figures["hit"],
        row_misses=figures["miss"],
        row_conflicts=figures["conflict"],
        read_latency_ticks=model.latencies,
        forwarded=model.forwarded,
        rmw_reads=model.rmw_reads,
    )


def _idle_until(model: Channel, arrival: int) -> int:
    """With nothing waiting and nothing offered: the next arrival, or the next refresh due or
    urgent."""
    if model.controller.refresh == "none":
        return arrival
    events = [model.due(unit.issued + 1) for unit in model.units]
    events += [model.urgent_from(unit) for unit in model.units]
    # a rank is held only while a refresh is urgent, which is then offered
    return min([arrival, *(event for event in events if event >= model.now)])
