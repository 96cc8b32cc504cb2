"""What vAttention can do beside its contract, each a part that it has (`vattention.py`): map
frames, swap, have room for drafts and states."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from hwmodel.kernel.extents import Frames
from policies.allocators.allocator import Limits
from policies.allocators.capabilities import Drafts, KeepsStates, Maps, Reports, Swaps
from policies.allocators.frame_groups import FrameGroups
from policies.allocators.kv_layout import ByteRuns, KvLayout, Units
from policies.allocators.state_places import cut
from policies.requests.requests import FloatArray, IntArray

NO_PREFIXES = "not found: a request's place in a tensor is its own, and no frame is mapped twice"
"""In the authors' code."""


class FrameHolder(Protocol):
    """What these parts may ask of it; arrays by request are as in `Allocator`."""

    layout: KvLayout
    limits: Limits
    options: Any
    tensors: int
    block: int
    fixed: int
    groups: FrameGroups
    mapping: Any
    has_prefixes: bool
    ids: IntArray
    stored: IntArray

    def require(self, request: int) -> None: ...
    def enter(self, request: int, tokens: int) -> bool: ...
    def extend(self, request: int, tokens: int) -> int | None: ...
    def release(self, request: int) -> int: ...
    def growth(self, requests: IntArray, rounds: int) -> tuple[IntArray, IntArray]: ...


class VattentionMaps(Maps, Reports):
    """`now`, `behind`: groups mapped since `charged`, waited for, or behind a step."""

    def __init__(self, frames: FrameHolder) -> None:
        self._of = frames
        self.frame_bytes: int = frames.options.frame
        self.now = self.behind = 0

    def stalls(self, requests: IntArray, steps_s: FloatArray) -> FloatArray:
        of, behind = self._of, np.zeros(len(steps_s))
        behind[0] = self.behind
        who, when = of.growth(requests, len(steps_s) - 1)
        if len(who):
            mapped = of.groups.mapping(of.ids[who].tolist())
            behind += np.bincount(when + 1, mapped, minlength=len(behind))
        seconds = of.tensors * of.options.map_cost * 1e-9
        waited = behind * seconds
        if of.options.growth == "background":
            waited = np.maximum(waited - steps_s, 0)
        waited[0] += self.now * seconds
        return waited

    def charged(self) -> None:
        self.now = self.behind = 0

    def frames(self) -> Frames:
        of, groups = self._of, self._of.groups
        plane = np.arange(of.tensors)[:, None] * (groups.span * (groups.ids + 1))
        size = of.layout.bytes // (of.tensors * len(groups.virtual))
        return Frames(of.layout.base, size, (plane + groups.virtual).ravel())

    def report(self) -> dict[str, Any]:
        """Frames mapped, and the share of those used that were found mapped; why no prefix is
        found where requests have some."""
        groups = self._of.groups
        shares = {
            "mapped_frames": float(groups.mapped * self._of.tensors),
            "already_mapped_share": 1 - groups.mapped / max(groups.taken, 1),
        }
        return shares | ({"prefixes": NO_PREFIXES} if self._of.has_prefixes else {})


class VattentionSwaps(Swaps):
    """An id is given up, and another one taken."""

    def __init__(self, frames: FrameHolder) -> None:
        self._of = frames
        self._away: dict[int, int] = {}
        """Tokens of requests that are swapped out."""

    def swap_out(self, request: int) -> int:
        self._of.require(request)
        stored = int(self._of.stored[request])
        self._away[request] = stored
        self._of.release(request)
        return stored

    def swap_in(self, request: int) -> bool:
        if not self._of.enter(request, self._away[request]):
            return False
        del self._away[request]
        return True


class VattentionDrafts(Drafts):
    """Frames behind rejected drafts are the next step's."""

    def __init__(self, frames: FrameHolder) -> None:
        self._of = frames

    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        of = self._of
        for at, (request, tokens) in enumerate(zip(requests.tolist(), kept.tolist(), strict=True)):
            end = int(of.stored[request]) + tokens + int(beyond[at])
            if (mapped := of.extend(request, end)) is None:
                return at
            of.mapping.behind += mapped
            of.stored[request] += tokens
        return len(requests)


class VattentionStates(KeepsStates):
    """In the first groups of a request, copy by copy."""

    def __init__(self, frames: FrameHolder) -> None:
        self._of, self.limits = frames, frames.limits

    def state_runs(self, request: int, copy: int, nth: int, size: int) -> ByteRuns:
        of, layout = self._of, self._of.layout
        each = of.fixed // self.limits.kept_states
        groups = of.groups.used(int(of.ids[request]))[copy * each : (copy + 1) * each]
        whole = np.full(len(groups), of.block, np.int64)
        units = Units(np.array(groups, np.int64) * of.block, whole, whole)
        layers = [layout.extents(units, layer, None) for layer in range(layout.layers)]
        runs = ByteRuns(*(np.concatenate(column) for column in zip(*layers, strict=True)))
        return cut(runs, nth * self.limits.state_bytes, size)
