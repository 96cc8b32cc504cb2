"""A tiered KV cache, or of hidden states (`policies.transfers.hidden_states`): blocks of prompts
go to the host, and to a drive, and come back when a request begins with them and the device has
lost them.

The reference design is vLLM's `OffloadingConnector`. Full blocks of a prompt are stored when its
prefill is done, those that the tier has not; a request that is admitted finds what the device has,
then what the host has behind it, in whole blocks of the tier. What is on its way to one request
another waits for. Transfers go over the link from the real block ids of both ends
(`policies.transfers.transfer`), one at a time in each direction
(`policies.transfers.kv_link`); stores of a request that has ended, whose memory waits for them,
go first. Deviations: vLLM stores each chunk of a prefill as it is computed; a block that is being
stored does not count as found here.

Contention for the card's DRAM is a share: while so many bytes a second move over the link, the part
of a step that DRAM bounds has as much less bandwidth, times what a byte costs where that is
simulated (`policies.memory.contention`). The host's DRAM limits the rate of both
directions together. A drive takes nothing from the card.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Literal

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Demand
from policies.allocators.capabilities import Caches
from policies.allocators.radix_tree import text_of
from policies.engines.connector import ConnectedEngine, Ending, Match
from policies.engines.scheduled_step import Step
from policies.transfers.eviction import BlockKey
from policies.transfers.kv_connector import KvConnector, Site
from policies.transfers.kv_link import IN, OUT
from policies.transfers.paused_turns import PausedTurns
from policies.transfers.pausing import BesideBatch, Pauses, Way, step_cost
from policies.transfers.restoring import recompute
from policies.transfers.tier_delays import TierDelays
from policies.transfers.tier_links import TierLinks
from policies.transfers.tier_options import TiersSpec
from policies.transfers.tier_store import TierPlan, TierStore


class Tiers(KvConnector):
    """The tiers of one replica; see the module. Cards share the host's DRAM and the drive. A
    transfer is of one card, but over the drive's link of all."""

    name = "tiers"
    Options = TiersSpec
    holds_states = True
    outlives = True

    def __init__(self, options: TiersSpec, site: Site) -> None:
        """Raises DescriptionError for turns that are to be dropped by a policy which forgets
        nothing, and as `TierLinks` and `TierStore`."""
        super().__init__(options, site)
        spec, device, model, allocator = options, site.device, site.model, site.allocator
        steps, cards = site.steps, site.cards
        policy = allocator.options.name
        caching = allocator.able(Caches)
        forgets = caching is not None and caching.discards
        if spec.pauses and spec.pauses.policy in ("drop", "least") and not forgets:
            raise DescriptionError(
                f"serving.tiers.pauses: policy {policy} forgets nothing; expected keep or swap"
            )
        self._spec, self._steps = spec, steps
        self.links = TierLinks(
            spec, device, model, allocator, steps, cards, site.stages, site.links.places
        )
        self.store = TierStore(spec, self.links, cards, site.links)
        self.block = self.links.block
        self._keys: dict[int, list[BlockKey]] = {}
        self._from_elsewhere: set[int] = set()
        """Requests whose KV came from another card, so that nobody here has had hidden states."""
        self._declined: dict[int, int] = {}
        """Tokens of requests that are sooner recomputed."""
        self.delays: TierDelays = TierDelays(
            spec, steps, model.layers, self.store, self.links.hidden is not None
        )
        self._leaving: dict[int, None] = {}
        """Requests that ended and hold memory for what is being stored."""
        self.turns: PausedTurns | None = None
        if spec.pauses is not None:
            self.turns = PausedTurns(Pauses(
                spec.pauses.policy, spec.pauses.known,
                lambda batch: step_cost(device, model, steps, self.delays.efficiency, batch),
            ))  # fmt: skip
        self.mark()

    # of time

    def clock(self, now_s: float, steps: bool = False) -> None:
        """See `Connector.clock`. steps: whether steps ran until then."""
        store = self.store
        while (due_s := self._event_s if steps else self._idle_event_s) <= now_s:
            before_s = store.queue.now_s
            store.until(due_s)
            if self.turns is not None:
                self.turns.until(due_s)
            if not steps:
                store.projections.idle(due_s - before_s)
                store.project()
        before_s = store.queue.now_s
        for queue in (store.queue, store.drive_queue):
            queue.until(now_s)
        if not steps:
            store.projections.idle(now_s - before_s)

    @property
    def due_s(self) -> float:
        """When the next transfer arrives or is projected, the host fails, or a pause is too
        long; inf: never. The past, where the engine has not asked for what has happened."""
        store = self.store
        over = self.turns is not None and self.turns.over
        asked = not (store.loaded or store.failed or store.stored or over)
        return self._idle_event_s if asked else -math.inf

    @property
    def _idle_event_s(self) -> float:
        """As `due_s` while no step runs."""
        return min(self._event_s, self.store.projections.due_s)

    @property
    def _event_s(self) -> float:
        due_s = self.store.due_s
        return due_s if self.turns is None else min(due_s, self.turns.pauses.due_s)

    def passed(self, end_s: float) -> None:
        self.clock(end_s, steps=True)
        self.store.projections.stepped()
        self.store.project()

    def mark(self) -> None:
        self.store.mark()
        self._done_before_s = self.store.projections.done_s

    def figures(self) -> dict[str, Any]:
        """See `TierFigures.figures`; blocks that the host gave up; of HCache the layers by hidden
        states, how the rest, and the seconds that the cores took."""
        store = self.store
        found = {**store.counted.figures(), "evicted_blocks": store.host.evicted}
        if self.links.hidden is not None:
            layers, rest = self.links.hidden.split[-2:]
            done_s = store.projections.done_s - self._done_before_s
            found["hcache"] = {"layers": layers, "rest": rest, "compute_s": done_s}
        if self.turns is not None:
            found["pauses"] = self.turns.pauses.ways
        return {"tiers": found}

    # as a connector of an engine: requests in line

    def connect(self, engine: ConnectedEngine) -> None:
        super().connect(engine)
        if self.turns is not None:
            self.turns.connect(engine)

    def passes_over(self, request: int, demand: Demand, total: int) -> bool:
        """A request whose text is on its way to another, or whose session's last turn is still
        being stored."""
        sessions = self.engine.requests.session
        own = sessions[request]
        if own >= 0 and any(sessions[other] == own for other in self._leaving):
            return True
        coming = self.store.coming
        if not coming:
            return False
        keys = self.store.keys_of(self._keys_of(request, demand, total))
        return any(key in coming for key in keys)

    def matched(self, request: int, demand: Demand, cached: int, total: int) -> TierPlan | None:
        """What to load behind what the device has, in whole blocks of the tier."""
        first, block = cached // self.block, self.block
        keys = self._keys_of(request, demand, total - 1)
        end = self.store.matched(keys, first) * block
        if end - cached < block:
            return None
        parts = self.store.parts(keys, first, end // block)
        cold = self.store.cold(parts)
        plan = TierPlan(cached, end, not self._spec.layerwise, False, parts, cold)
        self._declined.pop(request, None)
        if cold and self.store.host.victims(cold, plan.keys) is None:
            return None
        load = self._spec.load
        if load == "never" or (load == "sooner" and not self._sooner(plan)):
            self._declined[request] = end - cached
            return None
        return plan

    def allocated(
        self, request: int, demand: Demand, cached: int, total: int, match: Match | None
    ) -> None:  # fmt: skip
        if isinstance(match, TierPlan):
            hidden = self.links.hidden
            work = None
            if hidden is not None:
                work = hidden.work(match.start, match.end, self.delays.efficiency)
            self.store.load(request, match, work)
        counted = self.store.counted
        counted.recomputed += self._declined.pop(request, 0)
        counted.tokens["asked"] += total
        counted.tokens["device"] += cached
        self.store.accessed(self.store.keys_of(self._keys_of(request, demand, total)))

    # requests that run

    def rounds(self, step: Step, limit: int) -> int:
        if self.delays.restoring:
            return 1
        if (every := self._saves_every) and len(step.decode):
            stored = self.engine.allocator.stored[step.decode]
            limit = min(limit, 1 + int((-stored % every).min()))
        return limit

    def stepped(self, step: Step, prefilled: Sequence[int]) -> None:
        """Full blocks of a prompt are stored when its prefill is done; hidden states of outputs
        while a request decodes."""
        left, prompt, demand = self.engine.left, self.engine.prompt, self.engine.demand
        for request in prefilled:
            if left[request]:
                self._store(request, demand(request), int(prompt[request]))
        if every := self._saves_every:
            stored = self.engine.allocator.stored[step.decode]
            whole = (stored > 0) & (stored % every == 0)
            for request, tokens in zip(
                step.decode[whole].tolist(), stored[whole].tolist(), strict=True
            ):
                if left[request]:
                    self._store(request, demand(request), tokens)

    def moves(self, request: int) -> bool:
        return self.store.moves(request)

    def joined(self, request: int) -> None:
        if self.links.hidden is not None:
            self._from_elsewhere.add(request)

    def preempted(self, request: int) -> None:
        self.store.drop(request)

    # requests that have ended

    def finished(self, request: int, demand: Demand, tokens: int) -> Ending:
        return self._end(request, tokens, self._way(request, demand, tokens))

    def released(self) -> Sequence[tuple[int, Ending]]:
        """Those that are kept for no longer, and those whose stores are done."""
        found: list[tuple[int, Ending]] = []
        over = {} if self.turns is None else self.turns.ended()
        for request, way in over.items():
            ending = self._end(request, self.engine.known(request), way)
            if ending is not Ending.HELD:
                found.append((request, ending))
        stored, self.store.stored = self.store.stored, []
        for request in sorted(self._leaving.keys() & set(stored)):
            del self._leaving[request]
            found.append((request, Ending.FREE))
        return found

    def forgotten(self, request: int) -> None:
        self._keys.pop(request, None)
        self._from_elsewhere.discard(request)

    # what is on its way

    def arrived(self) -> Sequence[int]:
        found, self.store.loaded = self.store.loaded, []
        return found

    def lost(self) -> Sequence[int]:
        """Others wait for what they would have found of it until it is computed."""
        found, self.store.failed = self.store.failed, []
        return found

    def computed(self, request: int) -> None:
        self.store.computed(request)

    def host_fails(self, at_s: float) -> None:
        self.store.fails(at_s)

    def retire(self) -> None:
        self.reset()
        self.store.empty()

    def reset(self) -> None:
        self.store.lose()
        if self.turns is not None:
            self.turns.reset()
        self._leaving.clear()

    # its own

    @property
    def _saves_every(self) -> int:
        """Tokens that a request computes until they leave; 0: all when it ends."""
        prompts = self.links.hidden is None or self._spec.host.offload_prompt_only
        return 0 if prompts else self.block

    def _keys_of(self, request: int, demand: Demand, tokens: int) -> list[BlockKey]:
        """Keys of the full blocks of the first `tokens` of a request, in the first group of
        layers."""
        count = tokens // self.block
        known = self._keys.get(request, [])
        if len(known) < count:
            text = text_of(request, demand)
            lasts = range(self.block - 1, count * self.block, self.block)
            ends = (text[bisect_right(text, at, key=itemgetter(1))][0] for at in lasts)
            known = self._keys[request] = list(zip(ends, range(count), strict=True))
        return known[:count]

    def _sooner(self, plan: TierPlan) -> bool:
        """Whether a load ends before a lone prefill of the same tokens would."""
        load_s = self.store.load_s(plan)
        if self.links.hidden is not None:
            work = self.links.hidden.work(plan.start, plan.end, self.delays.efficiency)
            load_s = max(load_s, self.store.projections.wait_s + sum(work))
        return load_s < recompute(self._steps, plan.end, self.delays.efficiency, plan.start).total_s

    def _store(self, request: int, demand: Demand, tokens: int, ended: bool = False) -> bool:
        """Store what the host has not of the first `tokens` of a resident request; whether it has
        to keep its memory for this, or an earlier store. With pauses only for a swap: whole, when
        it has ended."""
        if (self.turns is not None and not ended) or request in self._from_elsewhere:
            return False
        if not self.engine.whole(request):
            return False
        if self._spec.host.offload_prompt_only and self.turns is None:
            tokens = min(tokens, demand.prompt)
        has = int(self.engine.allocator.stored[request])
        return self.store.store(request, self._keys_of(request, demand, tokens), has, ended)

    def _way(self, request: int, demand: Demand, tokens: int) -> Way | Literal["end"] | None:
        """What to do with what an ended request has stored while its session pauses; None: as
        without pauses."""
        if self.turns is None:
            return None
        pause_s = self.turns.pause_s(request)
        if math.isnan(pause_s):
            return "end"
        keys = self.store.keys_of(self._keys_of(request, demand, tokens))
        queue = self.store.queue
        out = sum(key not in self.store.host for key in keys)
        swap_s = queue.wait_s(OUT) + self.links.host_s(out, OUT)
        swap_s += queue.wait_s(IN) + self.links.host_s(len(keys), IN)
        running = self.engine.running
        batch = BesideBatch(len(running), int(self.engine.allocator.stored[running].sum()))
        return self.turns.pauses.begins(request, queue.now_s, pause_s, tokens, batch, swap_s)

    def _end(self, request: int, tokens: int, way: Way | Literal["end"] | None) -> Ending:
        """What becomes of an ended request's memory."""
        if way == "keep" and self.turns is not None:
            self.turns.keep(request)
            return Ending.HELD
        if way == "drop":
            return Ending.FORGET
        if way == "end":
            return Ending.FREE
        if self._store(request, self.engine.demand(request), tokens, True):
            self._leaving[request] = None
            return Ending.HELD
        return Ending.FREE
