"""Of the oracle: refresh (rules.md: refresh)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.oracle.reference_legality import Legality
from tests.hwmodel.oracle.reference_state import Bank, Candidate, Place, RefreshUnit

URGENT, POSTPONED = 2, 6
"""Classes of the commands of a refresh."""


class Refresh(Legality):
    """A channel whose ranks are refreshed; `channel` of `channels` sets the phase. passed: ticks,
    and owed: refreshes of each rank (rules.md: what has passed)."""

    def __init__(
        self, memory: MemorySpec, channel: int, channels: int, passed: int = 0,
        owed: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(memory)
        self.passed = passed
        self.units = [RefreshUnit(place) for place in self.ranks]
        self.sets = memory.refresh_sets()
        self.interval, self.divided = memory.refresh_ticks(), memory.refreshes_per_round
        self.margin = memory.postpone_margin_ticks()
        self.channel, self.channels = channel, channels
        self.flat = {place: number for number, place in enumerate(self.banks)}
        self.managed = memory.refresh.management if memory.managed else None
        self.alerts = memory.alerts
        self.every = memory.periodic
        self.closing = {kind for kind in self.every if memory.commands[kind].banks == "closed"}
        rows = {
            kind: {row.scope for row in memory.constraints if kind in memory.in_rows(row.before)}
            for kind in self.every
        }
        self.of_channel = {k for k, s in rows.items() if s & {"channel", "other_pseudochannel"}}
        self.of_pc = {k for k, s in rows.items() if s & {"pseudochannel", "other_rank"}}
        for number, unit in enumerate(self.units):
            unit.periodic = {kind: every - passed % every for kind, every in self.every.items()}
            wanted = self.urgent_from if owed is None else lambda unit: self.due(unit.issued + 1)
            while self.controller.refresh != "none" and wanted(unit) <= 0:
                unit.issued += 1
            if owed is not None:
                unit.issued = max(unit.issued - owed[number], 0)
            unit.done = set(range(unit.issued % self.divided))

    def due(self, k: int) -> int:
        """Refresh. The tick at which the k-th refresh (k >= 1) of every rank is due."""
        interval, sets = self.interval, self.divided
        staggered = self.controller.refresh_phase == "staggered"
        phase = self.channel * interval // (self.channels * sets) if staggered else 0
        return phase + k * interval // sets - self.passed

    def owed(self, unit: RefreshUnit) -> bool:
        """Refresh. Whether a refresh has fallen due and was not issued yet."""
        return self.controller.refresh != "none" and self.due(unit.issued + 1) <= self.now

    def urgent_from(self, unit: RefreshUnit) -> int:
        """Postponing. The tick from which the oldest refresh not issued is urgent."""
        c, interval = self.controller, self.interval
        patience = 0
        if c.refresh_postpone:
            extra = 0
            if self.divided > 1:
                extra = interval if c.refresh_order == "idle_first" else interval // self.divided
            patience = max(0, c.refresh_postpone * interval - self.margin - extra)
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
        if self.managed and self._rfm_urgent(self._set_of(place)):
            return True
        if self.backs_off(unit) or self.maintains(unit):
            return True
        for other in self.units:  # one that waits for what these banks do holds them as well
            kinds = set(self.maintains(other))
            if kinds & self.of_channel or (other.place[0] == place[0] and kinds & self.of_pc):
                return True
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
        group = URGENT if self.urgent(unit) else POSTPONED
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

    def _refreshed(self, places: tuple[Place, ...]) -> None:
        """Refresh. One more is issued; a round ends when every set has had its own."""
        unit = self._unit(places[0])
        if self.managed and self.managed.RAAREF:
            of_rank = [place for place in self.banks if place[:2] == unit.place]
            whole = self.controller.refresh == "all_bank"
            self._lower(of_rank if whole else places, self.managed.RAAREF)
        which = (
            next(n for n in range(self.divided) if self._banks_of(unit, n)[0] == places[0])
            if (self.controller.refresh == "per_bank")
            else 0
        )
        for place in self._banks_of(unit, which):
            self._turn_of_rows(self.banks[place])
        unit.issued += 1
        unit.settled = None
        unit.done.add(which)
        if unit.issued % self.divided == 0:
            unit.done.clear()

    # --- Refresh management -------------------------------------------------------------

    def _set_of(self, place: Place) -> tuple[Place, ...]:
        """Refresh management. The banks that an RFM of this bank addresses."""
        of_rank = [other for other in self.banks if other[:2] == place[:2]]
        mine = next(each for each in self.sets if of_rank.index(place) in each)
        return tuple(of_rank[number] for number in mine)

    def _rfm_urgent(self, places: tuple[Place, ...]) -> bool:
        """Refresh management. Whether one of these banks is closed and may not be opened."""
        assert self.managed is not None
        banks = [self.banks[place] for place in places]
        return any(b.open_row is None and b.raa >= self.managed.RAAMMT for b in banks)

    def _lower(self, places: Iterable[Place], share: float) -> None:
        """Refresh management. What a refresh or an RFM takes off."""
        assert self.managed is not None
        for place in places:
            self.banks[place].raa = max(0, self.banks[place].raa - self.managed.lowers(share))

    def _rfms(self) -> Iterator[Candidate]:
        """Refresh management. What the RFM of each set needs next; after a refresh of its bank."""
        if self.managed is None:
            return
        for place in self.banks:
            places = self._set_of(place)
            count = max(self.banks[other].raa for other in places)
            waits = any(r.place in places for r in self.ports[place[0]].waiting)
            urgent = self._rfm_urgent(places)
            if place != places[0] or count < self.managed.RAAIMT or (waits and not urgent):
                continue
            group = URGENT if urgent else POSTPONED
            free = [p for p in places if not self._buffered_in(p) and self._pair_in(p) is None]
            still_open = [p for p in places if self.banks[p].open_row is not None]
            for bank in free:
                if bank in still_open:
                    yield Candidate(group, (self.flat[bank], 1), "PRE", (bank,))
            if len(free) == len(places) and not still_open:
                yield Candidate(group, (self.flat[places[0]], 1), "RFM", places)

    # --- Per-row activation counting ----------------------------------------------------

    def backs_off(self, unit: RefreshUnit) -> bool:
        """Per-row activation counting. Whether a rank is in its back-off."""
        return unit.back_off is not None and unit.back_off <= self.now

    def _closes(self, bank: Bank) -> None:
        """Per-row activation counting. A bank's open row closes: it is counted, and may alert."""
        row, bank.open_row = bank.open_row, None
        if self.alerts is None or row is None:
            return
        bank.counts[row] = bank.counts.get(row, 0) + 1
        unit = self._unit(bank.place)
        unit.quiet = max(0, unit.quiet - 1)
        of_rank = [other for place, other in self.banks.items() if place[:2] == unit.place]
        critical = any(n >= self.alerts.threshold for b in of_rank for n in b.counts.values())
        if critical and not unit.quiet and unit.back_off is None:
            unit.back_off = self.now + self.memory.ticks(self.alerts.react)
            unit.rfms = self.alerts.rfms

    def _mitigate(self, places: Iterable[Place]) -> None:
        """Per-row activation counting. An RFM looks after the row of most activations of each
        bank."""
        for bank in (self.banks[place] for place in places):
            if bank.counts:
                worst = min(bank.counts, key=lambda row: (-bank.counts[row], row))
                del bank.counts[worst]

    def _turn_of_rows(self, bank: Bank) -> None:
        """Per-row activation counting. A refresh resets the rows whose turn it is."""
        if self.alerts is None or self.alerts.reset != "refresh":
            return
        rows, each = self.memory.organisation.rows, self.alerts.refreshes
        turn = bank.refreshes % each
        for row in range(turn * rows // each, (turn + 1) * rows // each):
            bank.counts.pop(row, None)
        bank.refreshes += 1

    def _back_off(self) -> Iterator[Candidate]:
        """Per-row activation counting. What the back-off of each rank needs next."""
        for unit in self.units:
            if not self.backs_off(unit):
                continue
            places = [place for place in self.banks if place[:2] == unit.place]
            if not self._buffered_in(unit.place) and self._pair_in(unit.place) is None:
                is_open = any(self.banks[place].open_row is not None for place in places)
                command = "PREA" if is_open else "RFMAB"
                yield Candidate(URGENT, (self.flat[places[0]], 2), command, (unit.place,))

    def _recovered(self, unit: RefreshUnit) -> None:
        """Per-row activation counting. An RFMAB was issued."""
        assert self.alerts is not None
        places = [place for place in self.banks if place[:2] == unit.place]
        self._mitigate(places)
        if self.managed is not None:
            self._lower(places, self.managed.RAADEC)
        unit.rfms -= 1
        if not unit.rfms:
            unit.back_off, unit.quiet = None, self.alerts.delay

    # --- Periodic commands --------------------------------------------------------------

    def maintains(self, unit: RefreshUnit) -> list[str]:
        """Periodic commands. Those of a rank that are due, in the order of the description."""
        return [command for command, due in unit.periodic.items() if due <= self.now]

    def _periodic(self) -> Iterator[Candidate]:
        """Periodic commands. What each that is due needs next."""
        for unit in self.units:
            places = [place for place in self.banks if place[:2] == unit.place]
            for number, command in enumerate(self.every):
                if command not in self.maintains(unit):
                    continue
                offered = command
                if command in self.closing:
                    if self._buffered_in(unit.place) or self._pair_in(unit.place):
                        continue
                    if any(self.banks[place].open_row is not None for place in places):
                        offered = "PREA"
                order = (self.flat[places[0]], 3, number)
                yield Candidate(URGENT, order, offered, (unit.place,))
