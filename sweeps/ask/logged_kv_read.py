"""The KV read of logged decode steps, at the blocks a server gave them and as if contiguous.

Each step's attention of one layer is simulated at its real addresses (`policies.memory.probe`):
whole where it is no larger than `whole`, else a window of half of that after as much of warm-up.
Beside it the same requests lie side by side somewhere, each in one run. Steps come one at a time
and leave only sums behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hwmodel.description.description import DescriptionError, Document
from hwmodel.kernel.memory import simulate_system
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec, load_model, shard
from policies.allocators.kv_layout import KvLayout, Units, kv_layout
from policies.memory import traffic
from policies.memory.fidelity import FidelitySpec
from policies.memory.probe import Probe, Probed
from policies.requests.requests import IntArray
from policies.serving.server_log import BlockLog, LoggedStep

WHOLE = "64MiB"
"""Of a layer's KV, about a second of simulation on the accelerators that ship (assumed)."""


@dataclass
class Totals:
    """Sums over the steps read so far."""

    steps: int = 0
    read_bytes: float = 0.0
    seconds: float = 0.0
    contiguous_seconds: float = 0.0

    def add(self, result: dict[str, Any]) -> None:
        """One more step."""
        self.steps += 1
        self.read_bytes += result["layer_bytes"]
        self.seconds += result["layer_bytes"] / result["kv_gbps"] * 1e-9
        self.contiguous_seconds += result["layer_bytes"] / result["contiguous_gbps"] * 1e-9

    def record(self) -> dict[str, Any]:
        """GB/s over all steps, bytes over time; nothing where there was no step."""
        if not self.steps:
            return {"steps": 0}
        return {
            "steps": self.steps,
            "kv_gbps": self.read_bytes / self.seconds * 1e-9,
            "contiguous_gbps": self.read_bytes / self.contiguous_seconds * 1e-9,
            "of_contiguous": self.contiguous_seconds / self.seconds,
        }


def totals(steps: Iterable[dict[str, Any]]) -> Totals:
    """What steps come to together."""
    found = Totals()
    for step in steps:
        found.add(step)
    return found


class BlockReplay:
    """A log on a device. Raises DescriptionError where they do not go together."""

    def __init__(
        self, device: Device, log: BlockLog, model: str | None = None, whole: str = WHOLE
    ) -> None:
        self.device, self.log = device, log
        self.model = _model(log, model)
        self.layout = _layout(device, self.model, log)
        spec = Document({"probe_bytes": whole}, "--whole").build(FidelitySpec)
        window = {"probe_bytes": spec.probe_bytes // 2}  # and as much of warm-up
        self._probe = Probe(device, spec.model_copy(update=window), simulate_system)
        self._reading = traffic.reading(device, self.model)

    def steps(self, every: int = 1) -> Iterator[dict[str, Any]]:
        """What each step comes to (each `every`-th of them), as it is read. Raises
        DescriptionError with the line where a block is outside the KV cache."""
        for index, step in enumerate(self.log):
            self._check(step)
            if index % every == 0:
                yield self._measure(index, step)

    def _check(self, step: LoggedStep) -> None:
        most = self.layout.slots // self.log.header.block_size - 1
        highest = max(int(blocks.max()) for blocks in step.blocks)
        if highest > most:
            raise DescriptionError(
                f"block {highest} is outside the KV cache, whose last block is {most} on "
                f"{self.device.name}; `blocks` in the header says how many the server had",
                self.log.path, step.line,
            )  # fmt: skip

    def _measure(self, index: int, step: LoggedStep) -> dict[str, Any]:
        size = self.log.header.block_size
        units = step.units(size)
        logged, extents = self._read(index, units)
        contiguous, _ = self._read(index, step.contiguous(size, self._somewhere(index, step)))
        read = ~extents.write
        peak = self.device.peak_gbps
        return {
            "time_s": step.time_s, "line": step.line, "sequences": len(units),
            "tokens": int(step.tokens.sum()), "blocks": sum(map(len, step.blocks)),
            "runs": sum(_runs(blocks) for blocks in step.blocks),
            "extent_bytes": float(extents.size[read].mean()) if read.any() else 0.0,
            "layer_bytes": int(extents.size.sum()), "kv_gbps": peak * _share(logged),
            "row_hit_rate": logged.result.row_hit_rate,
            "contiguous_gbps": peak * _share(contiguous),
            "contiguous_row_hit_rate": contiguous.result.row_hit_rate,
            "of_contiguous": _share(logged) / _share(contiguous),
            "whole": logged.exact and contiguous.exact,
        }  # fmt: skip

    def _somewhere(self, index: int, step: LoggedStep) -> int:
        """A first slot for the contiguous batch: another one in each step, so that no single
        alignment of the engines' extents decides."""
        size = self.log.header.block_size
        free = self.layout.slots // size - sum(map(len, step.blocks))
        return size * int(np.random.default_rng((index, 1)).integers(max(free, 0) + 1))

    def _read(self, index: int, units: list[Units]) -> tuple[Probed, traffic.Extents]:
        """Both placements of a step are read in the same layer, from the same place on."""
        new = np.ones(len(units), np.int64)
        layers: dict[int, traffic.Extents] = {}

        def layer(number: int) -> traffic.Extents:
            layers[number] = traffic.decode(self.layout, units, new, number, self._reading)
            return layers[number]

        rng = np.random.default_rng(index)
        found = self._probe.measure(layer, self.model.layers, self._reading.spread, rng)
        return found, next(iter(layers.values()))


def replay_blocks(
    device: Device, log: Path, model: str | None = None, every: int = 1, whole: str = WHOLE
) -> tuple[BlockReplay, Iterable[dict[str, Any]]]:
    """A log's steps on a device. Raises DescriptionError."""
    if every < 1:
        raise DescriptionError(f"expected 1 or more; got {every}", "--every")
    replay = BlockReplay(device, BlockLog(log), model, whole)
    return replay, replay.steps(every)


def _share(found: Probed) -> float:
    """Of the peak."""
    return found.at_peak_ns / found.elapsed_ns


def _runs(blocks: IntArray) -> int:
    """Physically contiguous runs of blocks."""
    return 1 + sum(after != before + 1 for before, after in pairwise(blocks.tolist()))


def _model(log: BlockLog, asked: str | None) -> TransformerSpec:
    header = log.header
    name = asked or header.model
    if name is None:
        raise DescriptionError("names no model; --model does", log.path, 1)
    overrides = [] if header.kv is None else [f"kv={header.kv}"]
    return shard(load_model(name, overrides), header.tensor_parallel)


def _layout(device: Device, model: TransformerSpec, log: BlockLog) -> KvLayout:
    """The server's KV cache, above the weights; of as many blocks as the device has room for where
    the log does not say."""
    header = log.header
    room = kv_layout(device, model, 1.0, header.kv_layout)
    if header.blocks is None:
        return kv_layout(device, model, dims=header.kv_layout)
    slots = header.blocks * header.block_size
    if slots > room.slots:
        raise DescriptionError(
            f"{header.blocks} blocks of {header.block_size} tokens of {model.name}, "
            f"{slots * room.token_bytes} B, do not fit {device.name} beside the weights",
            log.path, 1, "blocks",
        )  # fmt: skip
    return replace(room, slots=slots)
