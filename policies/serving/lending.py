"""Infinite-LLM (arXiv 2401.02669v2): a request's KV on several cards of a cluster.

Each time a global manager looks at all cards. Debtors are those whose first request in line, or
whose running ones, lack memory; those with the smallest batch come first. Creditors are those with
free memory, the one with most first; debtors themselves only where nobody else has enough. The
longest request of a debtor goes first: others keep of it what the debtor lacks. The paper's
thresholds are not public.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.link import load_link
from policies.memory.distributed_attention import DistributedAttention
from policies.requests.percentiles import summary
from policies.serving.moving_options import LendingSpec
from policies.serving.node import Node
from policies.serving.node_controller import Controller, Premises
from policies.transfers.lender import Lender


class Holder(NamedTuple):
    """What a card says of itself, in tokens."""

    running: int
    """Requests in its batch."""
    lacking: int
    lendable: Sequence[tuple[int, int]]
    """(tokens, request) that others could keep, the longest first."""
    free: int
    """That it can lend."""
    whole: bool = True
    """Whether less than all that it lacks is of no use."""


class Grant(NamedTuple):
    debtor: int
    creditor: int
    request: int
    tokens: int


def lending_plan(cards: Sequence[Holder], block: int) -> list[Grant]:
    """Who keeps how much of which request for whom, in whole blocks."""
    free = {card: each.free for card, each in enumerate(cards)}
    debtors = [card for card, each in enumerate(cards) if each.lacking]
    plan: list[Grant] = []
    for debtor in sorted(debtors, key=lambda card: (cards[card].running, card)):
        left, grants, room = cards[debtor].lacking, [], dict(free)
        room.pop(debtor)
        for tokens, request in cards[debtor].lendable:
            while left > 0 and room:
                creditor = max(room, key=lambda c: _rank(c, cards[c], room[c], block))
                most = min(tokens, room[creditor]) // block * block
                given = min(-(-left // block) * block, most)
                if not given:
                    break
                grants.append(Grant(debtor, creditor, request, given))
                room[creditor] -= given
                tokens, left = tokens - given, left - given
        if left <= 0 or not cards[debtor].whole:
            plan, free = plan + grants, {**room, debtor: 0}
    return plan


def _rank(card: int, holder: Holder, room: int, block: int) -> tuple[bool, int, int]:
    """Creditors by how willing they are."""
    return (not holder.lacking and room >= block, room, -card)


class Lending(Controller):
    """See the module."""

    name = "lending"
    Options = LendingSpec
    equips = (Lender,)

    def __init__(self, options: LendingSpec, premises: Premises) -> None:
        """Raises DescriptionError where a card has no room beside what stays free."""
        super().__init__(options, premises)
        node, spec, model = premises.node, options, premises.model
        work = DistributedAttention(model, load_link(spec.link), spec.block, node.own[0].stages)
        self._engines = [replica.engine.connector(Lender) for replica in node.own]
        first = self._engines[0]
        slots, block = first.allocator.reach, first.block
        spare = -(-int(spec.spare * slots) // block) * block
        parts = first.allocator.layout.parts
        if slots <= spare + parts * block:
            raise DescriptionError(
                f"cluster.lending: {slots} token slots on a card leave no room beside {spare} that "
                "stay free; expected a smaller lending.spare"
            )
        self.reach = len(node.own) * (slots - spare - parts * block)
        for card, engine in enumerate(self._engines):
            engine.join(
                card, self._engines, work, spare, spec.step_tokens, spec.every_s, premises.network
            )

    def decide(self, at_s: float) -> None:
        up = set(self.node.manager.cards.tolist())
        for card, (replica, engine) in enumerate(zip(self.node.own, self._engines, strict=True)):
            if engine.home.blocked and card in up:
                replica.wait(max(at_s, replica.now_s))
            engine.plans(at_s, at_s + self._every_s)
        away = Holder(0, 0, (), 0)
        says = [self._says(each) if each.card in up else away for each in self._engines]
        plan = lending_plan(says, self._engines[0].block)
        for debtor, creditor, request, tokens in plan:
            self._engines[debtor].borrow(request, creditor, tokens)

    def lost(self, node: Node, card: int, at_s: float) -> None:
        if node is self.node:
            homes = [each.card for each in self._engines if each.keeps_at(card)]
            self.at(at_s, partial(self._replace, card), homes)

    def _replace(self, card: int, at_s: float) -> None:
        """The lender of a card that has failed is another, and empty."""
        lender, before = self.node.own[card].engine.connector(Lender), self._engines[card]
        if lender is not before:
            self._engines[card] = lender
            lender.succeed(before)
        for engine in self._engines:
            engine.fails(card)

    def _says(self, engine: Lender) -> Holder:
        line, lacking = bool(engine.engine.waiting), engine.lacking
        free = 0 if line and not lacking else engine.lends
        return Holder(engine.engine.running.size, lacking, engine.lendable, free, whole=line)

    def report(self) -> dict[str, Any]:
        names = (
            "loans", "lent_tokens", "sent_tokens", "moved_tokens", "query_bytes", "partial_bytes",
            "merge_bytes", "read_bytes", "card_s", "charged_s", "delay_s", "wait_s",
        )  # fmt: skip
        totals = {name: sum(each.home.totals[name] for each in self._engines) for name in names}
        slower = np.array([share for each in self._engines for share in each.home.slower])
        return {**totals, "steps_longer": summary(slower)}
