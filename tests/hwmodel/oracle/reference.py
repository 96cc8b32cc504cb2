"""The oracle: one DRAM channel, tick by tick, slow and obvious.

Written from tests/hwmodel/oracle/rules.md and from nothing else, one short method a
paragraph of these pages (its heading stands at the head of the docstring), so that the two can be
read side by side: here requests, candidates, choice and issue; legality and refresh in modules of
their own. The kernel is held to it, command by command. Times are integer ticks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hwmodel.specs.commands import COLUMN_COMMANDS, LEVELS, RANK_COMMANDS
from hwmodel.specs.controller import FIELDS
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.oracle.reference_legality import TIMEOUT, kind_of
from tests.hwmodel.oracle.reference_power import Power
from tests.hwmodel.oracle.reference_state import (
    Candidate,
    Issued,
    Pair,
    Place,
    Port,
    ReferenceResult,
    Request,
)

PATIENCE = 10_000_000
"""Ticks without a command after which the description is taken to be impossible."""


class Channel(Power):
    """One channel and its controller at tick `now`."""

    def __init__(
        self, memory: MemorySpec, channel: int, channels: int, passed: int = 0,
        owed: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(memory, channel, channels, passed, owed)
        self.two_step = memory.activate.steps == 2
        self.end_tick = 0
        self.figures = {"hit": 0, "miss": 0, "conflict": 0}
        self.latencies: dict[bool, list[int]] = {False: [], True: []}
        self.left = -1
        self.forwarded = self.rmw_reads = self.seq = 0

    # --- Requests and queues ------------------------------------------------------------

    def enter(self, stream: list[Request], entered: int) -> int:
        """Requests and queues. What has arrived and finds room enters; returns how many did."""
        if self.controller.queue_reuse == "next_tick" and self.left == self.now:
            return entered
        while entered < len(stream) and stream[entered].arrival <= self.now:
            head = stream[entered]
            self._arrives(head.arrival)
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
        shared, where = self.controller.queues == "shared", self._sharing(head.place[0])
        port = self.ports[head.place[0]]
        first_reads = head.partial and self.controller.partial_write == "read_modify_write"
        needs_reads = first_reads or not head.write or shared
        needs_writes = head.write and not shared
        reads = sum(self._held(other.reads, head) for other in where)
        if needs_reads and reads >= self.controller.read_queue:
            return False
        places = sum(self._held(other.writes + other.promised, head) for other in where)
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
        if self.controller.queue_scope != "bank":
            return len(queue)
        return sum(request.place == head.place for request in queue)

    def _sharing(self, pseudochannel: int) -> list[Port]:
        """Requests and queues. The pseudo-channels that have queues and mode together with this."""
        if self.controller.queue_scope == "both_pseudochannels":
            return self.ports
        return [self.ports[pseudochannel]]

    def _join(self, queue: list[Request], request: Request) -> None:
        request.seq = self.seq
        if request.entered < 0:
            request.entered = self.now
        self.seq += 1
        queue.append(request)

    def choose_modes(self) -> None:
        """Mode. Each pseudo-channel turns between reads and writes by its watermarks."""
        c = self.controller
        for number, port in enumerate(self.ports):
            where = self._sharing(number)
            reads = sum(len(other.reads) for other in where)
            writes = [write for other in where for write in other.writes]
            fullest = max((self._held(writes, write) for write in writes), default=0)
            if not port.writing:
                if fullest > c.write_drain_high * c.write_queue or (reads == 0 and writes):
                    port.writing = True
            elif (fullest < c.write_drain_low * c.write_queue and reads) or not writes:
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
            if self._drains():
                continue
            if self.controller.scheduler == "fcfs":
                yield from self._first_come(port)
            else:
                yield from self._first_ready(port)
        for unit in self.units:
            for which in self._sets_to_refresh(unit):
                yield from self._refresh(unit, which)
        yield from self._rfms()
        yield from self._back_off()
        yield from self._periodic()
        yield from self._timeouts()

    def _drains(self) -> bool:
        """Urgent. Whether a bank that is blocked has an activation-buffer request."""
        return any(self.blocked(r.place) for port in self.ports for r in port.buffer)

    def _for_request(self, group: int, command: str, request: Request) -> Candidate:
        return Candidate(group, (request.seq,), command, (request.place,), request)

    def _column_command(self, port: Port, request: Request) -> str:
        """Partial writes, Page policy. RD, WR or MWR; with `closed` their A forms when nothing else
        wants the row."""
        name = "RD"
        if request.write:
            name = "MWR" if request.partial and "MWR" in self.memory.commands else "WR"
        if self.controller.page_policy != "closed" or request.reads_first:
            return name
        wanted = any(
            other is not request and other.place == request.place and other.row == request.row
            for other in port.waiting
        )
        return name if wanted else name + "A"

    def _timeouts(self) -> Iterator[Candidate]:
        """Page policy, `timeout` and `adaptive`. PRE of open banks whose row is not waited for."""
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

    # --- Issue --------------------------------------------------------------------------

    def issue(self, candidate: Candidate) -> bool:
        """Commands. Take the command's effects; True when it served a request."""
        command, places, request = candidate.command, candidate.places, candidate.request
        port = self.ports[places[0][0]]
        self._stirs(command)
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
        elif command == "RFM":
            assert self.managed is not None
            self._lower(places, self.managed.RAADEC)
            if self.alerts:
                self._mitigate(places)
        elif command in self.every:
            self._unit(places[0]).periodic[command] = self.now + self.every[command]
        elif command == "RFMAB":
            self._recovered(self._unit(places[0]))
        else:
            self._refreshed(places)
        return False

    def _activate(self, command: str, port: Port, request: Request) -> None:
        """Activation buffer, Legality 5. The request moves to the buffer; ACT1 opens a pair."""
        request.activated = True
        if self.controller.activation_buffer:
            port.queue.remove(request)
            port.buffer.append(request)
            self.left = self.now
        if command == "ACT1":
            port.pair = Pair(request, self.now + self.lowered.max_gap)
        else:
            self._open(request)

    def _open(self, request: Request) -> None:
        bank = self.banks[request.place]
        bank.open_row, bank.served, bank.used = request.row, 0, self.now
        bank.raa += 1
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
                self._closes(bank)
        if candidate.request is not None:
            candidate.request.precharged = True
            if self.controller.page_policy == "adaptive":
                bank = self.banks[candidate.places[0]]
                bank.timeout = max(bank.timeout // 2, 1, self.lowered.page_timeout // 16)

    def _column(self, command: str, port: Port, request: Request) -> bool:
        """Legality 3, Figures. Occupy DQ; the request is served; the A forms close the bank.

        False where it is the read of a partial write, which joins the writes now.
        """
        beats = self._beats(command)
        port.data = [(a, b) for a, b in port.data if b > self.now] + beats
        end = max(b for _, b in beats)
        self.end_tick = max(self.end_tick, end)
        self._keep_sync(request.place[:2], kind_of(command))
        if request not in port.buffer:
            self.left = self.now
        for queue in (port.reads, port.writes, port.buffer):
            if request in queue:
                queue.remove(request)
        bank = self.banks[request.place]
        bank.served += 1
        bank.used = self.now
        if command.endswith("A"):
            self._closes(bank)
        kind = "conflict" if request.precharged else "miss" if request.activated else "hit"
        self.figures[kind] += 1
        if request.reads_first:
            self._now_write(port, request)
            return False
        self.latencies[request.write].append(end - request.entered)
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
    for name, bits, values in memory.address_sizes():
        fields[name] |= rest % values << taken[name]
        taken[name] += bits
        rest //= values
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
    passed: int = 0,
    owed: Sequence[int] | None = None,
) -> ReferenceResult:
    """Serve `requests` (arrival tick, byte address in the channel, kind) and log every command.

    kind: 0 a read, 1 a write, 2 a write of less than the burst. `channel` of `channels` sets the
    phase of refresh only. passed: ticks, and owed: refreshes of each
    rank (rules.md: what has passed). Ends with the column command
    that serves the last request. Raises RuntimeError when a description lets no command become
    legal.
    """
    stream = [
        Request(at, kind > 0, kind == 2, *decode(memory, address)) for at, address, kind in requests
    ]
    model = Channel(memory, channel, channels, passed, owed)
    entered = served = 0
    offers: list[Candidate] = []
    known: object = None
    last = 0
    while served + model.forwarded < len(stream):
        entered = model.enter(stream, entered)
        model.settle_refreshes()
        model.choose_modes()
        # What is offered changes only with an entry, a command, a mode, or a refresh falling due.
        pressing = [
            (model.owed(u), model.urgent(u), model.held(u), model.backs_off(u), model.maintains(u))
            for u in model.units
        ]
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
        commands=model.log, end_tick=model.end_tick, row_hits=figures["hit"],
        row_misses=figures["miss"], row_conflicts=figures["conflict"],
        read_latency_ticks=model.latencies[False],
        write_latency_ticks=model.latencies[True], forwarded=model.forwarded,
        rmw_reads=model.rmw_reads, asleep=model.asleep,
    )  # fmt: skip


def _idle_until(model: Channel, arrival: int) -> int:
    """With nothing waiting and nothing offered: the next arrival, or the next refresh due or
    urgent, or back-off."""
    events = [unit.back_off for unit in model.units if unit.back_off is not None]
    events += [due for unit in model.units for due in unit.periodic.values()]
    if model.controller.refresh == "none":
        return min([arrival, *(event for event in events if event >= model.now)])
    events += [model.due(unit.issued + 1) for unit in model.units]
    events += [model.urgent_from(unit) for unit in model.units]
    # a rank is held only while a refresh is urgent, which is then offered
    return min([arrival, *(event for event in events if event >= model.now)])
