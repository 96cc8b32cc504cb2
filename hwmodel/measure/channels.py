"""Channels that a host drives: it submits accesses, advances time, and takes completions.

One object is one channel of a memory, or all channels of a device. Time counts in ticks of the
memory (`tick_ns`). The simulation is that of `replay`: the same accesses at the same ticks give the
same commands and figures, however they are split into calls.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodel.kernel.address import CHANNEL_HASHES
from hwmodel.kernel.channel import SLICE, runner
from hwmodel.kernel.channel_state import copied, idle_channels
from hwmodel.kernel.host import LOG_KEPT, WANTS_ROOM, address_of
from hwmodel.kernel.limits import Int
from hwmodel.kernel.shapes import lowered
from hwmodel.kernel.sources import port as kernel
from hwmodel.kernel.sources.calls import run_calls
from hwmodel.measure.accesses import (
    NO_COMPLETIONS,
    NO_WAITING,
    Completions,
    Lent,
    Snapshot,
    Waiting,
    checked,
)
from hwmodel.measure.open_loop import LOG_LINES, OpenLoop, command_log
from hwmodel.measure.replay import figures
from hwmodel.measure.trace import MOST_TICKS
from hwmodel.oracle.command_log import CommandLog, csv_columns, write_csv
from hwmodel.specs.device import Device

_ROWS = 512
"""Accesses and runs for which a channel has room at first."""


class _Counts(OpenLoop):
    """The counts of channels that a port runs, as `figures` reads them."""

    now = 0

    def __post_init__(self) -> None:
        self.threads = 1

    @property
    def end_tick(self) -> int:
        """Tick at which the last data beat ends, or `now` where that is later."""
        return max(self.now, super().end_tick)


class Channels:
    """One channel of a memory, or all channels of a device, driven by calls.

    `now` is the tick up to which they were simulated, int; `channels` their number, `burst_bytes`
    and `capacity_bytes` sizes in bytes, `tick_ns` the length of a tick.

    An access completes when its last burst does. A burst completes at the end of its data on DQ,
    of a write (which is posted: no queue entry waits for the host) as of a read; a read that a
    waiting write answers, one tick after it was taken. There is no latency between host and queue.
    """

    def __init__(
        self, device: Device, *, single_channel: bool = False, outstanding: int | None = None,
        keep_commands: bool = False,
    ) -> None:  # fmt: skip
        """`single_channel`: one channel of the device. `outstanding`: closed loop; that many
        accesses are under way at most, and the next begins at the tick at which one completes, or
        at its own if that is later. None: open loop, each begins at its tick. `keep_commands`: for
        `commands`. Raises ValueError for `outstanding` below 1, DescriptionError for a device
        whose memory is given, not described."""
        if outstanding is not None and outstanding < 1:
            raise ValueError(f"outstanding is {outstanding}; expected at least 1")
        memory, a = device.memory, None if single_channel else device.accelerator
        self.device = device
        self.channels = 1 if a is None else a.channels
        self.burst_bytes = memory.organisation.burst_bytes
        local = memory.data_bytes
        self.capacity_bytes: int = local if single_channel else device.capacity_bytes
        self.tick_ns: float = memory.tick_clock.ns_of_ticks(1)
        self._keeps = keep_commands
        self.constants = lowered(memory)
        self._counts = _Counts(memory, self.channels)
        self._window, self._interleave = outstanding or 0, 0 if a is None else a.interleave
        self._hash = 0 if a is None else CHANNEL_HASHES[a.channel_hash]
        self._tables = self.idle_tables()
        self._waiting, self._held = NO_WAITING, NO_COMPLETIONS
        self._batches: list[Waiting] = []
        self._kept: list[Int] = []
        self._submitted = 0
        self._last, self._rising = 0, True
        """Latest tick submitted, and whether those in `_batches` follow by tick."""

    def idle_tables(self) -> dict[str, NDArray[Any]]:
        """All that changes, at tick 0; arrays by their names in `hwmodel.kernel.sources.port`."""
        backlog = np.zeros((self.channels, kernel.BACKLOG_FIELDS), np.int64)
        backlog[:, : kernel.B_FORWARDED] = -1
        rows = _ROWS * (self.channels + 1)
        kept = LOG_LINES if self._keeps else 0
        port = np.zeros(1, kernel.PORT)
        for name, value in {
            "channels": self.channels, "interleave": self._interleave or self.capacity_bytes,
            "hash": self._hash, "burst": self.burst_bytes,
            "burst_bits": self.burst_bytes.bit_length() - 1, "capacity": self.capacity_bytes,
            "lookahead": int(self.constants["data_end"][0].min()), "window": self._window,
            "access_rows": rows, "access_free": -1, "run_rows": rows, "run_free": -1, "keeps": kept,
        }.items():  # fmt: skip
            port[name] = value
        accesses = np.zeros((rows, kernel.ACCESS_FIELDS), np.int64)
        if self.device.memory.controller.inline_ecc:
            port["access_used"] = 2
            accesses[:2, kernel.A_LEFT] = 1
            accesses[kernel.CHECK_WRITES, kernel.A_WRITE] = 1
        return {
            "port": port,
            "states": idle_channels(self.device.memory, self.constants, self.channels),
            "backlog": backlog,
            "accesses": accesses,
            "completions": np.zeros((rows, 2), np.int64),
            "runs": np.zeros((rows, kernel.RUN_FIELDS), np.int64),
            "log": np.zeros((kernel.LOG_LINES, kernel.LINE), np.int64),
            "kept": np.zeros((kept, kernel.LINE), np.int64),
        }

    @property
    def now(self) -> int:
        return int(self._tables["port"]["now"][0])

    @property
    def outstanding(self) -> int:
        """Accesses submitted whose completion no call has returned."""
        port = self._tables["port"][0]
        waiting = len(self._waiting.tick) - int(port["staged"])
        later = sum(len(batch.tick) for batch in self._batches)
        return waiting + later + int(port["accesses_held"]) + len(self._held.tick)

    def submit(
        self, tick: ArrayLike, address: ArrayLike, size: ArrayLike | None = None,
        write: ArrayLike = False, tag: ArrayLike | None = None,
    ) -> Int:  # fmt: skip
        """Hand over accesses; nothing is simulated yet. Returns their tags, int64 (n,).

        tick: of arrival at the queues, from `now` on, in any order (equal ticks: in that of
        submission); address, size: bytes, one burst by default; write: bool; tag: whatever the
        host likes to call it, int64, by default how many were submitted before. Each (n,) integers,
        or one number for all. Unaligned reads move whole bursts; bursts that a write does not fill
        are partial writes. Raises ValueError, with nothing submitted, for a tick before `now` or
        beyond 2^42, an access of no bytes or outside the memory, arrays that are not of one length,
        and numbers that int64 does not hold.
        """
        given = {
            "tick": tick, "address": address, "size": self.burst_bytes if size is None else size,
            "write": write, **({} if tag is None else {"tag": tag}),
        }  # fmt: skip
        batch = checked(given, self._submitted, self.now, self.capacity_bytes)
        ticks = batch.tick
        if len(ticks):
            rising = np.ndim(tick) == 0 or bool((ticks[1:] >= ticks[:-1]).all())
            self._rising = self._rising and rising and bool(ticks[0] >= self._last)
            self._last = max(self._last, int(ticks[-1] if rising else ticks.max()))
            self._batches.append(batch)
            self._submitted += len(ticks)
        return batch.tag.copy()

    def advance(self, to: int) -> Completions:
        """Simulate up to tick `to`. Returns what has completed by then and was not returned before.

        A channel without requests stands still, as at the end of `replay`; refreshes that fall due
        meanwhile are issued, and counted, once the next access arrives. Raises ValueError for `to`
        before `now` or beyond 2^42.
        """
        return self._simulate(self._tick(to), kernel.TO_TICK)

    def next_completions(self, to: int) -> Completions:
        """Simulate up to the next tick at which accesses complete, `to` at the latest; `now` is
        that tick. Returns the accesses, none where `to` came first. Raises ValueError as
        `advance`."""
        return self._simulate(self._tick(to), kernel.TO_COMPLETION)

    def drain(self) -> Completions:
        """Simulate until all that was submitted is complete, and return it. `now` is the tick of
        the last completion, or stays where it was if that is later: as `replay` ends."""
        return self._simulate(2 * MOST_TICKS, kernel.TO_END)

    def _tick(self, to: int) -> int:
        if int(to) != to or not self.now <= to <= MOST_TICKS:
            expected = f"expected a whole number from {self.now}, which is now, to {MOST_TICKS}"
            raise ValueError(f"cannot advance to tick {to}; {expected}")
        return int(to)

    def _simulate(self, to: int, how: int) -> Completions:
        begun = time.perf_counter()
        port, start, held = self._tables["port"], self.now, self._held
        tick, tag = (np.empty(self.outstanding, np.int64) for _ in held)
        tag[: len(held.tag)], tick[: len(held.tick)] = held
        port["done"], port["settled"] = len(held.tick), 0
        self._point(**self._tables, constants=self.constants, done_tick=tick, done_tag=tag)
        self._point(**self._waiting._asdict())
        try:
            self._feed(to, how)
            self._run_port(to, how)
        finally:  # what was completed before an interruption comes with the next call
            done = int(port["done"][0])
            self._held = Completions(tag[:done], tick[:done])
            self._counts.wall_s += time.perf_counter() - begun
        if how == kernel.TO_END:
            last = max(int(tick[:done].max(initial=0)), int(self._tables["states"]["end"].max()))
            port["now"] = max(start, last)
        return self._completed()

    def _run_port(self, to: int, how: int) -> None:
        """Back in Python every SLICE ticks of a channel, which then sees a signal."""
        port, run = self._tables["port"], run_calls().ctypes
        while True:
            until = min(to, int(port["now"][0]) + SLICE // self.channels)
            why = run(address_of(port), until, how)
            if why == WANTS_ROOM:
                for rows, names in _GROWN.items():
                    self._grow(rows, names)
            elif why == LOG_KEPT:
                self._take_kept()
            elif port["now"][0] >= to or self._through(how):
                return

    def _through(self, how: int) -> bool:
        """Whether a call has what it runs for before its last tick."""
        port = self._tables["port"][0]
        if how == kernel.TO_INPUT:
            return True
        if how == kernel.TO_END:
            checks = self._tables["accesses"][:2, kernel.A_LEFT].sum() - 2
            done = port["accesses_held"] == 0 and port["staged"] == port["waiting"]
            return bool(done and not (self.device.memory.controller.inline_ecc and checks))
        return bool(how == kernel.TO_COMPLETION and port["settled"] > 0)

    def _feed(self, to: int, how: int) -> None:
        """Give the port what was submitted: one batch after the other where they are in order."""
        port = self._tables["port"]
        if self._rising and how != kernel.TO_COMPLETION and port["window"] == 0:
            while self._batches and port["staged"] == port["waiting"]:
                self._wait(self._batches.pop(0))
                if self._batches:
                    self._run_port(to, kernel.TO_INPUT)
        if self._batches:
            self._queue()

    def _queue(self) -> None:
        """Put what was submitted among the accesses that wait, by tick."""
        port = self._tables["port"]
        rest = Waiting(*(part[int(port["staged"][0]) :] for part in self._waiting))
        parts = [rest, *self._batches] if len(rest.tick) else self._batches
        if len(parts) > 1:
            rest = Waiting(*map(np.concatenate, zip(*parts, strict=True)))
        elif parts:
            rest = parts[0]
        if not self._rising:
            order = np.argsort(rest.tick, kind="stable")
            rest = Waiting(*(part[order] for part in rest))
        self._batches, self._rising = [], True
        self._wait(rest)

    def _wait(self, accesses: Waiting) -> None:
        port = self._tables["port"]
        self._waiting = accesses
        self._point(**accesses._asdict())
        port["staged"], port["waiting"] = 0, len(accesses.tick)

    def _point(self, **arrays: NDArray[Any]) -> None:
        """Tell the port where arrays lie, and what runs its channels."""
        self._tables["port"]["advance"] = runner(self.constants.dtype).address
        for name, array in arrays.items():
            if name in (kernel.PORT.names or ()):
                self._tables["port"][name] = address_of(array)

    def _grow(self, rows: str, names: tuple[str, ...]) -> None:
        for name in names:
            table = self._tables[name]
            self._tables[name] = np.concatenate((table, np.zeros_like(table)))
        self._tables["port"][rows] *= 2
        self._point(**{name: self._tables[name] for name in names})

    def _take_kept(self) -> None:
        port = self._tables["port"]
        if port["kept_lines"][0]:
            self._kept.append(self._tables["kept"][: int(port["kept_lines"][0])].copy())
            port["kept_lines"] = 0

    def _completed(self) -> Completions:
        """What has completed by `now`; the rest is held."""
        tag, tick = self._held
        if not self._tables["port"]["ordered"][0]:
            order = np.argsort(tick, kind="stable")
            tag, tick = tag[order], tick[order]
        due = int(np.searchsorted(tick, self.now, "right"))
        self._held = Completions(tag[due:].copy(), tick[due:].copy())
        return Completions(tag[:due], tick[:due])

    def lend(self, room: int) -> Lent:
        """The port, with arrays for `room` accesses, for a jitted caller, until the next call of
        this object. Raises ValueError while accesses are under way."""
        if self.outstanding:
            raise ValueError(f"{self.outstanding} accesses are under way; drain first")
        row = np.zeros(room, np.int64)
        self._wait(Waiting(*(row.astype(part.dtype) for part in NO_WAITING)))
        done, port = Completions(row.copy(), row.copy()), self._tables["port"]
        self._point(
            **self._tables, constants=self.constants, done_tag=done.tag, done_tick=done.tick
        )
        port["waiting"] = 0
        return Lent(run_calls().ctypes, address_of(port), port, self._waiting, done)

    def statistics(self) -> dict[str, Any]:
        """Counts, bandwidth, latency of reads and energy from tick 0 to `now`, or to the last data
        beat where that is later: the figures of `replay --json`, by the same names."""
        self._counts.states, self._counts.now = self._tables["states"], self.now
        return figures(self.device, self._counts, self.channels, "calls")

    @property
    def row_hit_rate(self) -> float:
        """Share of the requests served that found their row open."""
        self._counts.states = self._tables["states"]
        return self._counts.row_hit_rate

    def commands(self) -> list[CommandLog]:
        """All commands issued so far, a log a channel, by tick. Raises ValueError where they are
        not kept."""
        if not self._keeps:
            raise ValueError("commands are not kept; open with keep_commands=True")
        self._take_kept()
        lines = np.concatenate([self._tables["kept"][:0], *self._kept])
        of = lines[:, -1]
        parts = [lines[of == channel, :-1] for channel in range(self.channels)]
        return [command_log(self.device.memory, part) for part in parts]

    def write_commands(self, path: str | Path) -> None:
        """Write `commands` as the CSV that `replay --commands` writes and `audit` reads. Raises
        ValueError where they are not kept, OSError where the file cannot be written."""
        logs, several = self.commands(), self.channels > 1
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            file.write(",".join(csv_columns(self.device.memory, several)) + "\n")
            for channel, log in enumerate(logs):
                number = channel if several else None
                write_csv(file, self.device.memory, log, number, header=False)

    def snapshot(self) -> Snapshot:
        """All that the simulation hangs on, and the figures and commands so far, to `restore`."""
        self._queue()
        self._take_kept()
        tables = _copied(self._tables)
        kept, submitted = tuple(self._kept), self._submitted
        return Snapshot(self.constants, tables, self._waiting, self._held, kept, submitted)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back, or to where another object of the same memory was. What has been submitted since
        is forgotten. Raises ValueError for a snapshot of another memory or other options."""
        fixed = ("channels", "interleave", "hash", "capacity", "window", "keeps")
        one, other = snapshot.tables["port"][0], self._tables["port"][0]
        same = all(one[name] == other[name] for name in fixed)
        if not same or snapshot.constants.tobytes() != self.constants.tobytes():
            raise ValueError("the snapshot is of another memory, or of other options")
        self._tables = _copied(snapshot.tables)
        self._waiting, self._held, self._batches = snapshot.waiting, snapshot.held, []
        self._kept, self._submitted = list(snapshot.kept), snapshot.submitted
        self._last, self._rising = int(snapshot.waiting.tick.max(initial=0)), True


def _copied(tables: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Tables of their own, counters of rows included."""
    return {n: copied(t) if n == "states" else t.copy() for n, t in tables.items()}


_GROWN = {"access_rows": ("accesses", "completions"), "run_rows": ("runs",)}
