"""How long a step takes: compute and memory of its phases (a roofline each), and fixed overheads.

What a step does is its `StepWork` (`policies.memory.step_work`). Phases follow one another, unless
they are moved together (`FidelitySpec.phases`): then all their bytes are one phase with all their
FLOPs. Linear: the tokens of prompt chunks run through the same matrix products as the decoding ones
(vLLM v1 makes one batch of both), so the weights are read once beside the FLOPs of all. Swap: over
the link to the host, while nothing else runs. Collectives: over the links between cards, while
nothing else runs. Within a phase compute and memory overlap (`max`), not (`sum`) or in part.
Williams et al. 2009, "Roofline".

A kernel that looks blocks up may slow the decode attention down by a factor (`slowdown`). What
kernels take beyond bytes and FLOPs is the device's law (`hwmodel.specs.kernel_law`): a time of each
kernel, the share of the memory's rate that it reaches, rows padded to tiles; decode attention
beside a chunk takes a multiple of its time; attention of a chunk has tiles of its own, and the
activations that other kernels move beside its products take the memory's time. Where the device
names tables of measured kernels, these have theirs (`policies.memory.tabled_kernels`).

Reported are `weights`, the linear phase as it would be without the chunks' FLOPs; `prefill`, what
the chunks add to it and their attention; `attention`; `migration`; `copy`; `swap`; and
`all_reduce`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.jit import kernel
from hwmodel.specs.device import Device
from hwmodel.specs.kernel_law import KernelLaw
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_groups import KvGroups
from policies.allocators.kv_sparse import Sparse
from policies.engines.scheduled_step import Step
from policies.memory.kv_share import fill_shares
from policies.memory.products import Products
from policies.memory.routing import Routing
from policies.memory.step_times import Efficiency, StepTimes
from policies.memory.step_work import Collective, Free, Phase, StepWork, each_of
from policies.memory.step_work_model import StepWorkModel
from policies.memory.tabled_kernels import Tabled, TabledKernels
from policies.requests.requests import FloatArray


class StepModel:
    """Step times of a model on one device, or on `cards` of them that each hold a shard of it (see
    `hwmodel.specs.transformer.shard`). Raises DescriptionError if the device cannot compute, or has
    no links to the others.

    slowdown: of the decode attention by its kernel (`PolicyOptions.kernel_cost`).
    together: phases of DRAM are one, but for copies (`FidelitySpec.phases`).
    even: decode attention reads at the efficiency handed in, also where a given memory has shares
    by size.
    routing, free, groups, sparse, commits: see `StepWorkModel`."""

    stages = 1
    pipeline: Any = None

    def __init__(
        self, device: Device, model: TransformerSpec, cards: int = 1, slowdown: float = 1.0,
        routing: Routing | None = None, free: Sequence[Free] = (), together: bool = False,
        groups: KvGroups | None = None, sparse: Sparse | None = None, even: bool = False,
        commits: bool = False,
    ) -> None:  # fmt: skip
        if device.accelerator is None:
            raise DescriptionError(f"{device.name} is a memory; serving needs an accelerator")
        self._shares: tuple[FloatArray, FloatArray] | None = None
        if (given := device.given) is not None and given.attention is not None and not even:
            points = np.array([(each.size, each.share) for each in given.attention], np.float64)
            self._shares = np.log(points[:, 0]), points[:, 1]
        compute, self._link = device.accelerator.compute, device.accelerator.card_link
        apart = model.experts is not None and model.experts.on_cards is not None
        if self._link is None and (cards > 1 or apart):
            key = "tensor_parallel" if cards > 1 else "expert_parallel"
            raise DescriptionError(f"{device.name} has no link, which {key} needs")
        self.work = StepWorkModel(device, model, cards, routing, free, groups, sparse, commits)
        self._cards = cards
        self._slowdown = slowdown
        self._together = together
        self._kv_layers = model.kv_layers
        # attention multiplies what flows between layers with KV that is converted to it
        self._products, other = Products(device, model), compute.peak(model.activations)
        self._rates: dict[str, float] = {
            "decode": self._products.decode_rate,
            "prefill": self._products.prefill_rate,
            "attend": other * device.accelerator.kernels.attention_efficiency,
            "attend_prefill": other
            * (compute.prefill_efficiency * device.accelerator.kernels.chunk_attention),
            "convert": compute.vector_rate,
        }
        self.bandwidth = device.peak_gbps * 1e9
        self._law = law = device.accelerator.kernels
        self._kv_bandwidth = self.bandwidth * law.kv
        self._kernel_bytes = law.chunk_activations * model.kernel_bytes
        if {"weights", "compute"}.intersection(free):
            self._kernel_bytes = 0
        host = device.accelerator.host
        self._host_bandwidth = host.bandwidth if host else 0.0
        self._left = 1.0 - compute.overlap
        self.tabled: TabledKernels | None = None
        """Where the device names measured kernels."""
        if law.tables is not None:
            if together or {"weights", "compute"}.intersection(free):
                raise DescriptionError(
                    f"kernels.tables: {law.tables} has times of whole kernels, and neither phases"
                    " together nor steps without weights or compute; leave it out"
                )
            self.tabled = TabledKernels(device, model, cards)
        self._launch_ns = law.host, _launches_ns(law, model) / model.layers

    def times(self, step: Step, rounds: int, efficiency: Efficiency) -> StepTimes:
        work = self.work.of(step, rounds)
        if self.tabled is None:
            return self._roofline(work, efficiency)
        law = self._roofline(work, efficiency)
        left, found = self.tabled.of(step, work, efficiency.attention)
        beside = self._law.beside_chunk if "prefill" in work.phases else 1.0
        return _with_tables(self._roofline(left, efficiency), found, law, self._slowdown * beside)

    def _roofline(self, work: StepWork, efficiency: Efficiency) -> StepTimes:
        """Times of this work, by the law of its kernels."""
        phases, rates, bandwidth = work.phases, self._rates, self._kv_bandwidth
        linear, attention, prefill = phases["weights"], phases["attention"], phases.get("prefill")
        products = self._products.seconds(work, linear, efficiency.weights)
        weights_s = 0.0
        for alone_s, _, read_s in products:
            weights_s += self._overlapped(alone_s, read_s)
        left = self._left
        attended: Any = attention.flops["attend"] / rates["attend"]
        if len(attention.flops) > 1:
            attended = self._compute_s(attention.flops)
        share = efficiency.attention
        if self._shares is not None:
            share = self._kv_share(attention.waits, efficiency)
        memory_s = attention.waits / (bandwidth * share)
        slowdown = self._slowdown
        if prefill is not None:
            slowdown *= self._law.beside_chunk
        linear_phase_s, prefill_s, compute_s = weights_s, 0.0, 0.0
        flops_s = moved_s = chunk_memory_s = 0.0
        if prefill is not None:
            linear_phase_s = sum(self._overlapped(flops, read) for _, flops, read in products)
            flops_s, moved_s = (
                self._compute_s(prefill.flops), prefill.waits / (bandwidth * efficiency.prefill)
            )  # fmt: skip
            padded_s = prefill.flops.get("attend_prefill", 0) / rates["attend_prefill"]
            flops_s += (work.chunk_padding - 1) * padded_s
            chunk_s, chunk_memory_s = self._overlapped(flops_s, moved_s), moved_s
            if flops_s > moved_s:
                compute_s = chunk_s
                chunk_memory_s *= left
            prefill_s = linear_phase_s - weights_s + chunk_s
        for _, together_s, read_s in products:
            if together_s > read_s:
                compute_s += self._overlapped(together_s, read_s)
        migration_s = copy_s = swap_s = all_reduce_s = 0.0
        if len(phases) > 2:
            migration_s = self._copy_s(phases.get("migration"), efficiency)
            copy_s = self._copy_s(phases.get("copy"), efficiency)
            if (swap := phases.get("swap")) is not None:
                swap_s = swap.waits / self._host_bandwidth
        if work.collectives:
            all_reduce_s = sum(map(self._collective_s, work.collectives))
        launch_ns, layer_ns = self._launch_ns
        overhead_s = (launch_ns + work.layers * layer_ns) * 1e-9
        before_s = 0.0
        if self._together:
            # all FLOPs beside all bytes; a phase is charged what it adds to those before
            flops_s += sum(each[1] for each in products)
            moved_s += sum(each[2] for each in products)
            before_s = self._overlapped(flops_s, moved_s)
            prefill_s = chunk_memory_s = before_s - weights_s
        if work.chunk_rows:
            moved_bytes = work.chunk_rows * self._kernel_bytes
            prefill_s += moved_bytes / (self.bandwidth * self._law.weights * efficiency.weights)
        rest_s = copy_s + swap_s + all_reduce_s
        if work.rounds > 1:
            beside = flops_s, moved_s, before_s
            in_turn = weights_s, compute_s, prefill_s, migration_s, overhead_s, rest_s
            times_s = np.empty((3, work.rounds))
            _attending(
                attended, memory_s, slowdown, left, self._together, beside, in_turn, times_s
            )  # fmt: skip
            attention_s, total_s, computing_s = times_s
        else:
            if self._together:
                flops_s, moved_s = flops_s + slowdown * attended, moved_s + slowdown * memory_s
                whole_s = self._overlapped(flops_s, moved_s)
                one_s, compute_s = whole_s - before_s, whole_s * (flops_s > moved_s)
            else:
                one_s = slowdown * self._overlapped(attended, memory_s)
                compute_s += one_s * (attended > memory_s)
            all_s = weights_s + one_s + prefill_s + migration_s + overhead_s + rest_s
            times_s = np.array((one_s, all_s, compute_s))  # faster cut than as three
            attention_s, total_s, computing_s = times_s[:1], times_s[1:2], times_s[2:]
        return StepTimes(
            weights_s, attention_s, prefill_s, migration_s, overhead_s, total_s, computing_s,
            copy_s, swap_s, all_reduce_s, chunk_memory_s, None, 0.0, work,
        )  # fmt: skip

    def attention_alone_s(
        self, context: int, pairs: int, stored: int, efficiency: Efficiency
    ) -> float:
        """Seconds of a card that only attends: tokens that decode to `context` of KV together, and
        chunks to `stored` of it in so many pairs."""
        decode, chunks = self.work.lent(context, pairs, stored)
        share = self._kv_share(decode.waits, efficiency)
        kv = self._law.kv
        decode_s = self._phase(self._compute_s(decode.flops), decode.waits, kv * share)
        chunks_s = self._phase(self._compute_s(chunks.flops), chunks.waits, kv * efficiency.prefill)
        return self._slowdown * decode_s + chunks_s

    def host_s(self, size: float) -> float:
        """Seconds to copy so many bytes of a card to the host, or back."""
        return size / self._host_bandwidth

    def _kv_share(self, moved_bytes: Any, efficiency: Efficiency) -> Any:
        """Share of the peak at which decode attention moves so many bytes of all layers."""
        if self._shares is None:
            return efficiency.attention
        each = np.asarray(each_of(moved_bytes), np.float64)
        found = np.empty(each.size)
        fill_shares(each.reshape(-1), float(self._kv_layers), *self._shares, found)
        return found if each.ndim else float(found[0])

    def _compute_s(self, flops: Mapping[Any, Any]) -> Any:
        """Seconds of a phase's FLOPs."""
        seconds: Any = 0.0
        for rate, count in flops.items():
            seconds = seconds + count / self._rates[rate]
        return seconds

    def _copy_s(self, phase: Phase | None, efficiency: Efficiency) -> float:
        """Seconds to copy KV within the memory."""
        return 0.0 if phase is None else self._phase(0.0, phase.waits, efficiency.migration)

    def _collective_s(self, sent: Collective) -> float:
        assert self._link is not None
        if sent.kind == "all_reduce":
            return sent.many * self._link.all_reduce_s(sent.cards, sent.bytes, self._law.nccl)
        return sent.many * self._link.exchange_s(sent.bytes)

    def _phase(self, compute_s: float, moved_bytes: float, efficiency: float) -> float:
        return self._overlapped(compute_s, moved_bytes / (self.bandwidth * efficiency))

    def _overlapped(self, compute_s: float, memory_s: float) -> float:
        if compute_s > memory_s:
            return compute_s + self._left * memory_s
        return memory_s + self._left * compute_s


def _with_tables(left: StepTimes, found: Tabled, law: StepTimes, slowdown: float) -> StepTimes:
    """Times of a step of which tables have `found` and the law gives what is `left`. What compute
    bounds has the share that it has by the law of the whole step, `law`."""
    attention_s = slowdown * found.attention_s
    prefill_s = found.chunks_s + found.prefill_s
    overhead_s = left.overhead_s - found.launches_s
    more_s = found.weights_s + prefill_s + found.all_reduce_s - found.launches_s
    total_s = left.total_s + attention_s + more_s
    return law._replace(
        weights_s=left.weights_s + found.weights_s,
        attention_s=left.attention_s + attention_s,
        prefill_s=left.prefill_s + prefill_s,
        overhead_s=overhead_s,
        total_s=total_s,
        compute_s=total_s * (law.compute_s / law.total_s),
        all_reduce_s=left.all_reduce_s + found.all_reduce_s,
        chunk_memory_s=min(law.chunk_memory_s, left.prefill_s + prefill_s),
    )


@kernel
def _attending(
    flops_s: FloatArray, bytes_s: FloatArray, slowdown: float, left: float, together: bool,
    beside: tuple[float, float, float],
    in_turn: tuple[float, float, float, float, float, float], seconds: FloatArray,
) -> None:  # fmt: skip
    """Times of steps whose decode attention takes `flops_s` and `bytes_s`, float64 (rounds,) each,
    which overlap but for the share `left`.

    beside: seconds of all other FLOPs, of all other bytes and of these without the attention, where
    phases are `together`. in_turn: seconds of a step's weights, of its phases that compute bounds,
    prefill, migration, overhead, and what is left. seconds: float64 (3, rounds), modified:
    attention, all, what compute bounds."""
    other_flops_s, other_bytes_s, before_s = beside
    weights_s, compute_s, prefill_s, migration_s, overhead_s, rest_s = in_turn
    for step in range(len(flops_s)):
        if together:
            flops = other_flops_s + slowdown * flops_s[step]
            moved = other_bytes_s + slowdown * bytes_s[step]
            whole = max(flops, moved) + left * min(flops, moved)
            attention = whole - before_s
            computing = whole if flops > moved else 0.0
        else:
            flops, moved = flops_s[step], bytes_s[step]
            attention = slowdown * (max(flops, moved) + left * min(flops, moved))
            computing = compute_s + (attention if flops > moved else 0.0)
        seconds[0, step] = attention
        total = weights_s + attention + prefill_s + migration_s + overhead_s + rest_s
        seconds[1, step], seconds[2, step] = total, computing


def _launches_ns(law: KernelLaw, model: TransformerSpec) -> float:
    """Of the kernels of all layers, beside their bytes and FLOPs."""
    found = 0.0
    for kind, many in model.kinds.items():
        experts = kind.mlp.routed is not None
        products = law.expert_products if experts else law.products
        kernels = law.expert_kernels if experts else law.kernels
        if kind.state is not None:
            kernels += law.state_kernels
        each = products * law.product + kernels * law.kernel
        found += many * (each + (law.attention if kind.attention is not None else 0.0))
    return found
