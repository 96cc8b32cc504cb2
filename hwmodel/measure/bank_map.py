"""Which banks of which channels were opened how often, and how often for want of another row: what
a replay's commands come to, channel by bank."""

from __future__ import annotations

import numpy as np

from hwmodel.kernel.limits import Int
from hwmodel.oracle.command_log import CODE, CommandLog
from hwmodel.specs.memory_spec import MemorySpec

_OPENS = [CODE["ACT"], CODE["ACT2"]]
_CLOSES = [CODE["PRE"], CODE["PREA"]]
_RESTS = [CODE["REFAB"], CODE["REFPB"]]


class BankMap:
    """Takes the commands of a run (a `LogSink`). `activations` and `conflicts`: int64 (channels,
    banks), banks in the order of rank, stack, bank group and bank, pseudo-channel outermost. An
    activation is a conflict where the bank was closed by a PRE since its last one, and not
    refreshed meanwhile: another row was open when the request came."""

    def __init__(self, memory: MemorySpec, channels: int) -> None:
        o = memory.organisation
        self._sizes = o.pseudochannels, o.ranks, o.stacks, o.bankgroups, o.banks_per_group
        banks = int(np.prod(self._sizes))
        self.activations = np.zeros((channels, banks), np.int64)
        self.conflicts = np.zeros((channels, banks), np.int64)
        self._closed = np.zeros((channels, banks), np.bool_)

    def __call__(self, channel: int, log: CommandLog) -> None:
        """The next commands of a channel."""
        levels = [log.pseudochannel, log.rank, log.stack, log.bankgroup, log.bank]
        bank: Int = np.zeros(len(log.tick), np.int64)
        for size, each in zip(self._sizes, levels, strict=True):
            bank = bank * size + np.maximum(each, 0)
        here = np.isin(log.command, [*_OPENS, *_CLOSES, *_RESTS])
        closed = self._closed[channel]
        for at in np.flatnonzero(here).tolist():
            command, which = int(log.command[at]), int(bank[at])
            if command in _OPENS:
                self.activations[channel, which] += 1
                self.conflicts[channel, which] += closed[which]
                closed[which] = False
            elif log.bank[at] >= 0:
                closed[which] = command in _CLOSES
            else:  # of a rank
                closed[:] = closed & (command in _CLOSES)
