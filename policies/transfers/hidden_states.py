"""HCache (arXiv 2410.05004) in a run: a tier keeps hidden states of some layers, and steps make K
and V of them again.

The layers are split once, for a context of `PROFILED` tokens (`policies.transfers.restoring`), as
the paper profiles before it serves: hidden states of some, of the rest KV, or nothing where these
are recomputed. A load is ready when its bytes have come and its layers are projected. Projections
follow the bytes as they come, load by load. At worst they take the cores alone: a step is longer
by what is projected in it. At best (`overlap`) all time that memory bounds a step is theirs. Both
are assumed. Reading hidden states and writing K and V takes a twentieth of the FLOPs' time or less,
and is left out. A block that the host lost and the device still has is stored again, though the
server has no hidden states of it (a limit).

Layers with a window or a state keep what they have as it is. A tensor-parallel card fetches the
hidden states whole, over its own link, and makes K and V of its heads (the host has them once); a
stage has those of its layers. There, and beside windows and states, no layers are recomputed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.link import LinkSpec
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.transfers.eviction import BlockKey
from policies.transfers.kv_link import IN, KvLink, Transfer
from policies.transfers.pieces import Pieces
from policies.transfers.restoring import Rest, fetch, hcache, hidden_bytes, projection_s, recompute
from policies.transfers.tier_options import HcacheSpec
from policies.transfers.transfer import Moved, TransferEnd, transfer

PROFILED = 4096
"""Tokens of the context that layers are split for; times are nearly linear in it."""
_NOTHING_S = 1e-9


class Work(NamedTuple):
    """Of the cores for a load, in seconds: what needs none of its bytes, and what follows them."""

    recompute_s: float
    project_s: float


class HiddenStates:
    """What a tier keeps of each token, and what restoring takes. ends: a source and a target of at
    least `PROFILED` tokens, none of whose blocks lie together."""

    def __init__(
        self, spec: HcacheSpec, link: LinkSpec, device: Device, model: TransformerSpec,
        steps: StepModel, ends: tuple[TransferEnd, TransferEnd], stages: int = 1, cards: int = 1,
        rests: Sequence[Rest] = ("kv", "recompute"),
    ) -> None:  # fmt: skip
        """model: of a card, with the layers that keep all tokens alone. stages, cards: of a
        replica; the cards of a stage make K and V of their heads of the same hidden states. rests:
        how layers may come of which no hidden states are kept. Raises DescriptionError for more
        layers than the model has, for latents, for what `transfer` refuses, and where recomputing
        all layers is soonest."""
        key = "serving.tiers.host.hcache"
        if (spec.layers or 0) > model.layers:
            raise DescriptionError(
                f"{key}.layers: expected at most {model.layers}, those of {model.name}; "
                f"got {spec.layers}"
            )
        recomputed = recompute(steps, PROFILED, Efficiency())
        fetched = fetch(link, model, PROFILED, *ends)
        self.split = hcache(link, device, model, PROFILED, recomputed, fetched, spec.layers, rests)
        if not self.split.bytes:
            raise DescriptionError(f"{key}: over {link.name} recomputing is sooner than any split")
        self._device, self._model, self._steps = device, model, steps
        self._left = model.layers - self.split.hidden_layers
        self._kv = model.model_copy(update={"layers": self._left}) if self._left else None
        if self.split.rest != "kv":
            self._kv = None
        self._stages, self._cards = stages, cards
        self.token_bytes = stages * self.split.hidden_layers * hidden_bytes(model)
        """Kept of a token, of all cards."""
        self.token_bytes += 0 if self._kv is None else cards * self._kv.kv_token_bytes

    @property
    def keeps_kv(self) -> bool:
        """Whether some layers are kept as KV."""
        return self._kv is not None

    def transfer(
        self,
        link: LinkSpec,
        model: TransformerSpec,
        tokens: int,
        source: TransferEnd,
        target: TransferEnd,
        both_ways: bool = False,
        skip: int = 0,
        every: bool = False,
    ) -> Moved:
        """As `policies.transfers.transfer` of `model`, the same: of one card, or of `every` card
        over one link. Hidden states of a layer lie together in a block of the tier, and in a buffer
        of the device."""
        stages, cards = (self._stages, self._cards) if every else (1, 1)
        layers, size = self.split.hidden_layers, hidden_bytes(model)
        most = min(max(source.block, target.block) * size, link.largest or 1 << 62)
        whole, rest = divmod((tokens - skip) * size, most)
        sizes = np.array([most, rest], np.int64)
        counts = np.array([whole * layers, (rest > 0) * layers], np.int64) * stages
        regions, runs = layers, whole + (rest > 0)
        if self._kv is not None:
            found = transfer(link, self._kv, tokens, source, target, skip=skip).pieces
            sizes = np.concatenate((sizes, found.sizes))
            counts = np.concatenate((counts, found.counts * cards))
            regions, runs = regions + found.regions, max(runs, found.runs)
        there = counts > 0
        pieces = Pieces(sizes[there], counts[there], regions, runs)
        return Moved(pieces, link.cost(pieces.sizes, pieces.counts, both_ways), 1)

    def work(self, start: int, end: int, efficiency: Efficiency) -> Work:
        """For tokens `start` to `end` of a context."""
        again_s = 0.0
        if self.split.rest == "recompute":
            whole = recompute(self._steps, end, efficiency, start).total_s
            again_s = whole * self._left / self._model.layers
        layer_s = projection_s(self._device, self._model, end - start)
        return Work(again_s, layer_s * self.split.hidden_layers)


class Projections:
    """Work of the cores for loads, first come, first served, beside a queue that brings them."""

    def __init__(self, queue: KvLink) -> None:
        self._queue = queue
        self._works: dict[int, Work] = {}
        self._waiting: deque[tuple[float, int, Sequence[BlockKey]]] = deque()
        self._came_s = self._done_s = self._taken_s = 0.0
        """Work of loads that have come; what is done of all; what is when the step ends."""

    @property
    def done_s(self) -> float:
        return self._done_s

    @property
    def wait_s(self) -> float:
        """Work that waits for nothing but the cores."""
        return self._ready_s - self._done_s

    @property
    def due_s(self) -> float:
        """When the first load that has come is projected if no step runs; inf: none has."""
        if not self._waiting:
            return np.inf
        return self._queue.now_s + max(self._waiting[0][0] - self._done_s, 0.0)

    def put(self, request: int, work: Work) -> None:
        """A load is on its way."""
        self._works[request] = work

    def drop(self, request: int) -> None:
        """It will not come, and is no longer in the queue; what was projected of it is lost."""
        del self._works[request]
        self._came_s = max(self._came_s, self._done_s)

    def clear(self) -> list[Sequence[BlockKey]]:
        """None will come, and none has: the blocks of those that had."""
        found = [keys for _, _, keys in self._waiting]
        self._waiting.clear()
        self._works.clear()
        self._came_s = self._taken_s = self._done_s
        return found

    def came(self, request: int, keys: Sequence[BlockKey]) -> None:
        """Its bytes have come."""
        self._came_s += sum(self._works.pop(request))
        self._waiting.append((self._came_s, request, keys))

    def step(self, step_s: float, idle_s: float = 0.0) -> float:
        """Seconds that a step of `step_s` seconds that begins now, in which cores idle for
        `idle_s`, takes longer: by what is ready, and of the load under way what comes meanwhile."""
        ready_s, job = self.wait_s, self._job
        found_s, left_s, speed = ready_s, 0.0, 0.0
        if job is not None:
            work_s = self._works[job.what.request].project_s
            left_s, speed = self._queue.left(job) * work_s, job.speed * work_s
            found_s += min(left_s, step_s * speed)
        if found_s > idle_s:  # longer steps bring more
            longer_s = (step_s + ready_s - idle_s) * speed / (1 - speed) if speed < 1 else left_s
            found_s = ready_s + min(left_s, longer_s)
        self._taken_s = self._done_s + found_s
        return max(found_s - idle_s, 0.0)

    def stepped(self) -> None:
        """That step is over."""
        self._done_s = min(max(self._taken_s, self._done_s), self._ready_s)

    def idle(self, seconds: float) -> None:
        """For so long no step has run."""
        self._done_s = min(self._done_s + seconds, self._ready_s)

    def projected(self) -> list[tuple[int, Sequence[BlockKey]]]:
        """Requests whose KV is there since the last call, and their blocks."""
        found = []
        while self._waiting and self._waiting[0][0] <= self._done_s + _NOTHING_S:
            found.append(self._waiting.popleft()[1:])
        return found

    @property
    def _job(self) -> Transfer | None:
        return self._queue.at(IN)

    @property
    def _ready_s(self) -> float:
        job = self._job
        if job is None:
            return self._came_s
        work = self._works.get(job.what.request, Work(0.0, 0.0))  # of KV alone: none
        return self._came_s + work.recompute_s + (1 - self._queue.left(job)) * work.project_s
