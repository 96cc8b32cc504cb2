"""Turns of sessions that pause with their memory on the device (`policies.transfers.pausing`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from policies.engines.connector import ConnectedEngine
from policies.engines.memory_beside import KeptTurns
from policies.transfers.pausing import Pauses, Way


class PausedTurns(KeptTurns):
    """Of one replica. `over`: those that are kept no longer, and what to do with them. `pauses`:
    who decides."""

    def __init__(self, pauses: Pauses) -> None:
        self.pauses = pauses
        self._kept: dict[int, int] = {}
        """Of sessions that pause, those whose last turn holds its memory."""
        self.over: dict[int, Way] = {}

    def connect(self, engine: ConnectedEngine) -> None:
        """Those of this engine."""
        requests, before = engine.requests, engine.requests.turn_before
        self._sessions = requests.session
        self._pause_s = np.full(len(requests), np.nan)
        self._pause_s[before[before >= 0]] = requests.think_s[before >= 0]

    def pause_s(self, request: int) -> float:
        """Seconds until the next turn behind this one; nan: there is none."""
        return float(self._pause_s[request])

    def keep(self, request: int) -> None:
        """It keeps its memory, until it is over or its session goes on."""
        self._kept[int(self._sessions[request])] = request

    def until(self, now_s: float) -> None:
        """What is over by now."""
        self.over |= self.pauses.over(now_s)

    def ended(self) -> dict[int, Way]:
        """Those that are kept no longer since the last call, and what to do with them."""
        over, self.over = self.over, {}
        for request in over:
            del self._kept[int(self._sessions[request])]
        return over

    def reset(self) -> None:
        """None is kept."""
        for session in list(self._kept):
            self._give_up(session)

    def first(self, line: Iterable[int]) -> int:
        """A turn whose session's memory is held for it (InferCept: by the arrival of the
        session)."""
        for place, request in enumerate(line if self._kept else ()):
            if int(self._sessions[request]) in self._kept:
                return place
        return -1

    def resumed(self, request: int) -> Sequence[int]:
        return self._give_up(int(self._sessions[request]))

    def yields(self) -> Sequence[int]:
        """The longest kept gives way."""
        return self._give_up(next(iter(self._kept), -1))

    def _give_up(self, session: int) -> Sequence[int]:
        """A session that was kept has its next turn, or has to give its memory up: its last
        turn."""
        request = self._kept.pop(session, -1)
        if request < 0:
            return ()
        self.pauses.ends(request)
        self.over.pop(request, None)
        return (request,)
