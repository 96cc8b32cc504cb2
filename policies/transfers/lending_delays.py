"""What steps wait for where KV of their requests lies on other cards, or goes there
(`lender.py`)."""

from __future__ import annotations

import numpy as np

from policies.engines.scheduled_step import Step
from policies.engines.step_delays import StepDelays
from policies.memory.step_times import Efficiency, StepTimes
from policies.requests.requests import FloatArray
from policies.transfers.kv_link import Transfer
from policies.transfers.lent_rooms import Home, LentRooms


class LendingDelays(StepDelays):
    """Of the steps of a lender."""

    def __init__(self, home: Home, rooms: LentRooms) -> None:
        self._home, self._rooms = home, rooms
        self._leaving = 0

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray:  # fmt: skip
        """Seconds that each of the steps last scheduled waits: for lenders, for the link, and for
        attention that this card computes for others. Float64 (rounds,)."""
        home, rooms = self._home, self._rooms
        steps, work, traffic, chunks = home.steps, home.work, home.traffic, step.chunks
        busy = [home.of(lender).engine.running.size > 0 for lender in rooms.shares]
        asked = work.asks(list(rooms.shares.values()), busy, rooms.asking, steps, efficiency)
        lenders = [home.of(each).links.place for each in rooms.shares]
        traffic.lose()  # of steps that were never done
        late_s = 0.0
        if asked.link_s:
            late_s = traffic.late_s(traffic.question(lenders, asked, home.now_s))
        link_s = late_s + asked.link_s
        link_s += traffic.late_s(self._copy(0, home.now_s + link_s))
        pairs = sum(c.tokens * c.start + c.tokens * (c.tokens + 1) // 2 for c in chunks)
        stored = sum(chunk.start for chunk in chunks)
        chunks_s = work.attention_s(0, pairs, stored, steps, efficiency)
        local_s = times.attention_s + chunks_s
        waits: FloatArray = np.maximum(asked.path_s + late_s - local_s, 0.0) + asked.merge_s
        step_s = float(times.total_s[0] + waits[0])
        self._leaving, copied_s = self._copies(step_s, link_s)
        if self._leaving:
            longer = (link_s + copied_s) / step_s
            home.slower.append(max(longer - 1, 0.0))
        waits = np.maximum(waits, link_s + copied_s - times.total_s)
        self._written_s = work.written_s(steps, efficiency)
        waits = waits + (rooms.fresh + self._leaving) * self._written_s
        self._asked, self._pays_s = asked, home.owed_s / len(waits)
        waits = waits + self._pays_s
        steps_s = times.total_s + waits
        begins_s = home.now_s + np.cumsum(steps_s) - steps_s
        sent = []
        if asked.link_s:
            sent = [traffic.question(lenders, asked, at_s) for at_s in begins_s.tolist()]
        if tokens := rooms.fresh + self._leaving:
            sent.append(self._copy(tokens, home.now_s + late_s + asked.link_s))
        traffic.send(sent, len(steps_s), home.now_s)
        return waits

    def _copy(self, tokens: int, at_s: float) -> Transfer:
        """KV of so many tokens on its way to lenders."""
        loans = [loan for _, loan, sent in self._rooms.sent if sent]
        loans += [each for many in self._home.loans.values() for each in many if each.moving]
        keepers = dict.fromkeys(self._home.of(each.lender).links.place for each in loans)
        return Transfer(
            source=(self._home.links.place,), target=tuple(keepers), way="lending", felt=False,
            bytes=tokens * self._home.work.kv_token_bytes, put_s=at_s,
            alone_s=self._home.work.copy_s(tokens),
        )  # fmt: skip

    def _copies(self, step_s: float, link_s: float) -> tuple[int, float]:
        """(tokens copied beside a step, seconds of the link for them and for those computed): as
        many as it has time for, or as the options say."""
        fresh_s = self._home.work.copy_s(self._rooms.fresh)
        pending = self._home.loans.moving - self._home.landing
        if not pending:
            return 0, fresh_s
        most = self._home.step_tokens
        if most is None:
            most = int(max(step_s - link_s - fresh_s, 0.0) / self._home.work.token_s) or 1
        copied = min(most, pending)
        return copied, self._home.work.copy_s(copied + self._rooms.fresh)

    def done(self, times: StepTimes) -> None:
        rounds, asked, total = len(times.total_s), self._asked, self._home.totals
        self._home.traffic.done(rounds)  # of others, that were cut off, all is lost
        self._home.owed_s -= self._pays_s * rounds
        total["delay_s"] += self._pays_s * rounds
        if times.stall_s is not None:
            total["wait_s"] += float(times.stall_s.sum()) - self._pays_s * rounds
        for name in ("query_bytes", "partial_bytes", "merge_bytes", "read_bytes"):
            total[name] += getattr(asked, name) * rounds
        for lender, card_s in zip(self._rooms.shares, asked.card_s, strict=True):
            self._charge(lender, card_s * rounds)
        for _, loan, tokens in self._rooms.sent:
            self._charge(loan.lender, tokens * self._written_s)
        total["sent_tokens"] += self._rooms.fresh
        total["moved_tokens"] += self._leaving
        self._home.landing += self._leaving
        for request, loan, landed in self._home.loans.land(
            self._home.landing, self._home.blocks.block
        ):
            self._home.landing -= landed
            self._home.blocks.drop_first(request, landed)
            self._charge(loan.lender, landed * self._written_s)
            self._home.engine.changes += 1
        self._home.landing = min(self._home.landing, self._home.loans.moving)

    def _charge(self, lender: int, seconds: float) -> None:
        """A lender worked so long, for which steps of its own wait."""
        self._home.totals["card_s"] += seconds
        if (other := self._home.of(lender)).engine.running.size:
            other.owed_s += seconds
            self._home.totals["charged_s"] += seconds
