"""How long a step takes: compute and memory of its phases (a roofline each), and fixed overheads.

Phases follow one another, unless they are moved together (`FidelitySpec.phases`): then all their
bytes are one phase with all their FLOPs. Linear: the tokens of prompt chunks run through the same
matrix products as the decoding ones (vLLM v1 makes one batch of both), so the weights are read once
beside the FLOPs of all; of routed experts those that any of the tokens passes through, in the mean
(`policies.memory.routing`). Attention of the decoding requests: their KV read, their new tokens
written. Attention of the chunks: the KV of what was stored before read, their own written.
Migration: every moved token read and written, as are copies on write. Swap: over the link to the
host, while nothing else runs. All-reduce: two a layer of the hidden state of each token, over the
links between tensor-parallel cards, while nothing else runs. Within a phase compute and memory
overlap (`max`), not (`sum`) or in part. Williams et al. 2009, "Roofline".

Whole experts on each card (`CardExperts`): in every layer the others wait for the card with the
most bytes of experts, or with the most FLOPs (`Routing.most`). The second all-reduce of the layer
sums what they make, or instead of it tokens are dispatched to their experts' cards and combined.

Where grouped query heads read their KV head each for itself (`work.grouped: false`), reads come so
many times over.

Where the cores quantise KV, the operations of loading and storing its numbers add to the FLOPs of
attention (assumed: in the same kernel, so that memory may hide them).

A kernel that looks blocks up may slow the decode attention down by a factor (`slowdown`).

Layers with a state read and write it once a sequence and step, and once a chunk, beside the KV.

Latent attention reads its latents once and, where a phase has it unabsorbed, makes K and V of all
that was stored from them, in FLOPs.

The samples of a request attend to their common prompt together: its KV is read once, its FLOPs are
those of each (assumed: batched over a shared prefix).

Reported are `weights`, the linear phase as it would be without the chunks' FLOPs; `prefill`, what
the chunks add to it and their attention; `attention`; `migration`; `copy`; `swap`; and
`all_reduce`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.mlp import CardExperts, Experts
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_groups import KvGroups
from policies.allocators.kv_sparse import Sparse
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.routing import Routing
from policies.memory.traffic import reading
from policies.requests.requests import FloatArray

Free = Literal["weights", "compute", "copies"]
"""What a counterfactual takes no time for."""
PHASES = ("weights", "attention", "prefill", "migration", "copy", "swap", "all_reduce")


class Efficiency(NamedTuple):
    """Share of the memory's peak bandwidth that reaches the engines in each phase: what the DRAM
    was simulated to give, times `derate`, or what was given. Copies on write are migrations
    here."""

    weights: float = 1.0
    attention: float = 1.0
    prefill: float = 1.0
    migration: float = 1.0

    def as_one(self, chunks: bool) -> Efficiency:
        """Where phases are moved together: that of a step with `chunks`, or of one without, is that
        of all three."""
        share = self.prefill if chunks else self.attention
        return self._replace(weights=share, attention=share, prefill=share)


class StepTimes(NamedTuple):
    """Seconds of consecutive steps. `attention_s`, `total_s`: float64 (rounds,); others the same
    in each."""

    weights_s: float
    attention_s: FloatArray
    prefill_s: float
    migration_s: float
    overhead_s: float
    total_s: FloatArray
    compute_s: FloatArray
    """The part of `total_s` in phases whose FLOPs take longer than their bytes."""
    copy_s: float = 0.0
    swap_s: float = 0.0
    all_reduce_s: float = 0.0
    weight_bytes: int = 0
    """Read in each of them; of several cards the mean."""
    chunk_memory_s: float = 0.0
    """The part of `prefill_s` that hangs on how fast KV is moved."""
    stall_s: FloatArray | None = None
    """Part of `total_s`: waiting for frames to be mapped, or for other replicas; None: none
    does."""
    draft_s: float = 0.0
    """Part of `total_s`: passes of a drafter, which read `draft_bytes`."""
    draft_bytes: int = 0

    def delayed(self, stall_s: FloatArray) -> StepTimes:
        """With steps that each wait so much longer, float64 (rounds,)."""
        if not stall_s.any():
            return self
        before_s = 0.0 if self.stall_s is None else self.stall_s
        return self._replace(total_s=self.total_s + stall_s, stall_s=before_s + stall_s)

    @property
    def memory_s(self) -> FloatArray:
        """The part of each step that memory bounds, float64 (rounds,)."""
        fixed: Any = self.overhead_s + self.swap_s + self.all_reduce_s
        if self.stall_s is not None:
            fixed = fixed + self.stall_s
        return np.maximum(self.total_s - self.compute_s - fixed, 0.0)

    def contended(self, taken: float, bandwidth: float, cost: float = 1.0) -> FloatArray:
        """Seconds that each of the steps takes longer while copies move `taken` of the `bandwidth`
        bytes a second of its memory, float64 (rounds,): the part of a step that memory bounds has
        the rest. cost: of one of their bytes over one of the step's. Raises DescriptionError where
        nothing is left."""
        taken *= cost
        if taken >= bandwidth:
            raise DescriptionError(
                "KV in motion takes all that the card's DRAM gives; expected a slower link"
            )
        return self.memory_s * taken / (bandwidth - taken)

    def first(self, rounds: int) -> StepTimes:
        """The first `rounds` steps of these."""
        return self._replace(
            attention_s=self.attention_s[:rounds],
            total_s=self.total_s[:rounds],
            compute_s=self.compute_s[:rounds],
            stall_s=None if self.stall_s is None else self.stall_s[:rounds],
        )


class StepModel:
    """Step times of a model on one device, or on `cards` of them that each hold a shard of it (see
    `hwmodel.specs.transformer.shard`). Raises DescriptionError if the device cannot compute, or has
    no links to the others.

    slowdown: of the decode attention by its kernel (`PolicyOptions.kernel_cost`).
    routing: of a model with experts; uniform by default.
    free: what takes no time (`ServingSpec.free`).
    together: phases of DRAM are one, but for copies (`FidelitySpec.phases`).
    groups: of a model with sliding windows, what its layers read.
    sparse: what decoding reads of all.
    even: decode attention reads at the efficiency handed in, also where a given memory has shares
    by size.
    commits: with drafts, the state that holds is copied (SGLang), not found by its slot (vLLM)."""

    def __init__(
        self, device: Device, model: TransformerSpec, cards: int = 1, slowdown: float = 1.0,
        routing: Routing | None = None, free: Sequence[Free] = (), together: bool = False,
        groups: KvGroups | None = None, sparse: Sparse | None = None, even: bool = False,
        commits: bool = False,
    ) -> None:  # fmt: skip
        if device.accelerator is None:
            raise DescriptionError(f"{device.name} is a memory; serving needs an accelerator")
        assert groups is not None or model.window is None, "kv_layout says so first"
        self._groups, self._sparse = groups, sparse
        self._shares: tuple[FloatArray, FloatArray] | None = None
        if (given := device.given) is not None and given.attention is not None and not even:
            points = np.array([(each.size, each.share) for each in given.attention], np.float64)
            self._shares = np.log(points[:, 0]), points[:, 1]
        compute, self._link = device.accelerator.compute, device.accelerator.link
        self._apart = model.experts if isinstance(model.experts, CardExperts) else None
        if self._link is None and (cards > 1 or self._apart is not None):
            key = "tensor_parallel" if cards > 1 else "expert_parallel"
            raise DescriptionError(f"{device.name} has no link, which {key} needs")
        self._cards = cards
        self._slowdown = slowdown
        self._together = together
        self._layers, self._kv_layers = model.layers, model.kv_layers
        self._state_bytes = model.activation_bytes
        self._kv_bytes = model.kv_token_bytes
        self.kv_bytes = self._kv_bytes
        self._index_bytes, index_flops = 0, 0
        if sparse is not None:
            self._index_bytes = model.layers * sparse.index_bytes
            index_flops = model.layers * sparse.index_flops
        self._repeats = reading(device, model).repeats
        self._all_weight_bytes = model.step_weight_bytes
        self._experts = model.experts
        self._routing = routing
        if model.experts is not None:
            self._routing = routing or Routing(model.experts)
            layers = range(model.layers)
            self._expert_bytes = sum(sum(model.expert_bytes(layer)) for layer in layers)
        self._layer_flops: float = model.layer_flops
        if self._apart is not None:
            self._without_pairs(model, self._apart)
        self._head_flops = model.head_flops
        # attention multiplies what flows between layers with KV that is converted to it
        rate = compute.peak(model.weights)
        other = compute.peak(model.activations)
        self._attention_flops = model.attention_flops * rate / other
        chunk = model.attending("prefill")
        self._chunk_flops = chunk.pair * rate / other
        self._index_flops = index_flops * rate / other
        self._made_flops, self._chunk_made_flops = model.attending("decode").stored, chunk.stored
        self._recurrent_bytes = 2 * model.state_bytes()
        self._draft_state_bytes, self._commits = model.state_row_bytes, commits
        numbers = model.kv_layers * model.attention.halves * model.kv_heads * model.head_dim
        each = (0.0, 0.0) if "compute" in free else compute.quantising_s(model.kv)
        self._load_s, self._store_s = (numbers * seconds for seconds in each)
        self._copied_bytes = 0 if "copies" in free else 2 * (self._kv_bytes + self._index_bytes)
        if "weights" in free:
            self._all_weight_bytes, self._experts = 0, None
        if "compute" in free:
            self._layer_flops = self._head_flops = self._pair_flops = 0
            self._attention_flops = self._chunk_flops = 0
            self._made_flops = self._chunk_made_flops = self._index_flops = 0
        self.bandwidth = device.peak_gbps * 1e9
        host = device.accelerator.host
        self._host_bandwidth = host.bandwidth if host else 0.0
        self._decode_flops = rate * compute.decode_efficiency
        self._prefill_flops = rate * compute.prefill_efficiency
        self._left = 1.0 - compute.overlap
        self._overhead_s = (compute.step_overhead + model.layers * compute.layer_overhead) * 1e-9

    def times(self, step: Step, rounds: int, efficiency: Efficiency) -> StepTimes:
        """Times of `rounds` steps in which only the context grows, a token a sample and
        step."""
        decode, rows = step.tokens, step.tokens + step.drafts
        linear_s = rows * (self._layer_flops + self._head_flops) / self._decode_flops
        chunk_experts_s = 0.0
        if self._apart is not None:
            experts_s, chunk_experts_s = self._experts_s(step)
            linear_s += experts_s if step.chunks else experts_s + chunk_experts_s
        weight_bytes = self.weight_bytes(step)
        weights_s = self._phase(linear_s, weight_bytes, efficiency.weights)
        # a single step in plain numbers: the same, without the cost of short arrays
        alone = rounds == 1
        context: Any = step.context + (0 if alone else decode * np.arange(rounds))
        if self._groups is not None and step.lengths is not None:
            context = self._groups.read(step.lengths)
        pairs: float = step.pairs
        if self._groups is not None and step.lengths is not None and step.rows is not None:
            pairs = self._groups.verified(step.lengths, step.rows)
        indexed: Any = 0
        if self._sparse is not None and step.lengths is not None:
            context, indexed = self._sparse.steps(step.lengths, rounds)
        attended = (
            (context + (step.common + decode + pairs)) * self._attention_flops / self._decode_flops
        )
        if self._made_flops:
            attended = attended + context * self._made_flops / self._decode_flops
        if self._index_flops:
            attended = attended + indexed * self._index_flops / self._decode_flops
        if self._load_s:
            attended = attended + context * self._repeats * self._load_s + rows * self._store_s
        # read the context, write a token and its drafts each
        moved_bytes = context * (self._repeats * self._kv_bytes) + rows * self._kv_bytes
        if self._recurrent_bytes:  # read and written by each sequence
            moved_bytes = moved_bytes + decode * self._recurrent_bytes
            if step.drafts:  # the state behind each row is written
                moved_bytes = moved_bytes + step.drafts * self._draft_state_bytes
                if self._commits:
                    moved_bytes = moved_bytes + decode * self._recurrent_bytes
        if self._index_bytes:
            moved_bytes = moved_bytes + (indexed + decode) * self._index_bytes
        memory_s = moved_bytes / (self.bandwidth * self._kv_share(moved_bytes, efficiency))
        more, less = (max, min) if alone else (np.maximum, np.minimum)
        attention_s: Any = more(attended, memory_s)
        if self._left:
            attention_s = attention_s + self._left * less(attended, memory_s)
        if self._slowdown != 1:
            attention_s = attention_s * self._slowdown
        together_s, linear_phase_s, prefill_s, compute_s = linear_s, weights_s, 0.0, 0.0
        flops_s, moved, chunk_memory_s = 0.0, 0.0, 0.0
        if step.chunks:
            together_s = linear_s + self._chunk_linear_s(step.chunks) + chunk_experts_s
            linear_phase_s = self._phase(together_s, weight_bytes, efficiency.weights)
            flops_s, moved = self._chunk_attention(step.chunks)
            chunk_s = self._phase(flops_s, moved, efficiency.prefill)
            computes = self._computes(flops_s, moved, efficiency.prefill)
            compute_s = chunk_s * computes
            chunk_memory_s = self._memory_s(moved, efficiency.prefill)
            chunk_memory_s *= self._left if computes else 1.0
            prefill_s = linear_phase_s - weights_s + chunk_s
        compute_s += linear_phase_s * self._computes(together_s, weight_bytes, efficiency.weights)
        computing: Any = compute_s + attention_s * (attended > memory_s)
        if self._together:
            # all FLOPs beside all bytes; a phase is charged what it adds to those before
            all_flops_s = together_s + flops_s
            all_memory_s = self._memory_s(weight_bytes, efficiency.weights)
            all_memory_s += self._memory_s(moved, efficiency.prefill)
            before_s = self._overlapped(all_flops_s, all_memory_s)
            prefill_s = chunk_memory_s = before_s - weights_s
            flops = all_flops_s + self._slowdown * attended
            bytes_s = all_memory_s + self._slowdown * memory_s
            whole = more(flops, bytes_s) + self._left * less(flops, bytes_s)
            attention_s, computing = whole - before_s, whole * (flops > bytes_s)
        migration_s = copy_s = swap_s = all_reduce_s = 0.0
        if step.migrations:
            tokens = sum(self._copied(migration.tokens) for migration in step.migrations)
            migration_s = self._moved_s(tokens, efficiency)
        if step.copied:
            copy_s = self._moved_s(step.copied, efficiency)
        if step.swapped:
            swap_s = self.swap_s(step.swapped - step.hidden)
        if self._cards > 1 or self._apart is not None:
            all_reduce_s = self._all_reduce_s(step)
        total: Any = weights_s + attention_s
        rest_s = copy_s + swap_s + all_reduce_s
        for seconds in (prefill_s, migration_s, self._overhead_s, rest_s):
            if seconds:
                total += seconds
        if alone:
            attention_s, total, computing = np.array(((attention_s,), (total,), (computing,)))
        return StepTimes(
            weights_s, attention_s, prefill_s, migration_s, self._overhead_s, total, computing,
            copy_s, swap_s, all_reduce_s, self._mean_weight_bytes(step, weight_bytes),
            chunk_memory_s,
        )  # fmt: skip

    def attention_alone_s(
        self, context: int, pairs: int, stored: int, efficiency: Efficiency
    ) -> float:
        """Seconds of a card that only attends: tokens that decode to `context` of KV together, and
        chunks to `stored` of it in so many pairs."""
        read, loads = self._repeats * self._kv_bytes, self._repeats * self._load_s
        flops_s = context * (self._attention_flops / self._decode_flops + loads)
        share = self._kv_share(context * read, efficiency)
        chunks_s = pairs * self._chunk_flops / self._prefill_flops + stored * loads
        return self._slowdown * self._phase(flops_s, context * read, share) + self._phase(
            chunks_s, stored * read, efficiency.prefill
        )

    def swap_s(self, tokens: int) -> float:
        """Seconds to copy the KV of so many tokens to the host, or back."""
        return tokens * (self._kv_bytes + self._index_bytes) / self._host_bandwidth

    def swap_bytes(self, tokens: int) -> int:
        """Of the KV of so many tokens on all cards of the replica."""
        return tokens * (self._kv_bytes + self._index_bytes) * self._cards

    def _kv_share(self, moved_bytes: Any, efficiency: Efficiency) -> Any:
        """Share of the peak at which decode attention moves so many bytes of all layers."""
        if self._shares is None:
            return efficiency.attention
        found = np.interp(np.log(np.maximum(moved_bytes, 1) / self._kv_layers), *self._shares)
        return found if np.ndim(moved_bytes) else float(found)

    def weight_bytes(self, step: Step) -> int:
        """Weights that a step reads; of experts the mean over draws."""
        if self._routing is None or self._experts is None:
            return self._all_weight_bytes
        idle = self._experts.held - self._routing.expected(step.routed)
        return self._all_weight_bytes - round(idle * self._expert_bytes)

    def _mean_weight_bytes(self, step: Step, fullest: int) -> int:
        """Those of the mean card, where the fullest reads so many."""
        if self._apart is None or self._experts is None:
            return fullest
        assert self._routing is not None
        mean = self._routing.distinct(step.routed) / self._apart.cards
        return fullest - round((self._routing.expected(step.routed) - mean) * self._expert_bytes)

    def _without_pairs(self, model: TransformerSpec, experts: CardExperts) -> None:
        """Takes from the FLOPs of a token those of its experts, which other cards have too, and
        what is done for a card's own tokens only: those of router and shared experts."""
        mlps = [kind.mlp for kind, many in model.kinds.items() for _ in range(many)]
        mixed = [mlp for mlp in mlps if isinstance(mlp, Experts)]
        self._mixed_layers = len(mixed)
        self._pair_flops = sum(
            2 * part.rows * part.columns for mlp in mixed for part in mlp.expert.matrices
        )
        self._layer_flops -= experts.per_token * self._pair_flops
        if experts.exchange == "all_to_all":
            always = sum(2 * part.rows * part.columns for mlp in mixed for part in mlp.always)
            self._layer_flops -= always * (1 - experts.replicas / experts.cards)

    def _experts_s(self, step: Step) -> tuple[float, float]:
        """Compute time of whole experts on the card with most, of tokens decoded and of chunks."""
        assert self._routing is not None
        flops = self._routing.most(step.routed).pairs / max(step.routed, 1) * self._pair_flops
        decoded = step.tokens + step.drafts + step.elsewhere[0]
        chunked_s = (step.routed - decoded) * flops / self._prefill_flops
        return decoded * flops / self._decode_flops, chunked_s

    def _copied(self, tokens: int) -> int | float:
        """Tokens of a request's that are moved with it; mean over the layers."""
        return tokens if self._groups is None else self._groups.copied(tokens)

    def _moved_s(self, tokens: int | float, efficiency: Efficiency) -> float:
        """Seconds to copy the KV of `tokens` within the memory: read and written."""
        return self._phase(0.0, tokens * self._copied_bytes, efficiency.migration)

    def _all_reduce_s(self, step: Step) -> float:
        assert self._link is not None
        each_s = self._link.all_reduce_s(self._cards, step.batched * self._state_bytes)
        if self._apart is None:
            return 2 * self._layers * each_s
        own = (2 * self._layers - self._mixed_layers) * each_s
        cards, size = self._apart.cards, self._state_bytes
        if self._apart.exchange == "all_reduce":
            return own + self._mixed_layers * self._link.all_reduce_s(cards, step.routed * size)
        # cards have equal shares of the tokens; those of others come to the fullest card, and go
        assert self._routing is not None
        away = self._routing.most(step.routed).tokens * (1 - 1 / cards)
        return own + 2 * self._mixed_layers * self._link.exchange_s(away * size)

    def _chunk_linear_s(self, chunks: list[Chunk]) -> float:
        """Compute time of the chunks' matrix products; only the end of a prefill needs the head."""
        tokens = sum(chunk.tokens for chunk in chunks)
        heads = sum(chunk.last for chunk in chunks)
        return (tokens * self._layer_flops + heads * self._head_flops) / self._prefill_flops

    def _chunk_attention(self, chunks: list[Chunk]) -> tuple[float, int | float]:
        """(compute seconds, bytes): a token attends to itself and all before it, or its window; KV
        moves once a chunk."""
        if self._groups is not None:
            spans = [self._groups.span(chunk.start, chunk.tokens) for chunk in chunks]
            each, read, written = (sum(column) for column in zip(*spans, strict=True))
            pairs_s = (
                each * self._chunk_flops + read * self._chunk_made_flops
            ) / self._prefill_flops
            return pairs_s, (read * self._repeats + written) * self._kv_bytes
        pairs = every = sum(c.tokens * c.start + c.tokens * (c.tokens + 1) // 2 for c in chunks)
        stored = sum(chunk.start for chunk in chunks)
        tokens = sum(chunk.tokens for chunk in chunks)
        moved = (stored * self._repeats + tokens) * self._kv_bytes
        moved += len(chunks) * self._recurrent_bytes
        scored_s = 0.0
        if (sparse := self._sparse) is not None:
            pairs = sum(sparse.pairs(chunk.start, chunk.tokens) for chunk in chunks)
            moved += tokens * self._index_bytes
            if not sparse.whole_prompts:
                moved += stored * self._index_bytes
                scored_s = every * self._index_flops / self._prefill_flops
        flops = pairs * self._chunk_flops + stored * self._chunk_made_flops
        converted_s = stored * self._repeats * self._load_s + tokens * self._store_s
        return flops / self._prefill_flops + converted_s + scored_s, moved

    def _computes(self, compute_s: float, moved_bytes: int | float, efficiency: float) -> bool:
        """Whether the FLOPs of a phase take longer than its bytes."""
        return compute_s > self._memory_s(moved_bytes, efficiency)

    def _phase(self, compute_s: float, moved_bytes: int | float, efficiency: float) -> float:
        return self._overlapped(compute_s, self._memory_s(moved_bytes, efficiency))

    def _memory_s(self, moved_bytes: int | float, efficiency: float) -> float:
        return moved_bytes / (self.bandwidth * efficiency)

    def _overlapped(self, compute_s: float, memory_s: float) -> float:
        return max(compute_s, memory_s) + self._left * min(compute_s, memory_s)
