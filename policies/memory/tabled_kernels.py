"""A step with the kernels of a table: which of its kernels were measured, and how long they take.

Of the work of a step (`policies.memory.step_work`) what a table has in its measured range is taken
away, with its launches, and its time is added; the law of the class (`policies.memory.step`) gives
the time of what is left. `beyond` says of which kinds some was left.

Products are those that programs launch: q, k and v as one, gate and up as one. Decode attention is
scaled to the layout of the step: its table's time, by what the DRAM model gives at the table's own
layout over what it gives at the step's. A chunk of a prompt takes the share of the whole prompt's
time that it has of its pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hwmodel.specs.device import Device
from hwmodel.specs.kernel_table import KernelTables
from hwmodel.specs.kernel_tables import kernel_tables
from hwmodel.specs.number_format import Matrices, NumberFormat, number_format
from hwmodel.specs.state import LayerState
from hwmodel.specs.transformer import LayerKind, TransformerSpec
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.attention_read import read_share
from policies.memory.step_work import Collective, Phase, StepWork, each_of

_SAME_KERNELS = {"fp16": "bf16", "fp8_e4m3": "fp8", "mxfp4_experts": "mxfp4"}
"""Formats whose kernels are those of another, or of the format of their experts."""
_STATE_KERNELS = 2
"""Of a state layer's, those that its table has: the convolution and the recurrence."""


class Product(NamedTuple):
    """A product that is launched as one, as often as it stands in all layers."""

    format: str
    columns: int
    inner: int
    many: int
    bytes: int
    flops: int
    """A token."""


class Tabled(NamedTuple):
    """Seconds of what tables have of a step; `attention_s` a number or float64 (rounds,)."""

    weights_s: float = 0.0
    """Of the linear phase without the tokens of chunks."""
    chunks_s: float = 0.0
    """What those add to it."""
    attention_s: Any = 0.0
    prefill_s: float = 0.0
    all_reduce_s: float = 0.0
    launches_s: float = 0.0
    """Launches of the law that these times hold."""


class TabledKernels:
    """The tables of a device's `kernels`, for a model on one card, or for its shard on each of
    `cards`. Raises DescriptionError where the tables are not there."""

    def __init__(self, device: Device, model: TransformerSpec, cards: int) -> None:
        assert device.accelerator is not None
        self._law = law = device.accelerator.kernels
        assert law.tables is not None
        self._tables: KernelTables = kernel_tables(law.tables, law.system)
        self._device, self._model, self._cards = device, model, cards
        self.beyond: set[str] = set()
        """Kinds of which a step asked for shapes that were not measured."""
        self.scaled = True
        """Whether decode attention is scaled to the layout of steps; else it has the table's."""
        self._kv = _same(model.kv)
        self._hidden = model.hidden
        self._latent = self._latent_key()
        self._blocks = sorted({
            key[-1] for key in self._tables.grids("decode_attention")
            if key[:4] == (self._kv, model.heads, model.kv_heads, model.head_dim)
        })  # fmt: skip
        self._own: float | None = None
        self._layers = [
            (kind, many, list(_products(kind, many, model, self._latent is not None)))
            for kind, many in model.kinds.items()
        ]
        stored = number_format(model.weights)
        self._projections = [
            each
            for kind, many in model.kinds.items()
            if self._latent is not None and kind.attention and kind.attention.latent is not None
            for each in _fused(kind.attention.matrices, kind.attention.fused, many, stored)
        ]
        """Of latent attention, in the times of its table."""
        head = stored.part("head")
        bits = head.matrix_bits(model.vocabulary, model.hidden)
        self._head = Product(
            _same(head.name), model.vocabulary, model.hidden, 1, bits // 8, model.head_flops
        )
        self._routed = _experts_key(model, cards)
        self._routed_flops, self._fixed_bytes = 0, model.step_weight_bytes
        self._routed_layers = 0
        for kind, many, _ in self._layers:
            if (routed := kind.mlp.routed) is not None:
                self._routed_flops += many * routed.per_token * kind.mlp.expert_flops
                self._routed_layers += many
        if model.experts is not None:
            every = sum(sum(model.expert_bytes(layer)) for layer in range(model.layers))
            self._fixed_bytes -= model.experts.held * every
        self._linear = lru_cache(maxsize=4096)(self._linear_parts)

    def of(self, step: Step, work: StepWork, attention_share: float) -> tuple[StepWork, Tabled]:
        """(what is left of the work to the law, the time of the rest). attention_share: of the
        peak, at which the step's decode attention reads."""
        phases = dict(work.phases)
        heads = step.decoded + len(step.chunks)  # vLLM samples of every chunk
        prompt = sum(chunk.tokens for chunk in step.chunks)
        rows = step.decoded + prompt
        attention, kernels_us, decoded = self._attention(step, phases, work.rounds, attention_share)
        prefill, more_us, filled = self._prefill(step, phases)
        taken = self._with_projections(
            self._linear(rows, heads), rows, step.decoded * decoded + prompt * filled
        )
        alone = self._linear(max(step.decoded, 1), max(step.decoded, 1)) if prompt else taken
        linear = phases["weights"]
        if work.rows and (taken.us or taken.flops):
            waits = linear.waits
            if taken.experts:
                waits = self._fixed_bytes
            experts = {} if taken.experts else work.expert_flops
            plain = {rate: count - experts.get(rate, 0) for rate, count in linear.flops.items()}
            kept = max(1 - taken.flops / max(sum(plain.values()), 1), 0.0)
            flops = {rate: kept * count + experts.get(rate, 0) for rate, count in plain.items()}
            phases["weights"] = linear._replace(flops=flops, waits=max(waits - taken.bytes, 0))
            if taken.experts:
                work = work._replace(expert_flops={}, expert_bytes=0.0)
        launches_us = taken.launches_us * bool(work.rows)
        all_reduce_s, collectives = self._collectives(work)
        left = work._replace(phases=phases, collectives=collectives)
        first_us = min(alone.us, taken.us) * bool(work.rows)
        return left, Tabled(
            first_us * 1e-6, (taken.us * bool(work.rows) - first_us) * 1e-6, attention * 1e-6,
            prefill * 1e-6, all_reduce_s, (launches_us + max(kernels_us, more_us)) * 1e-6,
        )  # fmt: skip

    def _linear_parts(self, rows: int, heads: int) -> _Linear:
        """The products of so many tokens, and of the head of `heads` of them."""
        us = taken_bytes = taken_flops = launches_us = 0.0
        for kind, _, products in self._layers:
            expected = self._products(kind)
            shares = [self._product(each, rows) for each in products]
            for each, found in zip(products, shares, strict=True):
                if found is not None:
                    us += each.many * found
                    taken_bytes += each.bytes
                    taken_flops += each.flops * rows
                    part = each.many * self._law.product * 1e-3
                    launches_us += part * min(expected / len(products), 1)
        if heads and (found := self._product(self._head, heads)) is not None:
            us += found
            taken_bytes += self._head.bytes
            taken_flops += self._head.flops * heads
        routed = None
        if self._routed_layers:
            routed = self._us("experts", self._routed, rows)
        if routed is not None:
            us += self._routed_layers * routed
            taken_flops += self._routed_flops * rows
            law = self._law
            sorting = law.expert_kernels - law.kernels
            one_ns = 2 * law.product + max(sorting, 0) * law.kernel
            launches_us += self._routed_layers * one_ns * 1e-3
        return _Linear(us, taken_bytes, taken_flops, launches_us, routed is not None)

    def _with_projections(self, taken: _Linear, rows: int, timed: int) -> _Linear:
        """timed: of the rows, those whose projections are in the times of latent attention."""
        if not (self._projections and timed):
            return taken
        flops = taken.flops + timed * sum(each.flops for each in self._projections)
        if timed < rows:  # what reads and launches them for the others remains
            return taken._replace(flops=flops)
        read = sum(each.bytes for each in self._projections)
        launches = sum(
            many * max(self._products(kind) - len(products), 0)
            for kind, many, products in self._layers
            if kind.attention is not None
        )
        return taken._replace(
            flops=flops,
            bytes=taken.bytes + read,
            launches_us=taken.launches_us + launches * self._law.product * 1e-3,
        )

    def _products(self, kind: LayerKind) -> float:
        """Of a layer, those that the law launches, without those of routed experts."""
        routed = kind.mlp.routed is not None
        return self._law.expert_products - 2 if routed else self._law.products

    def _us(self, kind: str, key: tuple[Any, ...] | None, *shape: float) -> float | None:
        """Microseconds of a kernel; None where it was not measured, as `beyond` then says."""
        us = float("nan") if key is None else float(self._tables.us(kind, key, *shape))
        if us == us:
            return us
        self.beyond.add(kind)
        return None

    def _product(self, product: Product, rows: int) -> float | None:
        return self._us("product", (product.format,), rows, product.columns, product.inner)

    def _attention(
        self, step: Step, phases: dict[Any, Phase], rounds: int, share: float
    ) -> tuple[Any, float, bool]:
        """(microseconds of the decode attention and states that tables have, launches), taken from
        the phase; and whether they have that attention."""
        many, phase = len(step.decode), phases["attention"]
        if not many:
            return 0.0, 0.0, False
        plain = step.decoded == many and "index" not in phase.bytes
        context: Any = max(step.context / many, 1.0)
        if rounds > 1:
            context = context + np.arange(rounds)
        us: Any = 0.0
        launches_us, flops, waits = 0.0, dict(phase.flops), phase.waits
        found = self._decode_us(many, context) if plain else float("nan")
        if measured := bool(np.isfinite(found).all()):
            us = us + found * self._scale(share)
            states = phase.bytes.get("states", 0)
            waits, flops = states + 0 * waits, {rate: 0 * each for rate, each in flops.items()}
            launches_us += self._attending * self._law.attention * 1e-3
        else:
            self.beyond.add("latent_decode" if self._is_latent else "decode_attention")
        for kind, layers, _ in self._layers:
            if kind.state is None:
                continue
            found = self._us("state_decode", _state_key(kind.state) if plain else None, many)
            if found is None:
                continue
            us = us + layers * found
            waits = waits - layers * 2 * many * kind.state.bytes()
            launches_us += layers * _STATE_KERNELS * self._law.kernel * 1e-3
        phases["attention"] = phase._replace(flops=flops, waits=np.maximum(each_of(waits), 0)[()])
        return us, launches_us, measured

    def _prefill(self, step: Step, phases: dict[Any, Phase]) -> tuple[float, float, bool]:
        """The same of chunks."""
        if "prefill" not in phases:
            return 0.0, 0.0, False
        phase = phases["prefill"]
        found = sum(self._chunk_us(chunk) for chunk in step.chunks)
        if found != found or "index" in phase.bytes:
            self.beyond.add("latent_prefill" if self._is_latent else "prefill_attention")
            return 0.0, 0.0, False
        flops = dict.fromkeys(phase.flops, 0.0)
        waits = phase.bytes.get("states", 0)
        us, launches_us = found, self._attending * self._law.attention * 1e-3
        for kind, layers, _ in self._layers:
            if kind.state is None:
                continue
            key = _state_key(kind.state)
            each = [self._us("state_prefill", key, 1, chunk.tokens) for chunk in step.chunks]
            if None in each:
                continue
            us += layers * sum(filter(None, each))
            waits -= layers * 2 * len(step.chunks) * kind.state.bytes()
            launches_us += layers * _STATE_KERNELS * self._law.kernel * 1e-3
        phases["prefill"] = phase._replace(flops=flops, waits=max(waits, 0))
        return us, launches_us, True

    def _collectives(self, work: StepWork) -> tuple[float, tuple[Collective, ...]]:
        """(seconds of those that tables have, the others)."""
        seconds, left = 0.0, []
        for sent in work.collectives:
            if sent.kind == "all_reduce":
                us = self._us("all_reduce", (sent.cards,), max(sent.bytes, 1))
                many = sent.many
            else:
                experts = self._model.experts
                assert experts is not None
                key = (sent.cards, self._hidden, experts.per_token, experts.count)
                us = self._us("all_to_all", key, max(work.rows / sent.cards, 1))
                many = sent.many / 2
            if us is None:
                left.append(sent)
            else:
                seconds += many * us * 1e-6
        return seconds, tuple(left)

    @property
    def _is_latent(self) -> bool:
        return self._model.attention.latent is not None

    @property
    def _attending(self) -> int:
        """Layers with attention."""
        return sum(many for kind, many, _ in self._layers if kind.attention is not None)

    def _decode_us(self, sequences: int, context: Any) -> Any:
        """Microseconds of the attention of all layers; NaN where one was not measured."""
        if self._is_latent:
            if self._latent is None:
                return float("nan")
            each = self._tables.us("latent_decode", self._latent, sequences, context)
            return self._attending * each
        us: Any = 0.0
        for kind, many, _ in self._layers:
            if kind.attention is not None:
                us = us + many * self._layer_us("decode", kind, sequences, context)
        return us

    def _layer_us(self, phase: str, kind: LayerKind, sequences: int, tokens: Any) -> Any:
        model = self._model
        key: tuple[Any, ...] = (
            self._kv, model.heads, model.kv_heads, model.head_dim, kind.window or 0
        )  # fmt: skip
        if phase == "decode":
            if not self._blocks:
                return float("nan")
            key = (*key, self._blocks[0])
        return self._tables.us(f"{phase}_attention", key, sequences, tokens)

    def _chunk_us(self, chunk: Chunk) -> float:
        """Microseconds of the attention of a chunk in all layers."""
        whole = chunk.start + chunk.tokens
        pairs = chunk.tokens * (chunk.start + whole + 1) / (whole * (whole + 1))
        if self._is_latent:
            if self._latent is None:
                return float("nan")
            us = float(self._tables.us("latent_prefill", self._latent, 1, whole))
            return self._attending * us * chunk.tokens / whole
        found = 0.0
        for kind, many, _ in self._layers:
            if kind.attention is not None:
                share = pairs if not kind.window or whole <= kind.window else chunk.tokens / whole
                found += many * share * float(self._layer_us("prefill", kind, 1, whole))
        return found

    def _scale(self, share: float) -> float:
        """Times the table's time, that decode attention takes at the step's layout; a given memory
        has no layouts."""
        if not self.scaled or self._device.given is not None:
            return 1.0
        if self._own is None:
            block = 64 if self._is_latent or not self._blocks else self._blocks[0]
            self._own = read_share(self._device, self._model.kv_half_bytes, block)
        return self._own / share

    def _latent_key(self) -> tuple[Any, ...] | None:
        """Of the tables with projections; None: this model's are not there."""
        attention = self._model.attention
        if attention.latent is None:
            return None
        stored = number_format(self._model.weights).part("q_b")
        key = (
            _same(stored.name), self._kv, self._hidden, attention.latent.kept, attention.heads
        )  # fmt: skip
        return key if key in self._tables.grids("latent_decode") else None


class _Linear(NamedTuple):
    us: float
    bytes: float
    flops: float
    launches_us: float
    experts: bool
    """Whether routed experts are among them."""


def _same(name: str) -> str:
    """The name under which tables have the kernels of a format."""
    return _SAME_KERNELS.get(name, name)


def _products(
    kind: LayerKind, many: int, model: TransformerSpec, latent: bool
) -> Iterator[Product]:
    """The products of a kind of layer but for routed experts; latent: its attention's projections
    are in the table of attention."""
    stored = number_format(model.weights)
    if kind.attention is not None and not (latent and kind.attention.latent is not None):
        yield from _fused(kind.attention.matrices, kind.attention.fused, many, stored)
    if kind.state is not None:
        yield from _fused(kind.state.matrices, (), many, stored)
    parts = [each for each in kind.mlp.always if each.rows]
    yield from _fused(parts, ("gate", "up"), many, stored)


def _fused(
    parts: list[Matrices], together: tuple[str, ...], many: int, stored: NumberFormat
) -> Iterator[Product]:
    """Products of these matrices, those of the parts `together` as one."""
    one = [each for each in parts if each.part in together]
    for group in [one, *([each] for each in parts if each.part not in together)]:
        if group:
            form = stored.part(group[0].part)
            bits = sum(form.matrix_bits(each.rows, each.columns) for each in group)
            columns, inner = sum(each.rows for each in group), group[0].columns
            form_name = "bf16" if group[0].part == "vectors" else _same(form.name)
            yield Product(
                form_name, columns, inner, many, many * bits // 8, many * 2 * columns * inner
            )


def _experts_key(model: TransformerSpec, cards: int) -> tuple[Any, ...] | None:
    """Of routed experts, split over the cards; None: there are none, or whole ones on each."""
    experts = model.experts
    if experts is None or experts.on_cards is not None:
        return None
    form = _same(number_format(model.weights).part("up").name)
    width = experts.intermediate * cards
    return form, model.hidden, width, experts.per_token, experts.count, cards


def _state_key(state: LayerState) -> tuple[Any, ...]:
    keys = state.key_heads or state.groups
    return state.kind, state.heads, state.head_dim, keys, state.key_dim or state.size
