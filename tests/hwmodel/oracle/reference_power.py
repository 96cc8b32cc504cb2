"""Of the oracle: power-down and self-refresh (rules.md)."""

from __future__ import annotations

from collections.abc import Sequence

from hwmodel.specs.commands import COLUMN_COMMANDS, LEVELS
from hwmodel.specs.memory_spec import MemorySpec, row_delay
from tests.hwmodel.oracle.reference_refresh import Refresh
from tests.hwmodel.oracle.reference_state import Issued


class Power(Refresh):
    """A channel that powers down, or refreshes itself, when nothing waits."""

    def __init__(
        self, memory: MemorySpec, channel: int, channels: int, passed: int = 0,
        owed: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(memory, channel, channels, passed, owed)
        self.over, self.served, self.told = 0, 0, 0
        self.log: list[Issued] = []
        self.asleep = {rank: [0] * 6 for rank in self.ranks}
        self.light = self._after("power_down_after")
        self.deep = self._after("self_refresh_after")
        self.deepest = self._after("deep_sleep_after")
        self.entered = False

    def _after(self, name: str) -> float:
        clock, value = self.memory.tick_clock, getattr(self.controller, name)
        return float("inf") if value is None else clock.ticks(clock.clocks_of_ns(value))

    def _time(self, name: str, command: str) -> int:
        """Power states. An exit or a stay, at least as long as the slots of its command."""
        value = getattr(self.memory.power_states, name)
        ticks = 0 if value is None else self.memory.ticks(value)
        return max(ticks, self.lowered.slots.get(command, 0))

    def _nothing_waits(self) -> bool:
        return self.memory.sleeps and not any(port.waiting for port in self.ports)

    @property
    def _refreshes_itself_from(self) -> float:
        """Power states. SRE comes when all that was issued is over."""
        begin = self.served + self.deep
        return max(begin, self.over) if "SRE" in self.memory.commands else begin

    @property
    def _down(self) -> tuple[float, float] | None:
        """Power states. From when to when the channel is in power-down if nothing comes."""
        begin, end = self.over + self.light, self._refreshes_itself_from
        if "SRE" in self.memory.commands:
            end -= self._time("power_down_exit", "PDX")
        lasts = self._time("power_down_stay", "PDE")
        return (begin, end) if begin + lasts <= end and begin < float("inf") else None

    def _state(self, tick: float) -> int | None:
        """Power states. 0 in power-down, 2 in self-refresh, 4 in deep sleep, None awake: during
        the tick after `tick`."""
        if tick >= self._refreshes_itself_from:
            return 4 if tick >= self.served + self.deepest else 2
        return 0 if self._down and self._down[0] <= tick < self._down[1] else None

    def _sleep_until(self, tick: int) -> None:
        """Power states. Count the ticks asleep before `tick`, one by one."""
        for at in range(self.told, tick):
            state = self._state(at)
            if state is not None:
                for rank, counts in self.asleep.items():
                    banks = (bank for place, bank in self.banks.items() if place[:2] == rank)
                    counts[state + any(bank.open_row is not None for bank in banks)] += 1
        self.told = max(self.told, tick)

    def _takes(self, command: str, tick: float) -> None:
        """Power states. An entry or an exit is logged where the memory has its command."""
        if command in self.memory.commands:
            self.log.append(Issued(int(tick), command, 0, 0, -1, -1, -1, -1, -1))

    def _goes_under(self) -> None:
        """Power states. What led to self-refresh."""
        if not self.entered:
            if self._down:
                self._takes("PDE", self._down[0])
                self._takes("PDX", self._down[1])
            self._takes("SRE", self._refreshes_itself_from)
        self.entered = True

    def _arrives(self, tick: int) -> None:
        """Power states. A request arrives at a channel that nothing waited for."""
        if not self._nothing_waits():
            return
        down, own = self._down, self._refreshes_itself_from
        if tick > own:
            self._goes_under()
            leave, takes = int(own) + self._time("self_refresh_stay", "SRE"), "self_refresh_exit"
            if tick > (deepest := max(own, self.served + self.deepest)):
                leave = max(leave, int(deepest) + self._time("deep_sleep_stay", "SRE"))
                takes = "deep_sleep_exit"
            leave = max(leave, tick)
            self._takes("SRX", leave)
            exit_ = self._time(takes, "SRX")
            self.entered = False
        elif down and tick > down[0]:
            begin = int(down[0]) + self._time("power_down_stay", "PDE")
            leave = int(min(max(tick, begin), down[1]))
            self._takes("PDE", down[0])
            self._takes("PDX", leave)
            exit_ = self._time("power_down_exit", "PDX")
        else:
            return
        self._sleep_until(leave)
        self.over = self.served = leave + exit_
        for name in self.memory.buses:
            for number in range(len(self.ports)):
                free = max(self.bus_free.get((name, number), 0), self.over)
                self.bus_free[name, number] = free

    def _stirs(self, command: str) -> None:
        """Power states. A command is issued now."""
        if not self.memory.sleeps:
            return
        if self._nothing_waits():
            if self.now > self._refreshes_itself_from:
                self._goes_under()
                self._sleep_until(self.now)
                return
            leave = self.now - self._time("power_down_exit", "PDX")
            down = self._down
            if down and leave >= down[0] + self._time("power_down_stay", "PDE"):
                self._sleep_until(leave)
                self._takes("PDE", down[0])
                self._takes("PDX", leave)
        lasts = self.lowered.slots[command]
        if command in ("REFPB", "REFAB", "RFM", "RFMAB", *self.every):
            opens = row_delay(self.memory, command, self.memory.activate_command, LEVELS)
            lasts = max(lasts, opens)
        if command in COLUMN_COMMANDS:
            lasts = max(b for _, b in self._beats(command)) - self.now
            self.served = max(self.served, self.now + lasts)
        self.over = max(self.over, self.now + lasts)
        self.told = max(self.told, self.now)
