"""Memory of hybrid models, whose layers keep KV or a state of fixed size: three allocators' rules.

`unified` (vLLM, `vllm/v1/core/kv_cache_utils.py` and `v1/kv_cache_interface.py`): one pool of
blocks. A block has as many tokens as make the KV of a layer no smaller than a state, which is
padded to it; layers are cut into groups of equally many, a group's missing layers are padding.
`two_pools` (SGLang, `mem_cache/memory_pool.py`): memory is parted by a ratio into slots of states
and pages of KV; whichever runs out first strands the other. `compact` (vLLM on TPU): a slot of
states for each sequence that may run and one more, and blocks of KV in the rest.

Requests are admitted in order until one has no room. Each is counted at its full length.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

from hwmodel.specs.transformer import TransformerSpec

Mode = Literal["none", "align", "all"]
"""Which states are kept for prefixes: none; the running one and that at the last block's end; one
at each block's end (vLLM's `mamba_cache_mode`)."""
USES = (
    "tokens", "states", "end of the last block", "padding of states", "further states",
    "missing layers", "stranded",
)  # fmt: skip
"""What memory is used for; all but the first two is waste."""


class MemoryUse(NamedTuple):
    """What a memory holds. `bytes`: by one of USES; they sum to the memory."""

    requests: int
    bytes: dict[str, int]

    @property
    def waste(self) -> float:
        """Share of the memory that holds neither tokens nor the state of a running request."""
        return 1 - (self.bytes["tokens"] + self.bytes["states"]) / sum(self.bytes.values())


def _first(each: Sequence[int], room: int) -> int:
    """How many of the first needs have room."""
    count = 0
    while count < len(each) and each[count] <= room:
        room -= each[count]
        count += 1
    return count


def _uses(memory: int, used: Counter[str]) -> dict[str, int]:
    return {name: used[name] for name in USES[:-1]} | {"stranded": memory - used.total()}


@dataclass(frozen=True)
class Unified:
    """vLLM's pages. `model`: of a card. `drafts`: speculative tokens; `align`: tokens that a block
    is a multiple of; `chunk`: of the scan, which a block is a multiple of with mode `all`;
    `beside`: layers of a drafter, whose KV is like the model's; `drafter`: layers of one whose KV
    is not, and its bytes of a token and layer (0, 0: none).

    All layers have the largest page. Where a smaller one divides it, a block has so many times the
    tokens; else it is padded (vLLM 0.33: `unify_kv_cache_spec_page_size`)."""

    model: TransformerSpec
    mode: Mode = "none"
    drafts: int = 0
    align: int = 16
    chunk: int = 256
    beside: int = 0
    drafter: tuple[int, int] = (0, 0)
    name: str = field(default="unified", init=False)

    @cached_property
    def state(self) -> int:
        """Bytes of a state of a layer: the largest."""
        states = (kind.state for kind in self.model.kinds)
        return max(state.bytes(self.drafts) for state in states if state is not None)

    @cached_property
    def _tokens(self) -> int:
        """Of the least block whose KV in a layer is no smaller than a state."""
        unit = self.align if self.mode != "all" else math.lcm(self.chunk, self.align)
        return unit * -(-self.state // (unit * self.model.kv_layer_bytes))

    @cached_property
    def page(self) -> int:
        """Bytes of a block in one layer."""
        return self._tokens * max(self.model.kv_layer_bytes, self.drafter[1])

    def _block(self, each: int) -> int:
        """Tokens of a block in layers with so many bytes of KV a token."""
        times, rest = divmod(self.page, self._tokens * each)
        return self._tokens * (1 if rest else times)

    @cached_property
    def block(self) -> int:
        """Tokens of a block."""
        return self._block(self.model.kv_layer_bytes)

    @cached_property
    def drafter_block(self) -> int:
        """Tokens of a block of the drafter's layers."""
        return self._block(self.drafter[1]) if self.drafter[0] else self.block

    @property
    def possible(self) -> bool:
        """Whether pages are alike: a latent's can be made of more tokens, not padded."""
        return self.model.attention.halves == 2 or not self.page % (
            self._tokens * self.model.kv_layer_bytes
        )

    @property
    def padding(self) -> int:
        """Bytes of a state's page that hold none of it."""
        return self.page - self.state

    @cached_property
    def layers(self) -> tuple[int, int, int]:
        """With KV, with a state, and of a drafter with other KV."""
        states = sum(many for kind, many in self.model.kinds.items() if kind.state is not None)
        return self.model.kv_layers + self.beside, states, self.drafter[0]

    @cached_property
    def group(self) -> int:
        """Layers of a group."""
        some = [many for many in self.layers if many]
        least, most = min(some), max(some)
        return most if most < 1.5 * least else least

    @property
    def groups(self) -> tuple[int, int, int]:
        """Of layers with KV, with a state, and of a drafter."""
        full, states, own = (-(-many // self.group) for many in self.layers)
        return full, states, own

    def pages(self, tokens: int) -> tuple[int, int, int]:
        """Blocks of a request in each group with KV, with a state, and of a drafter."""
        kept = {
            "none": 1 + self.drafts,
            "align": 2 + self.drafts,
            "all": -(-tokens // self._tokens),
        }
        return -(-tokens // self.block), kept[self.mode], -(-tokens // self.drafter_block)

    def blocks(self, memory: int) -> int:
        """Of all groups, in so many bytes; one is the null block."""
        return max(memory // (self.page * self.group) - 1, 0)

    def needs(self, tokens: int) -> int:
        """Blocks of a request of so many tokens."""
        return sum(
            groups * pages for groups, pages in zip(self.groups, self.pages(tokens), strict=True)
        )

    def held(self, memory: int, lengths: Sequence[int]) -> MemoryUse:
        """See the module. memory: bytes; lengths: tokens of each request."""
        count = _first([self.needs(tokens) for tokens in lengths], self.blocks(memory))
        used: Counter[str] = Counter()
        full, states, own = self.layers
        each = full * self.model.kv_layer_bytes + own * self.drafter[1]
        for tokens in lengths[:count]:
            blocks, kept, drafted = pages = self.pages(tokens)
            missing = sum(
                (groups * self.group - layers) * of
                for groups, layers, of in zip(self.groups, self.layers, pages, strict=True)
            )
            used["tokens"] += tokens * each
            used["end of the last block"] += (blocks * full + drafted * own) * self.page
            used["end of the last block"] -= tokens * each
            used["states"] += self.state * states
            used["padding of states"] += self.padding * states
            used["further states"] += (kept - 1) * self.page * states
            used["missing layers"] += missing * self.page
        return MemoryUse(count, _uses(memory, used))


@dataclass(frozen=True)
class TwoPools:
    """SGLang's. `ratio`: bytes of states over bytes of KV (`mamba_full_memory_ratio`); `slots` of
    states a running request (1; 3 to 5 with a radix cache); `page`: tokens. With drafts, a state
    behind each row of a step lies apart, and that which holds is copied to the request's slot."""

    model: TransformerSpec
    ratio: float = 0.9
    slots: int = 1
    drafts: int = 0
    page: int = 1
    name: str = field(default="two_pools", init=False)
    commits: ClassVar[bool] = True
    """Whether the state that holds behind drafts is copied."""

    @property
    def rows(self) -> int:
        """Of a request in a step that verifies drafts (`speculative_num_draft_tokens`); or none."""
        return self.drafts and 1 + self.drafts

    def apart(self, memory: int) -> int:
        """Bytes of so many that no KV may take."""
        return memory - int(memory / (1 + self.ratio))

    def running(self, memory: int) -> int:
        """Requests that have states: K // R of K slots, one of which is padding."""
        each = self.model.state_bytes()
        budget = memory * self.ratio / (1 + self.ratio) - (1 + self.rows) * each
        return max(int(budget / (each * (1 + self.rows / self.slots))), 0) // self.slots

    @property
    def copies(self) -> tuple[int, int]:
        """(States of a running request, bytes of each in all layers)."""
        return self.slots + self.rows, self.model.state_bytes()

    def held(self, memory: int, lengths: Sequence[int]) -> MemoryUse:
        """As `Unified.held`."""
        each, states = self.model.kv_token_bytes, self.model.state_bytes()
        pages = (memory - self.apart(memory)) // (each * self.page)
        needs = [-(-tokens // self.page) for tokens in lengths]
        count = min(_first(needs, pages), self.running(memory))
        used: Counter[str] = Counter()
        used["tokens"] = sum(lengths[:count]) * each
        used["end of the last block"] = sum(needs[:count]) * self.page * each - used["tokens"]
        used["states"] = count * states
        used["further states"] = count * (self.slots - 1 + self.rows) * states
        return MemoryUse(count, _uses(memory, used))

    def even(self, lengths: Sequence[int]) -> float:
        """The ratio at which both pools run out together."""
        states = (self.slots + self.rows) * self.model.state_bytes()
        return states * len(lengths) / (sum(lengths) * self.model.kv_token_bytes)


@dataclass(frozen=True)
class Compact:
    """Slots of states for `sequences` and one more; KV in blocks of `block` tokens. With drafts, a
    sequence has a slot for each row of a step (tpu-inference, PR 3196)."""

    model: TransformerSpec
    sequences: int = 256
    block: int = 16
    drafts: int = 0
    name: str = field(default="compact", init=False)
    commits: ClassVar[bool] = False

    def apart(self, memory: int) -> int:
        """As `TwoPools.apart`; it does not hang on the memory."""
        slots = self.sequences * (1 + self.drafts) + 1
        return slots * self.model.state_bytes(self.drafts)

    def running(self, memory: int) -> int:
        """As `TwoPools.running`."""
        return self.sequences

    @property
    def copies(self) -> tuple[int, int]:
        """As `TwoPools.copies`."""
        return 1 + self.drafts, self.model.state_bytes(self.drafts)

    def held(self, memory: int, lengths: Sequence[int]) -> MemoryUse:
        """As `Unified.held`."""
        each, states = self.model.kv_token_bytes, self.model.state_bytes(self.drafts)
        left = memory - self.apart(memory)
        needs = [-(-tokens // self.block) for tokens in lengths]
        count = min(_first(needs, max(left, 0) // (each * self.block)), self.sequences)
        used: Counter[str] = Counter()
        used["tokens"] = sum(lengths[:count]) * each
        used["end of the last block"] = sum(needs[:count]) * self.block * each - used["tokens"]
        used["states"] = count * states
        used["further states"] = count * self.drafts * states
        return MemoryUse(count, _uses(memory, used))
