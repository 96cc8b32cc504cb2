"""KunServe (arXiv 2412.18169v4): where KV overflows, cards drop parameters that others have too.

Trigger: what waits needs more than what is free. Plan: merge the two smallest groups of cards until
enough is freed; a merge frees the weights once. A group is a pipeline, a stage a card; each keeps
layers that it has. Frames that dropped layers leave are mapped behind the KV
(`policies.allocators.kv_frames`): blocks of the first group keep their ids, those of the second
follow. Requests that run exchange the KV of the layers that moved, in turn on each side, and wait
for it: in chunks after activations, or whole. When a group's KV takes less than a share of what its
cards had before, what lies in frames of weights is copied to free blocks, beside the next step
(`reclaim_extra_blocks` of SJTU-IPADS/kunserve), and the layers come back over the link, while the
group serves. Then requests go to a card each (in that code they stay in the pipeline to their end).
Blocks in frames that the card had before keep them; others are copied within its memory, before its
first step, at the rate of copies there (assumed). Layers that it lacked come over the link.

Replicas in stages merge stage by stage: a group of two in two stages is a pipeline of four, in
which each card keeps half of its own stage's layers, beside its like of the other replica. All
cards of a replica send and take at the same time, each over a link of its own.

What the tiers of cards hold is of the layers that they have, so that it is given up with them
(assumed); a group stores anew what it computes, as do its cards when they are alone again.

Where a card fails, the others of its group lack its layers: the group ends, all of its requests are
computed again, and each of the others serves when its own layers are back over the link, from a
card that has them or the host (assumed). KV that is on its way from a card which fails is lost.
With prefill and decode apart cards that decode drop; KV which is on its way to them begins anew.

Left out: a request in its prefill begins again; what free blocks held is lost; room for KV that
leaves a card while other KV comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from hwmodel.specs.link import load_link
from policies.allocators.capabilities import MovesBlocks
from policies.engines.memory_beside import NONE
from policies.memory.pipeline import Exchange, PipelineSpec
from policies.serving.drop_frames import DropFrames, Kept
from policies.serving.drop_groups import (
    Group,
    drop_plan,
    exchanged,
    joined,
    lacking_bytes,
    most_stages,
    moved_layers,
    pipeline_order,
)
from policies.serving.moving_options import DroppingSpec
from policies.serving.network import places
from policies.serving.node import Node
from policies.serving.node_controller import Act, Controller, Premises
from policies.serving.replica import Replica
from policies.transfers.guests import Guests, require_blocks
from policies.transfers.kv_link import Transfer


class Dropping(Controller):
    """See the module."""

    name = "dropping"
    Options = DroppingSpec
    equips = (Guests,)
    regroups = True

    def __init__(self, options: DroppingSpec, premises: Premises) -> None:
        super().__init__(options, premises)
        node, spec = premises.node, options
        self._spec, self._model, self._grouped = spec, premises.model, premises.grouped
        self._link, self._network = load_link(spec.link), premises.network
        self._stages = node.own[0].stages
        self._most = most_stages(self._model) // self._stages
        self._lacking_bytes = cache(partial(lacking_bytes, self._model, stages=self._stages))
        """Of a card of a group of so many."""
        self._groups: list[Group] = [(card,) for card in range(len(node.own))]
        self._made: dict[Group, Replica] = {}
        require_blocks(node.own[0].engine.allocator)
        self._layout = node.own[0].engine.allocator.layout
        size = spec.frame or 0
        self.frames = DropFrames(
            premises.regions() if size else (), size, self._model, self._layout, len(node.own),
            self._stages,
        )  # fmt: skip
        self._pulling: dict[Group, Transfer] = {}
        """What brings the layers of a group back."""
        self._exchanges: list[tuple[float, int]] = []
        self._moving: list[Transfer] = []
        """KV, and layers of cards that are alone again, on their way; `what`: the cards that send
        it, and the one that takes it."""
        self._pipes: dict[Group, list[list[Transfer]]] = {}
        """What goes over each link of a group's pipeline, beside activations."""
        self._drops = self._restores = self._again = self._broken = 0
        self._dropped = self._looks = 0
        self._vacated = self._moved = 0

    def engine(self, card: int) -> Guests:
        """That which serves a card now."""
        return self.replica(card).engine.connector(Guests)

    def _blocks(self, card: int) -> MovesBlocks:
        """Its memory."""
        return require_blocks(self.engine(card).allocator)

    def plan(self, at_s: float) -> list[Act]:
        self._looks += 1
        self._dropped += len(self._groups) < len(self.node.own)
        model, taken = self._model, {g: self.taken(g[0], at_s) for g in self._groups}
        if wanted := self._lacking(taken) * model.kv_token_bytes:
            merges = drop_plan(self._up, model.weight_bytes, wanted, self._most)
            concerned = {card for group in self._pulling for card in group}
            concerned |= {card for pair in merges for group in pair for card in group}
            return [(sorted(concerned), partial(self._drop, merges))] if concerned else []
        return [
            (group, partial(self._pull, group)) for group in self._groups
            if len(group) > 1 and group not in self._pulling
            and self._may_restore(group, taken[group])
        ]  # fmt: skip

    @property
    def _up(self) -> list[Group]:
        """Groups that serve; a card that has failed is one by itself."""
        cards = set(self.node.manager.cards.tolist())
        return [group for group in self._groups if group[0] in cards]

    def _lacking(self, taken: Mapping[Group, int]) -> int:
        """Tokens that wait and have no room, where groups have taken so many slots more."""
        lacking = 0
        for group in self._up:
            engine = self.engine(group[0])
            free = engine.allocator.free_slots - taken[group]
            lacking += max(engine.demand_tokens - free, 0)
        return lacking

    def _drop(self, merges: list[tuple[Group, Group]], at_s: float) -> None:
        for group in self._pulling:  # a new burst: what was vacated is of use again
            self._blocks(group[0]).bar(NONE)
        self._network.drop(self._pulling.values())
        self._pulling.clear()
        for pair in merges:
            self._merge(*pair, at_s)

    def _pull(self, group: Group, at_s: float) -> None:
        """The layers of a group come back, if their frames can be emptied."""
        if self._vacate(group):
            weights = self._weights(group, group, group, self._pulled)
            self._pulling[group] = weights
            self._network.put(weights, at_s)

    def _weights(
        self, group: Group, source: Group, cards: Group, landed: Callable[[Transfer, float], None]
    ) -> Transfer:
        """What these cards of a group lack, each over its own link; source: cards that send it."""
        return Transfer(
            source=places(self.node.name, source), target=places(self.node.name, cards),
            bytes=self._lacking_bytes(len(group)),
            alone_s=self.pull_s(len(group)), way="weights", on_landed=landed, felt=False,
            what=((), cards[0]),
        )  # fmt: skip

    def _pulled(self, weights: Transfer, at_s: float) -> None:
        group = next((each for each, its in self._pulling.items() if its is weights), None)
        if group is not None:
            self.at(at_s, partial(self._restore, group, weights))

    def _vacate(self, group: Group) -> bool:
        """Whether no block is left in frames that weights had, from the next step on."""
        allocator, blocks = self.engine(group[0]).allocator, self._blocks(group[0])
        if len(strange := self.frames.strange(group, allocator.slots, blocks)):
            if (tokens := blocks.bar(strange)) is None:
                return False
            self._vacated += tokens * self._model.kv_token_bytes
        return True

    def pull_s(self, cards: int) -> float:
        """Seconds until the card that lacks most has its weights back."""
        return self._link.seconds(self._lacking_bytes(cards))

    def _moves(self, before: Group, after: Group) -> list[int]:
        """Layers that move over the busiest link as one group becomes another."""
        ends = (pipeline_order(group, self._stages) for group in (before, after))
        return moved_layers(self._model.layers, *ends)

    def _may_restore(self, group: Group, taken: int = 0) -> bool:
        """Not while KV is on its way to it (assumed): it would go back, and a line of KV that
        nobody waits for any more could grow for ever."""
        if any(each.what[1] == group[0] for each in self._moving):
            return False
        engine = self.engine(group[0])
        before = sum(self.node.own[card].engine.allocator.slots for card in group)
        used = engine.allocator.reserved_total + taken + engine.demand_tokens
        return used < self._spec.restore_below * before and self._fits_apart(group)

    def _fits_apart(self, group: Group) -> bool:
        """Whether each card of a group has room by itself for its requests and a block more of each
        (assumed): else the cards would drop again before they have served anything."""
        guests, card_of = self.engine(group[0]), self.node.manager.card_of
        allocator, waiting = guests.allocator, guests.engine.waiting
        wanted = dict.fromkeys(group, 0)
        for request in (*guests.running.tolist(), *guests.landing.requests, *waiting):
            slots = int(allocator.reserved[request])
            if not slots:
                slots = int(allocator.layout.slots_of(guests.engine.total(request)))
            wanted[int(card_of[request])] += slots + guests.block
        return all(self.node.own[c].engine.allocator.slots >= wanted[c] for c in group)

    def _merge(self, first: Group, second: Group, at_s: float) -> None:
        cards, parts = joined(first, second), (first, second)
        placed = self.frames.place(first, cards)
        if cards not in self._made:
            pipeline = PipelineSpec(link=self._spec.link, balance="cost")
            self._made[cards] = self.node.know(
                self._grouped(cards, len(cards) * self._stages, placed, pipeline)
            )
        group, engine = self._made[cards], self.engine(first[0])
        behind, unaligned = divmod(engine.allocator.slots, engine.block)
        now_s = max(at_s, *(self.replica(part[0]).now_s for part in parts))
        now_s += self._spec.map_time / 1e9
        self._groups = [each for each in self._groups if each not in parts] + [cards]
        for part in parts:
            self._pipes.pop(part, None)
        olds = [self.replica(part[0]) for part in parts]
        group.now_s = now_s
        self.simulation.use(self.node, group, cards)
        sent: dict[int, list[Transfer]] = {}
        shifts = (0, behind) if placed is not None and not unaligned else (None, None)
        most = group.engine.allocator.slots // engine.block
        for part, old, shift in zip(parts, olds, shifts, strict=True):
            layers = {cards[0]: self._moves(part, cards)}
            found, line = old.engine.connector(Guests).clear()
            old.retire()
            old.hands_over(now_s, line)
            kept = [(*each[:3], NONE if shift is None else each[3] + shift) for each in found]
            # those without a place of their own take what is left
            kept.sort(key=lambda each: each[3].max(initial=0) >= most)
            self.frames.shifted(part, shift)
            other = second if part is first else first
            moves = self._hand_over(
                old, kept, line, lambda _: cards[0], layers, {cards[0]: now_s},
                {cards[0]: (part, other)}, cards,
            )  # fmt: skip
            sent |= dict.fromkeys(part, moves)
        order = pipeline_order(cards, self._stages)[:-1]
        self._pipes[cards] = [sent[card] for card, _ in order]
        self._tell_pipeline(cards)
        self._drops += 1

    def _tell_pipeline(self, group: Group) -> None:
        """When the KV on each link of a group is over, as far as is known now."""
        pipeline = self._made[group].pipeline
        assert pipeline is not None
        ends_s = self._network.link.ends_s
        ends = [ends_s(link) for link in self._pipes[group]]
        pipeline.exchange = Exchange(ends, self._spec.exchange == "chunks")

    def _restore(self, group: Group, weights: Transfer, at_s: float) -> None:
        if self._pulling.get(group) is not weights:  # a new burst came in between
            return
        del self._pulling[group]
        old, engine = self.replica(group[0]), self.engine(group[0])
        self._blocks(group[0]).bar(NONE)
        if not self._may_restore(group):
            return
        assert old.pipeline is not None
        now_s = max(at_s, old.now_s) + self._spec.map_time / 1e9
        rate = old.pipeline.bandwidth * old.memory.efficiency.migration
        self._groups = [each for each in self._groups if each != group]
        self._groups += [(card,) for card in group]
        late = sum(copy.tokens for copy in self.engine(group[0]).copied())  # no step came since
        card_of, (found, line), kept = self.node.manager.card_of, engine.clear(), dict[int, Kept]()
        old.retire()
        old.hands_over(now_s, line)
        begins: dict[int, float] = {}
        for card in group:
            mine = [each for each in found if card_of[each[0]] == card]
            here, moved = self.frames.settle(card, mine, self.node.own[card].engine.allocator)
            kept |= {each[0]: each for each in here}
            self._moved += moved
            late_bytes = late * self._model.kv_token_bytes // len(group)
            begins[card] = now_s + 2 * (late_bytes + moved) / (self._stages * rate)
            self.node.own[card].now_s = begins[card]
            self.simulation.use(self.node, self.node.own[card], (card,))
            self.frames.alone(card)
        line += [each[0] for each in found if each[0] not in kept]
        self._again += len(found) - len(kept)
        layers = {card: self._moves(group, (card,)) for card in group}
        there = [kept[each[0]] for each in found if each[0] in kept]
        before = {card: (group[at - 1],) for at, card in enumerate(group)}
        self._hand_over(
            old, there, line, lambda request: int(card_of[request]), layers, begins,
            {card: (before[card], (card,)) for card in group}, group,
        )  # fmt: skip
        self._pipes.pop(group, None)
        self._restores += 1

    def lost(self, node: Node, card: int, at_s: float) -> None:
        if node is not self.node:
            return
        group = next(each for each in self._groups if card in each)
        gone = [each for each in self._moving if card in (*each.what[0], each.what[1])]
        self._network.drop(gone)
        self._moving = [each for each in self._moving if not each.over]
        if len(group) > 1:
            self._break(group, card, at_s)
        for sent in gone:
            target, request = sent.what[1], sent.request
            taking = self.engine(target)
            if target != card and taking.landing.awaited.get(request) is sent:
                taking.landing.over(request, at_s, runs=False)
                self.simulation.move(node, request, card)
                self.replica(card).arrive([request], [at_s])
                self.at(at_s, partial(self._land, target), (target,))

    def _break(self, group: Group, lost: int, at_s: float) -> None:
        """A card of a group is lost: its requests begin again, as those of that card."""
        self._network.drop([*filter(None, [self._pulling.pop(group, None)])])
        self._pipes.pop(group, None)
        self._blocks(lost).bar(NONE)
        old = self.replica(lost)
        requests = old.drain(at_s)
        old.retire()
        self._groups = [each for each in self._groups if each != group]
        self._groups += [(card,) for card in group]
        for card in group:
            own = self.node.own[card]
            own.now_s = at_s
            self.simulation.use(self.node, own, (card,))
            if card != lost:
                weights = self._weights(group, (), (card,), self._own_back)
                self._moving.append(weights)
                self._network.put(weights, at_s)
                own.wait(self._network.link.end_s(weights))
            self.frames.alone(card)
        for request in requests:
            self.simulation.move(self.node, request, lost)
        self.replica(lost).arrive(requests, [at_s] * len(requests))
        self._broken += 1

    def _own_back(self, weights: Transfer, at_s: float) -> None:
        """A card that a group has left has its layers, for which it has waited."""
        self._moving.remove(weights)

    def _land(self, card: int, at_s: float) -> None:
        self.engine(card).landing.land(at_s)

    def _landed(self, sent: Transfer, at_s: float) -> None:
        """The KV of a request is there."""
        self._moving.remove(sent)
        for group in self._pipes:
            self._tell_pipeline(group)
        card = sent.what[1]
        taking = self.engine(card)
        if taking.landing.awaited.get(sent.request) is sent:
            taking.landing.over(sent.request, at_s, runs=True)
            self.simulation.wake(self.node.unit_of[card])

    def _hand_over(
        self, old: Replica, kept: list[Kept], line: list[int], card_of: Callable[[int], int],
        layers_of: dict[int, list[int]], begins: dict[int, float],
        links: Mapping[int, tuple[Group, Group]], senders: Group,
    ) -> list[Transfer]:  # fmt: skip
        """Requests of a replica go to cards, with their KV over each one's link in turn, or begin
        again; what brings each. begins: from when on a card takes KV. links: of a card, those
        whose links it takes, out and in. senders: all that something comes from."""
        moves: list[Transfer] = []
        rate = max(path.bandwidth for path in self._link.paths)
        for request, tokens, earliest_s, blocks in kept:
            card = card_of(request)
            engine, layers = self.engine(card), layers_of[card]
            if not engine.landing.host(request, tokens, blocks):
                line.append(request)
                self._again += 1
                continue
            pipeline = self.replica(card).pipeline
            share = pipeline.link_share if pipeline and self._spec.exchange == "chunks" else 0.0
            seconds, size = exchanged(
                self._link, self._model, tokens, layers, self._spec.block,
                self._layout.layer_index_bytes,
            )  # fmt: skip
            out, into = (places(self.node.name, each) for each in links[card])
            sent = Transfer(
                source=out, target=into, request=request, tokens=(0, tokens), bytes=size,
                alone_s=seconds / (1 - share), until_s=earliest_s, way="dropping",
                on_landed=self._landed, what=(senders, card),
                written=2 * rate,  # what is sent is read, what comes is written
            )  # fmt: skip
            moves.append(sent)
            engine.landing.awaits(request, sent)
            self._network.put(sent, begins[card])
            self._exchanges.append((sent.alone_s, size))
        self._moving += moves
        for request in line:
            self.engine(card_of(request)).queue(request)
        for at_s, request in old.depart():
            self.replica(card_of(request)).arrive([request], [at_s])
        return moves

    def report(self) -> dict[str, Any]:
        moved = np.array(self._exchanges or [(0.0, 0)])
        pipes = [each.pipeline for each in self._made.values() if each.pipeline is not None]
        busy_s, seconds = (sum(getattr(p, key) for p in pipes) for key in ("busy_s", "seconds"))
        stayed = self.frames.stayed
        longer = [share for pipe in pipes for share in pipe.longer]
        return {
            "drops": self._drops,
            "freed_bytes": self._drops * self._model.weight_bytes,
            "restores": self._restores,
            "broken": self._broken,
            "dropped_share": self._dropped / max(self._looks, 1),
            "exchanges": len(self._exchanges),
            "exchanged_bytes": int(moved[:, 1].sum()),
            "exchange_s": float(moved[:, 0].sum()),
            "steps_beside": len(longer),
            "steps_longer_share": sum(longer) / max(len(longer), 1),
            "vacated_bytes": self._vacated,
            "moved_bytes": self._moved,
            "stayed_share": stayed / max(stayed + self._moved, 1),
            "begun_again": self._again,
            "idle_share": 1 - busy_s / seconds if seconds else 0.0,
        }
