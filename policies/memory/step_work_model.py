"""The work of the steps of a model on a card (`policies.memory.step_work`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwmodel.specs.device import Device
from hwmodel.specs.mlp import CardExperts
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_groups import KvGroups
from policies.allocators.kv_sparse import Sparse
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.routing import Routing
from policies.memory.step_work import (
    Collective,
    Free,
    Growing,
    Kind,
    Phase,
    PhaseName,
    Rate,
    StepWork,
)
from policies.memory.traffic import reading


class StepWorkModel:
    """Work of the steps of a model on one card, or of its shard on each of `cards`.

    routing: of a model with experts; uniform by default. free: what there is none of. groups: of a
    model with sliding windows, what its layers read. sparse: what decoding reads of all. commits:
    with drafts, the state that holds is copied (SGLang), not found by its slot (vLLM)."""

    def __init__(
        self, device: Device, model: TransformerSpec, cards: int = 1,
        routing: Routing | None = None, free: Sequence[Free] = (), groups: KvGroups | None = None,
        sparse: Sparse | None = None, commits: bool = False,
    ) -> None:  # fmt: skip
        assert groups is not None or model.window is None, "kv_layout says so first"
        self._groups, self._sparse, self._cards = groups, sparse, cards
        self._layers = model.layers
        self._apart = None if model.experts is None else model.experts.on_cards
        self._alone = cards == 1 and self._apart is None
        self._hidden_bytes = model.activation_bytes
        self.kv_bytes = model.kv_token_bytes
        """Of a token in all layers."""
        index_flops = self._index_bytes = 0
        if sparse is not None:
            self._index_bytes = model.layers * sparse.index_bytes
            index_flops = model.layers * sparse.index_flops
        self.moved_bytes = self.kv_bytes + self._index_bytes
        """Of a token that is moved, in all layers."""
        self._copies = "copies" not in free
        self._repeats = reading(device, model).repeats
        self._all_weight_bytes, self._experts = model.step_weight_bytes, model.experts
        self._routing = routing
        if model.experts is not None:
            self._routing = routing or Routing(model.experts)
            layers = range(model.layers)
            self._expert_bytes = sum(sum(model.expert_bytes(layer)) for layer in layers)
        if "weights" in free:
            self._all_weight_bytes, self._experts = 0, None
        self._all_weights: dict[Kind, Any] = {"weights": self._all_weight_bytes}
        self._state_bytes, self._commits = model.state_bytes(), commits
        self._state_row_bytes = model.state_row_bytes
        computes = int("compute" not in free)
        self._layer_flops: float = computes * model.layer_flops
        self._head_flops = computes * model.head_flops
        self._pair_flops, self._mixed_layers = 0, 0
        self._expert_flops = computes * _expert_flops(model)
        if self._apart is not None:
            self._without_pairs(model, self._apart, computes)
        decode, prefill = model.attending("decode"), model.attending("prefill")
        self._attention_flops, self._made_flops = computes * decode.pair, computes * decode.stored
        self._chunk_flops, self._chunk_made = computes * prefill.pair, computes * prefill.stored
        self._index_flops = computes * index_flops
        assert device.accelerator is not None
        self._more_flops = device.accelerator.kernels.chunk_keys * self._chunk_flops
        numbers = model.kv_layers * model.attention.halves * model.kv_heads * model.head_dim
        load, store = device.accelerator.compute.quantising_ops(model.kv)
        self._load_ops, self._store_ops = (computes * numbers * ops for ops in (load, store))
        self._row_flops = self._layer_flops + self._head_flops

    def of(self, step: Step, rounds: int) -> StepWork:
        """The work of `rounds` steps in which only the context grows, a token a request
        and step."""
        decode = step.tokens
        rows, chunked, heads = decode + step.drafts, 0, 0
        for chunk in step.chunks:
            chunked += chunk.tokens
            heads += chunk.last
        phases: dict[PhaseName, Phase] = {
            "weights": self._linear(step, rows, chunked, heads),
            "attention": self._attention(step, decode, rows, rounds),
        }
        if step.chunks:
            phases["prefill"] = self._prefill(step.chunks)
        if step.migrations and self._copies:
            phases["migration"] = self._migration(step)
        if self._copies and (copied := step.copied + step.aged):
            phases["copy"] = self._moved(copied)
        if step.swaps is not None:
            size = self.transferred(step.swaps.moved)
            waited = size * (1 - step.swaps.hidden / step.swapped)
            phases["swap"] = Phase({"transfers": size}, {}, waited)
        collectives = () if self._alone else self._collectives(step)
        expert_rows = expert_bytes = 0.0
        expert_flops: dict[Rate, float] = {}
        if self._routing is not None and self._experts is not None:
            pairs = self._experts.per_token * step.routed
            expert_rows = pairs / max(self._routing.distinct(step.routed), 1.0)
            expert_bytes = self._routing.expected(step.routed) * self._expert_bytes
            each: float = self._expert_flops
            decoded = rows
            if self._apart is not None:
                each, decoded = self._pairs_flops(step), rows + step.elsewhere[0]
            expert_flops = {"decode": decoded * each, "prefill": (step.routed - decoded) * each}
        padding = 1.0
        if chunked and (attended := phases["prefill"].flops["attend_prefill"]):
            padding += chunked * self._more_flops / attended
        return StepWork(
            rounds, self._layers, phases, collectives, 1, rows + chunked, expert_rows,
            expert_flops, expert_bytes, chunked, padding,
        )  # fmt: skip

    def _linear(self, step: Step, rows: int, chunked: int, heads: int) -> Phase:
        """The matrix products of so many rows that decode and so many tokens of chunks, of which
        only `heads`, those that end a prefill, need the head."""
        flops: dict[Rate, Any] = {"decode": rows * self._row_flops}
        if step.chunks:
            flops["prefill"] = chunked * self._layer_flops + heads * self._head_flops
        if self._apart is not None:
            each, decoded = self._pairs_flops(step), rows + step.elsewhere[0]
            flops["decode"] += decoded * each
            flops["prefill"] = flops.get("prefill", 0) + (step.routed - decoded) * each
        if self._routing is None or self._experts is None:
            return Phase(self._all_weights, flops, self._all_weight_bytes)
        fullest = self.weight_bytes(step)
        if self._apart is None:
            return Phase({"weights": fullest}, flops, fullest)
        mean = self._routing.distinct(step.routed) / self._apart.cards
        beyond = round((self._routing.expected(step.routed) - mean) * self._expert_bytes)
        return Phase({"weights": fullest - beyond}, flops, fullest)

    def _attention(self, step: Step, decode: int, rows: int, rounds: int) -> Phase:
        """Of `decode` tokens, `rows` with drafts."""
        context: Any = step.context if rounds == 1 else Growing(step.context, decode, rounds)
        pairs: float = step.pairs
        indexed: Any = 0
        scored: Any = 0
        if step.lengths is not None:
            if self._groups is not None:
                context = self._groups.read(step.lengths)
                if step.rows is not None:
                    pairs = self._groups.verified(step.lengths, step.rows)
            if self._sparse is not None:
                context, indexed = self._sparse.steps(step.lengths, rounds)
                scored = indexed
                if step.rows is not None:
                    pairs, scored = self._sparse.verified(step.lengths, step.rows)
        attended = (context + (decode + pairs)) * self._attention_flops
        if self._index_flops:
            attended = attended + scored * self._index_flops
        flops: dict[Rate, Any] = {"attend": attended}
        if self._made_flops:
            flops["decode"] = context * self._made_flops
        if self._load_ops or self._store_ops:
            loaded = context * self._repeats * self._load_ops
            flops["convert"] = loaded + rows * self._store_ops
        read, written = context * self.kv_bytes, rows * self.kv_bytes
        moved: dict[Kind, Any] = {"kv_read": read, "kv_written": written}
        waits = read + written
        if self._repeats > 1:
            moved["kv_again"] = again = read * (self._repeats - 1)
            waits = waits + again
        if self._state_bytes:
            passes = 2 + 2 * bool(step.drafts and self._commits)
            states = decode * passes * self._state_bytes + step.drafts * self._state_row_bytes
            moved["states"], waits = states, waits + states
        if self._index_bytes:
            index = (indexed + rows) * self._index_bytes
            moved["index"], waits = index, waits + index
        return Phase(moved, flops, waits)

    def _prefill(self, chunks: list[Chunk]) -> Phase:
        """Attention of chunks: a token attends to itself and all before it, or its window; KV moves
        once a chunk."""
        flops: dict[Rate, Any] = {}
        moved: dict[Kind, Any] = {}
        pairs: float
        stored: float
        if self._groups is not None:
            spans = [self._groups.span(chunk.start, chunk.tokens) for chunk in chunks]
            pairs, stored, written = (sum(column) for column in zip(*spans, strict=True))
        else:
            every = stored = written = 0
            for _, start, tokens, _ in chunks:
                every += tokens * start + tokens * (tokens + 1) // 2
                stored += start
                written += tokens
            pairs = every
            if (sparse := self._sparse) is not None:
                pairs = sum(sparse.pairs(chunk.start, chunk.tokens) for chunk in chunks)
                scores = not sparse.whole_prompts
                moved["index"] = (stored * scores + written) * self._index_bytes
                flops["attend_prefill"] = scores * every * self._index_flops
        flops["attend_prefill"] = flops.get("attend_prefill", 0) + pairs * self._chunk_flops
        if self._chunk_made:
            flops["prefill"] = stored * self._chunk_made
        if self._load_ops or self._store_ops:
            loaded = stored * self._repeats * self._load_ops
            flops["convert"] = loaded + written * self._store_ops
        read = stored * self.kv_bytes
        moved |= {"kv_read": read, "kv_written": written * self.kv_bytes}
        if self._repeats > 1:
            moved["kv_again"] = read * (self._repeats - 1)
        if self._state_bytes:
            moved["states"] = 2 * len(chunks) * self._state_bytes
        return Phase(moved, flops, sum(moved.values()))

    def _migration(self, step: Step) -> Phase:
        """Requests that are moved, each with its states."""
        groups = self._groups
        tokens: float = sum(
            migration.tokens if groups is None else groups.copied(migration.tokens)
            for migration in step.migrations
        )
        return self._moved(tokens, len(step.migrations))

    def transferred(self, tokens: Sequence[int]) -> float:
        """Bytes of requests with so many tokens each, and of their states, that are copied to or
        from another memory."""
        groups = self._groups
        kept = sum(tokens) if groups is None else sum(map(groups.copied, tokens))
        return kept * self.moved_bytes + len(tokens) * self._state_bytes

    def _moved(self, tokens: float, requests: int = 0) -> Phase:
        """KV of `tokens`, and states of `requests`, read and written."""
        each = tokens * self.kv_bytes
        moved: dict[Kind, Any] = {"kv_read": each, "kv_written": each}
        if self._index_bytes:
            moved["index"] = 2 * tokens * self._index_bytes
        if self._state_bytes and requests:
            moved["states"] = 2 * requests * self._state_bytes
        return Phase(moved, {}, sum(moved.values()))

    def lent(self, context: int, pairs: int, stored: int) -> tuple[Phase, Phase]:
        """(attention, prefill) of a card that only attends, for others: tokens that decode to
        `context` of KV together, and chunks to `stored` of it in so many pairs."""
        loads = self._repeats * self._load_ops
        flops: tuple[dict[Rate, Any], ...] = (
            {
                "attend": context * self._attention_flops,
                "convert": context * loads,
                "decode": context * self._made_flops,
            },
            {
                "attend_prefill": pairs * self._chunk_flops,
                "convert": stored * loads,
                "prefill": stored * self._chunk_made,
            },
        )
        read = [tokens * self._repeats * self.kv_bytes for tokens in (context, stored)]
        decode, chunks = (
            Phase({"kv_read": size}, each, size) for size, each in zip(read, flops, strict=True)
        )
        return decode, chunks

    def weight_bytes(self, step: Step) -> int:
        """Weights that the card with most of them reads; of experts the mean over draws."""
        if self._routing is None or self._experts is None:
            return self._all_weight_bytes
        idle = self._experts.held - self._routing.expected(step.routed)
        return self._all_weight_bytes - round(idle * self._expert_bytes)

    def _without_pairs(self, model: TransformerSpec, experts: CardExperts, computes: int) -> None:
        """Takes from the FLOPs of a token those of its experts, which other cards have too, and
        what is done for a card's own tokens only: those of router and shared experts."""
        mlps = [kind.mlp for kind, many in model.kinds.items() for _ in range(many)]
        mixed = [mlp for mlp in mlps if mlp.routed is not None]
        self._mixed_layers = len(mixed)
        self._pair_flops = computes * sum(mlp.expert_flops for mlp in mixed)
        self._layer_flops -= experts.per_token * self._pair_flops
        if experts.exchange == "all_to_all":
            always = sum(2 * part.rows * part.columns for mlp in mixed for part in mlp.always)
            self._layer_flops -= computes * always * (1 - experts.replicas / experts.cards)

    def _pairs_flops(self, step: Step) -> float:
        """FLOPs of a token in whole experts, on the card with most of them."""
        assert self._routing is not None
        return self._routing.most(step.routed).pairs / max(step.routed, 1) * self._pair_flops

    def _collectives(self, step: Step) -> tuple[Collective, ...]:
        """Two all-reduces a layer of the hidden state of each token. With whole experts the second
        one sums what they make, or instead of it tokens are dispatched to their experts' cards and
        combined."""
        size, own = self._hidden_bytes, 2 * self._layers - self._mixed_layers
        summed = Collective("all_reduce", self._cards, step.batched * size, own)
        if self._apart is None:
            return (summed,)
        cards, mixed = self._apart.cards, self._mixed_layers
        if self._apart.exchange == "all_reduce":
            return summed, Collective("all_reduce", cards, step.routed * size, mixed)
        # cards have equal shares of the tokens; those of others come to the fullest card, and go
        assert self._routing is not None
        away = self._routing.most(step.routed).tokens * (1 - 1 / cards)
        return summed, Collective("exchange", cards, away * size, 2 * mixed)


def _expert_flops(model: TransformerSpec) -> float:
    """Of a token, in its routed experts."""
    found = 0
    for kind, many in model.kinds.items():
        if (routed := kind.mlp.routed) is not None:
            found += many * routed.per_token * kind.mlp.expert_flops
    return found
