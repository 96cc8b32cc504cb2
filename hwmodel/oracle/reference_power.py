"""Of the oracle: power-down and self-refresh (docs/rfm-power.md)."""

from __future__ import annotations

from hwmodel.oracle.reference_refresh import Refresh
from hwmodel.specs.commands import COLUMN_COMMANDS, LEVELS
from hwmodel.specs.memory_spec import MemorySpec, row_delay


class Power(Refresh):
    """A channel that powers down, or refreshes itself, when nothing waits."""

    def __init__(self, memory: MemorySpec, channel: int, channels: int) -> None:
        super().__init__(memory, channel, channels)
        self.over, self.served, self.told = 0, 0, 0
        self.asleep = {rank: [0, 0, 0, 0] for rank in self.ranks}
        self.light = self._after("power_down_after")
        self.deep = self._after("self_refresh_after")

    def _after(self, name: str) -> float:
        clock, value = self.memory.tick_clock, getattr(self.controller, name)
        return float("inf") if value is None else clock.ticks(clock.clocks_of_ns(value))

    def _nothing_waits(self) -> bool:
        return self.memory.sleeps and not any(port.waiting for port in self.ports)

    def _state(self, tick: int) -> int | None:
        """Power states. 0 in power-down, 2 in self-refresh, None awake: during the tick after
        `tick`."""
        if tick >= self.served + self.deep:
            return 2
        return 0 if tick >= self.over + self.light else None

    def _sleep_until(self, tick: int) -> None:
        """Power states. Count the ticks asleep before `tick`, one by one."""
        for at in range(self.told, tick):
            state = self._state(at)
            if state is not None:
                for rank, counts in self.asleep.items():
                    banks = (bank for place, bank in self.banks.items() if place[:2] == rank)
                    counts[state + any(bank.open_row is not None for bank in banks)] += 1
        self.told = max(self.told, tick)

    def _arrives(self, tick: int) -> None:
        """Power states. A request arrives at a channel that nothing waited for."""
        if not self._nothing_waits() or (state := self._state(tick - 1)) is None:
            return
        self._sleep_until(tick)
        states = self.memory.power_states
        assert states is not None
        leave = states.self_refresh_exit if state else states.power_down_exit
        self.over = self.served = tick + self.memory.ticks(leave)
        for name in self.memory.buses:
            for number in range(len(self.ports)):
                free = max(self.bus_free.get((name, number), 0), self.over)
                self.bus_free[name, number] = free

    def _stirs(self, command: str) -> None:
        """Power states. A command is issued now."""
        if not self.memory.sleeps:
            return
        if self._nothing_waits():
            if self._state(self.now - 1) == 2:
                self._sleep_until(self.now)
                return
            assert self.memory.power_states is not None
            self._sleep_until(
                self.now - self.memory.ticks(self.memory.power_states.power_down_exit)
            )
        lasts = self.lowered.slots[command]
        if command in ("REFPB", "REFAB", "RFM", "RFMAB"):
            lasts = row_delay(self.memory, command, self.memory.activate_command, LEVELS)
        if command in COLUMN_COMMANDS:
            lasts = max(b for _, b in self._beats(command)) - self.now
            self.served = max(self.served, self.now + lasts)
        self.over = max(self.over, self.now + lasts)
        self.told = max(self.told, self.now)
