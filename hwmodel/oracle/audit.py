"""The auditor: is a command log legal for a memory? It knows the YAML and nothing of scheduling.

Every check is vectorised over the whole log (about two seconds a million commands) and reports all
that it finds, so that one illegal command does not hide another. Times are integer ticks of the
memory's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError
from hwmodel.description.expression import evaluate
from hwmodel.oracle.alert_audit import back_offs
from hwmodel.oracle.command_log import CODE, LEVEL_FIELDS, CommandLog, clocks_text, read_csv
from hwmodel.oracle.power_audit import dies_own, power_states
from hwmodel.oracle.refresh_audit import bank_in_rank, debts, periods, rank_in_channel, wrong_turns
from hwmodel.specs.commands import (
    COLUMN_COMMANDS,
    COMMANDS,
    RANK_COMMANDS,
    READ_COMMANDS,
    WRITE_COMMANDS,
)
from hwmodel.specs.controller_rule import RULES
from hwmodel.specs.memory_fields import DelayRow
from hwmodel.specs.memory_spec import MemorySpec

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

DEPTH = {"channel": 0, "pseudochannel": 1, "rank": 2, "stack": 3, "bankgroup": 4, "bank": 5}
OTHER = {"other_stack": "stack", "other_rank": "rank"}


@dataclass(frozen=True)
class Violation:
    """One illegality. `index`: position in the log; `row`: index into `constraints`, or -1."""

    tick: int
    rule: str
    command: str
    index: int
    row: int = -1


class Violated(NamedTuple):
    """One illegality in a log's own terms."""

    channel: int | None
    """None in a log of one channel."""
    cycle: float
    """In clocks CK."""
    command: str
    rule: str


def row_rule(memory: MemorySpec, number: int) -> str:
    """Text of a constraint row, such as `bank (ACT -> RD) tRCD = 15 nCK`."""
    row = memory.constraints[number]
    window = f"window {row.window}, " if row.window else ""
    value = clocks_text(memory, memory.ticks(row.delay))
    names = ["|".join(map(memory.command_name, side)) for side in (row.after, row.before)]
    stated = "" if row.delay.strip() == value else f"{row.delay} = "
    return f"{row.scope} ({window}{names[0]} -> {names[1]}) {stated}{value} nCK"


def audit(
    memory: MemorySpec, commands: CommandLog, *, end_tick: int | None = None, refresh: bool = True,
    limit: int = 100,
) -> list[Violation]:  # fmt: skip
    """Everything illegal in a log of one channel, by position; at most `limit` violations.

    `end_tick`: end of the run for the refresh debt (the last command where it is None). `refresh`:
    check that each unit is refreshed as often, and in the order, that the controller's refresh
    policy asks for.
    """
    auditor = _Auditor(memory, commands, limit)
    auditor.time_order()
    auditor.addresses()
    if len(auditor.log.tick) == 0 and not refresh:
        return auditor.found()
    auditor.rows()
    auditor.buses()
    auditor.data()
    auditor.states()
    auditor.pairs()
    auditor.sync()
    alerts, spans = back_offs(memory, auditor.log)
    if refresh:
        auditor.refresh(end_tick, spans)
    if memory.managed:
        auditor.management()
    own = [RULES[name] for name in memory.controller.rules if name in RULES]
    for finding in (
        *(rule.audit(memory, auditor.log) for rule in own),
        alerts,
        power_states(memory, auditor.log),
        periods(memory, auditor.log, end_tick or 0),
    ):
        for index, rule in finding:
            auditor.report(index, rule)
    return auditor.found()


def audit_file(memory: MemorySpec, file: str | Path) -> tuple[int, list[Violated]]:
    """How many commands a CSV log has, and everything illegal in it, channel by channel. Raises
    DescriptionError with file and line where it cannot be read, and where a rule of the controller
    is not there to be asked."""
    for name in memory.controller.rules:
        if name not in RULES:
            raise DescriptionError(
                f"controller.rules: no rule {name!r} is loaded; name its file with --plugin"
            )
    logs = read_csv(memory, file)
    clock = memory.tick_clock.ticks_per_ck
    found = [
        Violated(
            channel if len(logs) > 1 else None,
            each.tick / clock if clock > 1 else each.tick,
            each.command,
            each.rule,
        )
        for channel, log in logs
        for each in audit(memory, log, limit=10**9)
    ]
    return sum(len(log.tick) for _, log in logs), found


def among(codes: Ints, names: Iterable[str]) -> Flags:
    """Which codes are those of `names`; each has to be one of a command."""
    chosen = np.zeros(len(COMMANDS), np.bool_)
    chosen[[CODE[name] for name in names]] = True
    return chosen[codes]


class _Entries(NamedTuple):
    """Where commands stand at one level: an entry a command and instance, by (instance, index)."""

    key: Ints
    at: Ints
    instance: Ints


class _Auditor:
    """One log under audit. `log`: what can be checked; `origin`: its positions in the given log."""

    def __init__(self, memory: MemorySpec, log: CommandLog, limit: int) -> None:
        self.memory, self.limit = memory, limit
        self.log = CommandLog(*(np.asarray(values, dtype=np.int64) for values in log))
        self.origin = np.arange(len(self.log.tick), dtype=np.int64)
        o = memory.organisation
        self.sizes = (o.pseudochannels, o.ranks, o.stacks, o.bankgroups, o.banks_per_group)
        self.banks_per_rank = o.stacks * o.bankgroups * o.banks_per_group
        self.sets = memory.refresh_sets()
        self.rests = ["REFAB", "RFMAB", *memory.periodic_closed]
        """Commands for which all banks of a rank are closed."""
        self.violations: list[Violation] = []
        self._entries: dict[str, _Entries] = {}

    # --- Collecting ---------------------------------------------------------------------

    def report(self, index: Ints, rule: str | Callable[[int], str], row: int = -1) -> None:
        """Take up violations at `index`; a callable `rule` is given the place within `index`."""
        first = np.argsort(index, kind="stable")[: self.limit]
        for place in first.tolist():
            at = int(index[place])
            text = rule if isinstance(rule, str) else rule(place)
            self.violations.append(
                Violation(
                    int(self.log.tick[at]), text, self.describe(at), int(self.origin[at]), row
                )
            )

    def describe(self, at: int) -> str:
        """The command at `at` with the fields that it addresses: `RD rank 0 bankgroup 1 ...`."""
        named = [
            f"{name} {int(getattr(self.log, name)[at])}"
            for name in (*LEVEL_FIELDS, "row", "column")
            if getattr(self.log, name)[at] >= 0
        ]
        code = int(self.log.command[at])
        known = 0 <= code < len(COMMANDS)
        return " ".join([self.memory.command_name(COMMANDS[code]) if known else str(code), *named])

    def found(self) -> list[Violation]:
        return sorted(self.violations, key=lambda v: (v.index, v.row, v.rule))[: self.limit]

    def clocks(self, ticks: int) -> str:
        return clocks_text(self.memory, ticks)

    def mask(self, *names: str) -> Flags:
        """Which commands are one of `names`."""
        return among(self.log.command, names)

    # --- Order and addresses ------------------------------------------------------------

    def time_order(self) -> None:
        """Ticks never decrease and are not negative; the rest is checked in order of time."""
        tick = self.log.tick
        self.report(np.flatnonzero(tick < 0), "time order: a command before tick 0")
        back = np.flatnonzero(np.diff(tick) < 0) + 1
        self.report(back, "time order: a command earlier than the one before it")
        if len(back):
            order = np.argsort(tick, kind="stable")
            self.log, self.origin = self.log.take(order), self.origin[order]

    def addresses(self) -> None:
        """Commands that this memory has, addressed within it; others are reported and left out."""
        known = among(self.log.command, self.memory.commands)
        self.report(np.flatnonzero(~known), "command: this memory has no such command")
        ranked = self.mask(*RANK_COMMANDS)
        good = known.copy()
        for depth, (name, size) in enumerate(zip(LEVEL_FIELDS, self.sizes, strict=True)):
            values = getattr(self.log, name)
            bad = known & ((values < 0) | (values >= size))
            if depth >= 2:
                bad &= ~ranked
            self.report(np.flatnonzero(bad), f"address: {name} outside 0 to {size - 1}")
            good &= ~bad
        o = self.memory.organisation
        opens, columns = self.mask("ACT", "ACT1", "ACT2"), self.mask(*COLUMN_COMMANDS)
        fields = (("row", o.rows, opens | columns), ("column", o.columns, columns))
        for name, size, addressed in fields:
            values = getattr(self.log, name)
            bad = good & addressed & ((values < 0) | (values >= size))
            self.report(np.flatnonzero(bad), f"address: {name} outside 0 to {size - 1}")
            good &= ~bad
        heads = np.array([banks[0] for banks in self.sets], dtype=np.int64)
        bad = good & self.mask("REFPB", "RFM") & ~np.isin(self._bank_in_rank(), heads)
        self.report(np.flatnonzero(bad), "address: not the first bank of a refresh set")
        good &= ~bad
        if not good.all():
            self.log, self.origin = self.log.take(good), self.origin[good]

    def _bank_in_rank(self) -> Ints:
        return bank_in_rank(self.memory, self.log)

    def _rank(self) -> Ints:
        return rank_in_channel(self.memory, self.log)

    # --- Scopes -------------------------------------------------------------------------

    def _spread(self) -> tuple[Ints, Ints]:
        """(index, bank of the channel) of bank commands; REFPB and RFM once for each of a set."""
        index = np.flatnonzero(~self.mask(*RANK_COMMANDS))
        bank = self._bank_in_rank()[index]
        first = self._rank()[index] * self.banks_per_rank
        refreshes = among(self.log.command[index], ("REFPB", "RFM"))
        parts = [(index[~refreshes], (first + bank)[~refreshes])]
        if refreshes.any():
            for banks in self.sets:
                of_set = refreshes & (bank == banks[0])
                parts += [(index[of_set], first[of_set] + number) for number in banks]
        return np.concatenate([i for i, _ in parts]), np.concatenate([b for _, b in parts])

    def entries(self, scope: str) -> _Entries:
        """Entries of a scope: channel, pseudochannel and rank hold rank commands too."""
        if scope not in self._entries:
            depth = DEPTH[scope]
            if depth <= 2:
                index = np.arange(len(self.log.tick), dtype=np.int64)
                rank = self._rank()
                instance = {0: np.zeros_like(rank), 1: self.log.pseudochannel, 2: rank}[depth]
            else:
                index, bank = self._spread()
                instance = bank // int(np.prod(self.sizes[depth:]))
            key = np.sort(instance * len(self.log.tick) + index)  # np.unique would hash, slowly
            key = key[np.append(True, np.diff(key) > 0)[: len(key)]]
            count = max(len(self.log.tick), 1)
            self._entries[scope] = _Entries(key, key % count, key // count)
        return self._entries[scope]

    # --- Rows ---------------------------------------------------------------------------

    def rows(self) -> None:
        """Each constraint row: B waits `delay` after the N-th last A in the same instance."""
        clocks, exact = self.memory.timing_clocks, self.memory.exact_clocks
        for number, row in enumerate(self.memory.constraints):
            delay = self.memory.tick_clock.ticks(evaluate(row.delay, clocks, exact))
            if delay <= 0:
                continue
            here = self.entries(OTHER.get(row.scope, row.scope))
            code = self.log.command[here.at]
            later = here.key[among(code, self.memory.in_rows(row.before))]
            after = among(code, self.memory.in_rows(row.after))
            earlier = self._siblings(here, after, row) if row.scope in OTHER else here.key[after]
            if len(earlier) and len(later):
                self._row(number, earlier, later, delay, row.window or 1)

    def _siblings(self, here: _Entries, chosen: Flags, row: DelayRow) -> Ints:
        """Keys of the other instances of the same parent, for commands `chosen` of `here`."""
        size = self.sizes[DEPTH[OTHER[row.scope]] - 1]
        parent, index = here.instance[chosen] // size, here.at[chosen]
        count = len(self.log.tick)
        every = [(parent * size + i) * count + index for i in range(size)]
        return np.setdiff1d(np.concatenate(every), here.key[chosen])

    def _row(self, number: int, earlier: Ints, later: Ints, delay: int, nth: int) -> None:
        """Compare sorted keys of B with the `nth` last A before each in its instance."""
        count = max(len(self.log.tick), 1)
        place = np.searchsorted(earlier, later) - nth
        later, place = later[place >= 0], place[place >= 0]
        same = earlier[place] // count == later // count
        index, cause = later[same] % count, earlier[place[same]] % count
        gap = self.log.tick[index] - self.log.tick[cause]
        wrong = gap < delay
        # a refresh of several banks is reported once
        index, first = np.unique(index[wrong], return_index=True)
        gap, cause = gap[wrong][first], cause[wrong][first]

        def text(place: int) -> str:
            kind, tick = COMMANDS[self.log.command[cause[place]]], self.log.tick[cause[place]]
            since = f"{self.memory.command_name(kind)} at {int(tick)}"
            rule = row_rule(self.memory, number)
            return f"{rule}: {self.clocks(int(gap[place]))} ({since})"

        self.report(index, text, number)

    # --- Buses and data -----------------------------------------------------------------

    def buses(self) -> None:
        """Commands on one bus do not overlap in their slots."""
        slots = np.zeros(len(COMMANDS), dtype=np.int64)
        for name, command in self.memory.commands.items():
            slots[CODE[name]] = self.memory.tick_clock.ticks(Fraction(str(command.slots)))
        for bus, spec in self.memory.buses.items():
            users = [name for name, command in self.memory.commands.items() if command.bus == bus]
            on_bus = self.mask(*users) & ~dies_own(self.log)
            shared = spec.scope == "channel"
            for pseudochannel in range(1 if shared else self.sizes[0]):
                here = on_bus if shared else on_bus & (self.log.pseudochannel == pseudochannel)
                index = np.flatnonzero(here)
                busy = np.maximum.accumulate(self.log.tick[index] + slots[self.log.command[index]])
                wrong = index[1:][self.log.tick[index][1:] < busy[:-1]]
                self.report(wrong, f"bus {bus}: occupied by an earlier command")

    def data(self) -> None:
        """Segments on DQ of a pseudo-channel do not overlap; the later command is at fault."""
        lists = []
        data = self.memory.data
        for commands, slots in ((READ_COMMANDS, data.read), (WRITE_COMMANDS, data.write)):
            index = np.flatnonzero(self.mask(*commands))
            latency = self.memory.ticks(slots.latency)
            for a, b in slots.segments:
                start = self.log.tick[index] + latency + self.memory.ticks(a)
                lists.append((start, start - self.memory.ticks(a) + self.memory.ticks(b), index))
        start, end, index = (np.concatenate(parts) for parts in zip(*lists, strict=True))
        for pseudochannel in range(self.sizes[0]):
            here = np.flatnonzero((self.log.pseudochannel[index] == pseudochannel) & (end > start))
            order = here[np.lexsort((index[here], start[here]))]
            s, e, i = start[order], end[order], index[order]
            busy = np.maximum.accumulate(e)
            holder = np.maximum.accumulate(np.where(e == busy, np.arange(len(e)), 0))
            overlap = s[1:] < busy[:-1]
            wrong = np.maximum(i[1:], i[holder[:-1]])[overlap]
            self.report(np.unique(wrong), "data: DQ overlaps that of an earlier column command")

    # --- State --------------------------------------------------------------------------

    def _bank_events(self) -> tuple[Ints, Ints]:
        """(index, bank) of all that touches a bank, PREA and REFAB once for each of a rank."""
        index, bank = self._spread()
        wide = np.flatnonzero(self.mask("PREA", *self.rests))
        first = self._rank()[wide] * self.banks_per_rank
        numbers = np.arange(self.banks_per_rank, dtype=np.int64)
        index = np.concatenate([index, np.repeat(wide, self.banks_per_rank)])
        bank = np.concatenate([bank, (first[:, None] + numbers).ravel()])
        order = np.lexsort((index, bank))
        return index[order], bank[order]

    def states(self) -> None:
        """Columns need their row open, ACT and refresh a closed bank, PRE an open one."""
        index, bank = self._bank_events()
        code, row = self.log.command[index], self.log.row[index]
        closing = ("PRE", "PREA", "RDA", "WRA", "MWRA")
        changes = among(code, ("ACT", "ACT1", "ACT2", *closing))
        place = np.arange(len(index))
        last = np.maximum.accumulate(np.where(changes, place, -1))
        last = np.concatenate([[-1], last[:-1]]).astype(np.int64) if len(last) else last
        known = last >= 0
        known[known] = bank[last[known]] == bank[known]
        state = np.where(known, code[last], CODE["PRE"])
        is_open = among(state, ("ACT", "ACT2"))
        opening = state == CODE["ACT1"]
        closed = ~is_open & ~opening
        column = among(code, COLUMN_COMMANDS)

        def report(where: Flags, rule: str) -> None:
            self.report(np.unique(index[where]), rule)

        report(column & closed, "state: column command to a closed bank")
        report(
            column & is_open & (row != row[last]), "state: column command to a row that is not open"
        )
        opens = among(code, ("ACT", "ACT1"))
        report(opens & is_open, "state: activation of an open bank")
        report((code == CODE["PRE"]) & closed, "state: PRE of a closed bank")
        refreshes = among(code, ("REFPB", "RFM", *self.rests))
        report(refreshes & is_open, "state: refresh of an open bank")
        second = code == CODE["ACT2"]
        report(second & ~opening, "pair: ACT2 without its ACT1")
        report(opening & ~second, "pair: a command to a bank between ACT1 and ACT2")
        report(second & opening & (row != row[last]), "pair: ACT2 for another row than its ACT1")
        self._useless_prea(index, is_open | opening)

    def _useless_prea(self, index: Ints, is_open: Flags) -> None:
        """PREA of a rank that has no open bank: legal in the standards, but ours never sends it."""
        some = np.zeros(len(self.log.tick), dtype=bool)
        some[index[is_open]] = True
        self.report(
            np.flatnonzero(self.mask("PREA") & ~some), "state: PREA of a rank without open banks"
        )

    def pairs(self) -> None:
        """ACT2 follows its ACT1 within max_gap; one pair at a time is open in a pseudo-channel."""
        if self.memory.activate.max_gap is None or self.memory.activate.steps == 1:
            return
        max_gap = self.memory.ticks(self.memory.activate.max_gap)
        rule = f"pair: ACT2 later than max_gap {self.memory.activate.max_gap}"
        tick = self.log.tick
        last_tick = int(tick[-1]) if len(tick) else 0
        bank = self._rank() * self.banks_per_rank + self._bank_in_rank()
        for pseudochannel in range(self.sizes[0]):
            here = self.log.pseudochannel == pseudochannel
            index = np.flatnonzero(here & self.mask("ACT1", "ACT2"))
            first = self.log.command[index] == CODE["ACT1"]
            nested = first[1:] & first[:-1]
            self.report(
                index[1:][nested], "pair: ACT1 while another pair is open in the pseudo-channel"
            )
            order = index[np.argsort(bank[index], kind="stable")]
            opens = self.log.command[order] == CODE["ACT1"]
            follows = opens[:-1] & ~opens[1:] & (bank[order][1:] == bank[order][:-1])
            late = follows & (tick[order][1:] - tick[order][:-1] > max_gap)
            self.report(order[1:][late], f"{rule} = {self.clocks(max_gap)} nCK")
            alone = opens & ~np.append(follows, False)[: len(opens)]
            lost = order[alone & (last_tick - tick[order] > max_gap)]
            self.report(lost, f"{rule} = {self.clocks(max_gap)} nCK: it never came")

    def sync(self) -> None:
        """Column commands come while the data clock of their rank runs (sync.hold)."""
        sync = self.memory.sync
        if sync is None or sync.always_on:
            return
        hold = np.zeros(len(COMMANDS), dtype=np.int64)
        held = sync.hold
        kinds = ((held.CAS, ("CAS",)), (held.RD, READ_COMMANDS), (held.WR, WRITE_COMMANDS))
        for ticks, commands in kinds:
            hold[[CODE[name] for name in commands]] = self.memory.ticks(ticks)
        rank = self._rank()
        for number in range(self.sizes[0] * self.sizes[1]):
            index = np.flatnonzero((rank == number) & self.mask("CAS", *COLUMN_COMMANDS))
            code, tick = self.log.command[index], self.log.tick[index]
            until = np.concatenate([[-1], np.maximum.accumulate(tick + hold[code])])[: len(index)]
            self.report(
                index[(code != CODE["CAS"]) & (tick > until)],
                "sync: column command after the data clock has stopped; CAS is missing",
            )

    # --- Refresh ------------------------------------------------------------------------

    def refresh(self, end_tick: int | None, back_offs: dict[int, Ints]) -> None:
        """Sets are refreshed in turn, and every unit as often as it has to be."""
        end = 0 if end_tick is None else end_tick
        owed = debts(self.memory, self.log, end, back_offs)
        for finding in (wrong_turns(self.memory, self.log), owed):
            for index, rule in finding:
                self.report(index, rule)

    def management(self) -> None:
        """No bank is activated at RAAMMT, and no RFM comes before RAAIMT."""
        limits = self.memory.refresh.management
        assert limits is not None
        index, bank = self._bank_events()
        code = self.log.command[index]
        less = dict.fromkeys((CODE["RFM"], CODE["RFMAB"]), limits.lowers(limits.RAADEC))
        if limits.RAAREF:
            less |= dict.fromkeys((CODE["REFPB"], CODE["REFAB"]), limits.lowers(limits.RAAREF))
        counts: dict[int, int] = {}
        most: dict[int, int] = {}
        late = []
        for at, number, command in zip(*(v.tolist() for v in (index, bank, code)), strict=True):
            count = counts.get(number, 0)
            if command in (CODE["ACT"], CODE["ACT1"]):
                if count >= limits.RAAMMT:
                    late.append(at)
                counts[number] = count + 1
                continue
            counts[number] = max(0, count - less.get(command, 0))
            if command == CODE["RFM"]:
                most[at] = max(count, most.get(at, 0))
        early = [at for at, count in most.items() if count < limits.RAAIMT]
        self.report(np.array(late, np.int64), f"RFM: activation of a bank at {limits.RAAMMT}")
        self.report(np.array(early, np.int64), f"RFM: no bank of the set is at {limits.RAAIMT}")
