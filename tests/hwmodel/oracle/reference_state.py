"""What the oracle (`tests.hwmodel.oracle.reference`) keeps of a channel."""

from __future__ import annotations

from dataclasses import dataclass, field

Place = tuple[int, ...]
"""(pseudochannel, rank, stack, bankgroup, bank), or a head of it: () the channel, two a rank."""


@dataclass(frozen=True)
class Issued:
    """One command; -1 where a field is not addressed."""

    tick: int
    command: str
    pseudochannel: int
    rank: int
    stack: int
    bankgroup: int
    bank: int
    row: int
    column: int


@dataclass(frozen=True)
class ReferenceResult:
    """What the channel did. `end_tick`: end of the last beat; latencies in order of service, those
    of partial writes that are read first from the entry of that read;
    `forwarded`: reads answered by a waiting write; `rmw_reads`: reads for partial writes."""

    commands: list[Issued]
    end_tick: int
    row_hits: int
    row_misses: int
    row_conflicts: int
    read_latency_ticks: list[int]
    write_latency_ticks: list[int]
    forwarded: int
    rmw_reads: int
    asleep: dict[Place, list[int]]
    """Ticks that each rank spent in power-down with its rows closed, open; in self-refresh so."""


@dataclass(eq=False)
class Request:
    """One burst. `seq`: order of entry into a queue; `entered`: its tick; `reads_first`: a partial
    write that now waits as the read before it."""

    arrival: int
    write: bool
    partial: bool
    place: Place
    row: int
    column: int
    seq: int = -1
    entered: int = -1
    precharged: bool = False
    activated: bool = False
    reads_first: bool = False


@dataclass(eq=False)
class Bank:
    """State of one bank. `served`: column commands since the row opened; `used`: tick of the last
    one, or of the opening; `timeout`: ticks that an unwanted row stays open; `timed_out`: the row
    that was last closed for that; `raa`: activations, less what refreshes and RFMs take off;
    `counts`: of each row, where rows are counted; `refreshes`: so far."""

    place: Place
    timeout: int
    open_row: int | None = None
    served: int = 0
    used: int = 0
    timed_out: int | None = None
    raa: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    refreshes: int = 0


@dataclass(eq=False)
class Pair:
    """An ACT1 whose ACT2 has to come at `deadline` or before."""

    request: Request
    deadline: int


@dataclass(eq=False)
class Port:
    """What each pseudo-channel has of its own: queues, mode, activation buffer, open pair, DQ."""

    reads: list[Request] = field(default_factory=list)
    writes: list[Request] = field(default_factory=list)
    buffer: list[Request] = field(default_factory=list)
    promised: list[Request] = field(default_factory=list)
    """Partial writes that are being read and hold a place in the write queue."""
    writing: bool = False
    pair: Pair | None = None
    data: list[tuple[int, int]] = field(default_factory=list)

    @property
    def queue(self) -> list[Request]:
        """The mode's queue, oldest first."""
        return self.writes if self.writing else self.reads

    @property
    def waiting(self) -> list[Request]:
        """Every request that has entered and is not served."""
        return self.reads + self.writes + self.buffer


@dataclass(eq=False)
class RefreshUnit:
    """A rank of a pseudo-channel: how many refreshes it has had, which sets had theirs in this
    round, and for which the urgent one is settled; `back_off`: from which tick it backs off, `rfms`
    of that to come; `quiet`: rows that have to close before it alerts again."""

    place: Place
    issued: int = 0
    done: set[int] = field(default_factory=set)
    settled: int | None = None
    back_off: int | None = None
    rfms: int = 0
    quiet: int = 0
    periodic: dict[str, int] = field(default_factory=dict)
    """When each of its periodic commands is due next."""


@dataclass(frozen=True)
class Candidate:
    """A command that may be issued: `rank_in_class` is the seq, or (rank, bank) of a refresh."""

    group: int
    rank_in_class: tuple[int, ...]
    command: str
    places: tuple[Place, ...]
    request: Request | None = None

    @property
    def order(self) -> tuple[int, tuple[int, ...]]:
        return (self.group, self.rank_in_class)
