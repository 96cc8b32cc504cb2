"""The core contract of a KV allocator: which token slots of the device each request holds.

Slots are [0, layout.slots); `KvLayout` turns them into byte addresses. Requests are dense ids. What
only some policies do is in `policies.allocators.capabilities`. An allocator is added by one file
and one line in `policies.allocators.registry`; the contract tests then run on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from hwmodel.description.description import Strict
from hwmodel.specs.accelerator import Paging
from hwmodel.specs.kv_order import Dims
from policies.allocators.arena import external_fragmentation
from policies.allocators.declaration import Loss, References, Removal, Searched
from policies.allocators.kv_groups import WindowKv
from policies.allocators.kv_layout import ByteRuns, KvLayout, Units
from policies.allocators.state_places import StatePool
from policies.predictors.prediction import Predictive
from policies.requests.requests import IntArray

Capability = TypeVar("Capability")
RUN_BLOCK = 16
"""Tokens of a piece of a run that lies elsewhere."""


class PolicyOptions(Strict):
    """Base of every policy's options; `name` is the registry key."""

    name: str

    @property
    def kernel_cost(self) -> float:
        """Time of the decode attention over that of a kernel on contiguous KV, at the same DRAM
        time."""
        return 1.0

    @property
    def kv_of_windows(self) -> WindowKv:
        """What layers with a sliding window keep."""
        return "full"

    @property
    def copies_prefixes(self) -> bool:
        """Whether tokens that an admitted request begins with are copied from another's."""
        return False

    def beside_states(self, model: str, block: int | None) -> PolicyOptions:
        """The options for a model with this name that has layers with a state; `block`: tokens of a
        block that its states ask for. A state is that of the last token alone, so that a prefix
        whose KV is there is of no use without one kept at its end (vLLM: `mamba_cache_mode: none`,
        the default, turns prefix caching off). Raises DescriptionError for options that ask
        for it."""
        return self

    @property
    def saves_states(self) -> bool:
        """See `Limits.saves_states`."""
        return False

    variant_of: ClassVar[str | None] = None
    """The policy that this one is with other defaults."""
    kv_layout: ClassVar[Dims | None] = None
    """The layout that its authors give it. None: the one of the card's software."""

    def on_device(self, paging: Paging) -> PolicyOptions:
        """The options with what hangs on the card's software filled in."""
        return self

    @property
    def learned_lengths(self) -> Mapping[str, int]:
        """Option -> realised lengths that must be there before the policy is what it says."""
        return {}


class Lookahead(NamedTuple):
    """Slots that steps write behind the tokens they keep, where tokens are drafted."""

    rows: int = 0
    """Of drafts, in all steps under way."""
    drafter: int = 0
    """Behind those, of the drafter."""
    hit: Literal["whole", "less_one", "next_known"] = "whole"
    """What a drafter leaves of a prefix that is found: all blocks, all but the last, or those whose
    next token is known to be the same (vLLM 0.33: `num_hash_lookahead_tokens`)."""

    @property
    def slots(self) -> int:
        """At most."""
        return self.rows + self.drafter


class Limits(NamedTuple):
    """Longest outputs and contexts the engine admits, in tokens."""

    max_tokens: int
    max_model_len: int
    step: int = 1 << 40
    """Tokens that a step computes at most."""
    ahead: int = 0
    """Steps that are scheduled before the output of the one before is known (asynchronous
    scheduling)."""
    lookahead: Lookahead = Lookahead()
    states: int = 0
    """Slots of a state of fixed size in each of its layers, which a request holds beside those of
    its tokens, `kept_states` times; in allocators that say `holds_states`."""
    kept_states: int = 1
    """One, and one more for each draft of a step, which writes the state behind each row, and one
    where `saves_states`."""
    drafter: tuple[int, int] = (0, 1)
    """Groups of a drafter's layers that have blocks of their own, and tokens of such a block."""
    state_bytes: int = 0
    """Room of a state in one of its layers."""
    state_pool: StatePool | None = None
    """Where states are kept apart."""
    commits_states: bool = False
    """With drafts the state that holds is copied to a place of its own, not found by its slot."""
    saves_states: bool = False
    """The state at the end of a request's last block is kept, and found again with a prefix that
    ends there."""

    def state_place(self, slots: int, copy: int, nth: int) -> tuple[int, int, int]:
        """Of a reservation of so many slots that ends with the states, copy by copy: (the first
        slot of a copy, that behind its last, bytes before the `nth` layer's)."""
        first = slots - (self.kept_states - copy) * self.states
        return first, first + self.states, nth * self.state_bytes


class Demand(NamedTuple):
    """What is known of a request when it asks for memory, in tokens."""

    prompt: int
    generated: int
    """Output tokens of earlier residences. A preempted request prefills those that are not cached
    again."""
    prediction: Predictive
    prefix_id: int = -1
    """Requests with the same one have a common prefix; -1: none."""
    prefix_tokens: int = 0
    """Length of the common prefix."""
    output: int = 0
    """The true output length, for ceilings only: no policy may read it."""
    parent: int = -1
    """Requests with the same one are samples of one prompt, all of which they have in common; -1:
    of none."""
    session: int = -1
    """Requests with the same one are turns of a session, each of which begins with all of the one
    before; -1: of none."""
    above: tuple[tuple[int, int], ...] = ()
    """What the common prefix itself begins with: (prefix id, tokens up to its end), longer and
    longer."""


class Allocator(ABC):
    """Base of all allocators. Per-request state, int64 (requests,): `stored` tokens and `reserved`
    slots, including shared ones.

    A request is resident between a successful `reserve` and `release`. Operations on others raise
    KeyError. Stored tokens never need more than the reserved slots (`KvLayout.slots_of`); a shared
    slot holds the same token for all.
    """

    Options: ClassVar[type[PolicyOptions]]
    by_request: ClassVar[tuple[str, ...]] = ("stored", "reserved")
    """Arrays that `share` may share."""
    reading: ClassVar[str] = ""
    """What its authors would defend as their policy, where the defaults are that, with its
    source."""
    published: ClassVar[Mapping[str, Any]] = {}
    """Options that its paper gives a number or a form, as there."""
    answers: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """What its users would set where it falls behind: words -> options (`bankwise explain
    next`)."""
    holds_states: ClassVar[bool] = False
    """Whether each resident also holds `Limits.states` slots, `kept_states` times."""
    members: ClassVar[tuple[type, ...]] = ()
    """Classes of the parts by which each has further capabilities (`has`)."""
    losses: ClassVar[Mapping[Loss, Removal]]
    """What it loses against the ceiling, and what removes each loss. This and the next two every
    registered class sets itself (`policies.allocators.declaration`)."""
    searched: ClassVar[Searched]
    """What a study may search."""
    references: ClassVar[References]
    """What a study compares it with where it does not say."""

    def __init__(self, layout: KvLayout, requests: int, limits: Limits, options: Any) -> None:
        self.layout = layout
        self.limits = limits
        self.options = options
        self.stored = np.zeros(requests, np.int64)
        self.reserved = np.zeros(requests, np.int64)
        self.resident = np.zeros(requests, np.bool_)
        self.has: tuple[Any, ...] = ()
        """Its parts with capabilities, one of each of `members`."""
        self.pinned: set[int] = set()
        self._total = 0

    def able(self, capability: type[Capability]) -> Capability | None:
        """What has this capability (`policies.allocators.capabilities`), itself or a part of it;
        None: nothing has."""
        return next((each for each in (self, *self.has) if isinstance(each, capability)), None)

    def share(self, other: Allocator) -> None:
        """The arrays by request that nothing reads whole are those of `other`, which none of the
        requests here uses at the same time: a thousand of them need no more memory than one."""
        for name in self.by_request:
            setattr(self, name, getattr(other, name))

    @property
    def slots(self) -> int:
        return self.layout.slots

    @property
    def reserved_total(self) -> int:
        """Slots reserved by all residents; shared ones count once, both places of a migration."""
        return self._total

    @reserved_total.setter
    def reserved_total(self, slots: int) -> None:
        self._total = slots

    @property
    def free_slots(self) -> int:
        """Slots that no request holds."""
        return self.slots - self.reserved_total

    @property
    def largest_hole(self) -> int:
        """Slots of the largest reservation that could succeed now."""
        return self.free_slots

    @property
    def fragmentation(self) -> float:
        """External fragmentation: share of free slots outside the largest hole."""
        return external_fragmentation(self.free_slots, self.largest_hole)

    @property
    def reach(self) -> int:
        """Slots of the largest reservation that the empty device can hold."""
        return self.slots

    @property
    def preempts(self) -> Literal["last", "itself"]:
        """Which request the engine preempts when one can neither grow nor migrate: the last running
        one, or that request itself."""
        return "last"

    @abstractmethod
    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        """Most slots that requests of these lengths may ask for; above `reach` they can never be
        served."""

    @abstractmethod
    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        """Admit a request and store its first `tokens`, including those that are cached. False
        (nothing changes) if there is no room. Where KV comes from elsewhere, its tokens count as
        stored from here on: they have slots, and whoever brings them calls `pin` until they are
        there.
        """

    def receive(self, request: int, demand: Demand, tokens: int) -> bool:
        """As `reserve`, of a request whose `tokens` all come from another card: nothing that is
        found here is copied for them."""
        return self.reserve(request, demand, tokens)

    @abstractmethod
    def grow(self, request: int, tokens: int) -> bool:
        """Store `tokens` more. False (nothing changes) if there is no room."""

    @abstractmethod
    def release(self, request: int) -> int:
        """Free everything the request holds; returns the slots that were reserved for it."""

    @abstractmethod
    def units(self, request: int) -> Units:
        """The request's allocation units in token order; with groups of layers those of each group
        after another."""

    def layer_units(self, request: int, group: int) -> Units:
        """Units that hold its tokens in the layers of a group, in token order."""
        return self.units(request)

    @property
    def transfer_block(self) -> int:
        """Tokens of the pieces in which KV is found elsewhere, and moved there and back: the block
        of policies that have one. Of runs 16 (assumed: vLLM's block, so that a tier behind a run
        and one behind blocks hold the same pieces)."""
        return RUN_BLOCK

    def first_kept(self, request: int, group: int = 0) -> int:
        """The first token whose KV a request still has in the layers of a group; those before lie
        behind its window. Raises KeyError."""
        self.require(request)
        kept = None if self.layout.groups is None else self.layout.groups.kept[group]
        if kept is None:
            return 0
        size = int(self.layer_units(request, group).size[0])  # of a ring
        return max(int(self.stored[request]) - size, 0)

    def pieces(self, request: int, first: int, end: int, group: int = 0) -> Units:
        """Where tokens [first, end) of a request lie in the layers of a group, in pieces that begin
        at multiples of `transfer_block` tokens, and at each unit of the request; int64 (n,) each.
        Pieces of a run lie one behind the other. `first` is no less than `first_kept`, and `end` no
        more than `stored`.

        `start` is exact where a unit's tokens follow one another (`KvLayout.dims`: token behind
        unit); in other layouts it says which of the unit's slots they are, and
        `KvLayout.extents(units, ..., first, last)` has the bytes. Raises KeyError."""
        self.require(request)
        units, block = self.layer_units(request, group), self.transfer_block
        begins = np.cumsum(units.tokens) - units.tokens
        whole = np.arange(first - first % block, end, block)
        cuts = np.unique(np.concatenate((whole, begins, [first, end])))
        cuts = cuts[(cuts >= first) & (cuts <= end)]
        tokens = np.diff(cuts)
        unit = np.searchsorted(begins, cuts[:-1], "right") - 1
        return Units(units.start[unit] + cuts[:-1] - begins[unit], tokens, tokens)

    def pin(self, request: int) -> None:
        """KV of a resident is on its way to or from its slots: it stays where it is, and no other
        request is given a copy of it, until `unpin` or its release. Raises KeyError."""
        self.require(request)
        self.pinned.add(request)

    def unpin(self, request: int) -> None:
        """What was on its way is there."""
        self.pinned.discard(request)

    @abstractmethod
    def headroom(self, requests: IntArray, limit: int) -> int:
        """How many rounds, up to `limit`, all of `requests` can grow by a token."""

    def growing(self, requests: IntArray) -> int:
        """How many of the first of `requests` can together grow by a token."""
        low, high = 0, len(requests)
        while low < high:
            middle = (low + high + 1) // 2
            if self.headroom(requests[:middle], 1):
                low = middle
            else:
                high = middle - 1
        return low

    def refuses(self, request: int, demand: Demand, tokens: int) -> bool:
        """Whether there surely is no room to admit a request with so many tokens, where that is
        seen with less work than `reserve` takes. False: it may have room, the default."""
        return False

    @abstractmethod
    def advance(self, requests: IntArray, rounds: int) -> None:
        """`rounds` times: `grow(request, 1)` for each of `requests` in order. Needs the
        headroom."""

    def taken(self, requests: IntArray, rounds: int) -> int:
        """Slots that `advance` of so many rounds takes, by which a controller sees how full a card
        is between two events. As it is, those that tokens lack: the least."""
        stored = self.stored[requests] + rounds
        lacking = self.layout.slots_of(stored) - self.reserved[requests]
        return int(np.maximum(lacking, 0).sum())

    def extent_count(self, requests: IntArray) -> int:
        """Physically contiguous runs of slots that `requests` hold together."""
        return sum(_runs(self.units(request)) for request in requests.tolist())

    def extents(self, request: int, layer: int, half: int | None) -> ByteRuns:
        """Physical byte runs that hold the request's stored tokens in one layer's K (0), V (1) or
        both (None)."""
        return self.layout.extents(self.units(request), layer, half)

    def require(self, request: int) -> None:
        if not 0 <= request < len(self.resident) or not self.resident[request]:
            raise KeyError(f"request {request} holds no memory")

    def _admit(self, request: int, reserved: int, tokens: int) -> None:
        self.resident[request] = True
        self.reserved[request] = reserved
        self.stored[request] = tokens
        self._total += reserved

    def _dismiss(self, request: int) -> int:
        held = int(self.reserved[request])
        self.resident[request] = False
        self.pinned.discard(request)
        self.reserved[request] = self.stored[request] = 0
        self._total -= held
        return held


def _runs(units: Units) -> int:
    """Physically contiguous runs of a request's units."""
    return 1 + int((units.start[1:] != (units.start + units.size)[:-1]).sum())
