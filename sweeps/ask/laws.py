"""What each law of steps, servers and KV memory brings over public cells: without any of them, with
one alone, with all but one, and with all.

A law is left out by what describes it: a key of a card or of a program is set as it was before, or
a benchmark's experts are drawn evenly. A row is a law and a class of times that it can move. The
laws of all-reduces have none: no public step sends 8 MiB or more, is of several AMD cards, or is
LMDeploy's on several (their own tables: tests/hwmodel/specs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from hwmodel.description.library import names
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model, shard
from policies.engines.vllm_version import VERSIONS, device_class
from policies.memory.measured import MeasurementSpec, compare, load_measurements
from policies.serving.activations import peak_activation_bytes
from policies.serving.building import kv_region
from policies.serving.serving_spec import ServingSpec
from sweeps.ask.accuracy import MeasuredTime, errors, of_servers, steps
from sweeps.ask.published_servers import Laws, each, possible

OF_CARDS: dict[str, dict[str, dict[str, Any]]] = {
    "Metal's experts by rows": {
        "m2-ultra": {"kernels.lone_expert_rows": 0}, "m1-max": {"kernels.lone_expert_rows": 0},
    },
    "Strix Halo's channels": {
        "strix-halo": {"interleave": "512B", "dma.request": "512B", "channel_hash": "rotate"},
    },
    "Strix Halo's rates": {
        "strix-halo": {"derate": 1, "kernels.weights": 0.972, "kernels.kv": 1},
    },
    "Strix Halo's cores": {"strix-halo": {"work.drift": 0, "work.spread": "slice"}},
}  # fmt: skip
"""Law -> device -> what it had before. Strix Halo's derate was 0.9, of which its class read weights
at 1.08 and KV at 1.12; no class is faster than ideal any more, so that the products stand there,
1.008 as 1."""
SKEW = "experts of benchmarks by a power"
SERVERS = {
    "ahead": "a step made ahead", "batch_wait": "TensorRT-LLM's wait for others",
    "client": "8 ms of a client", "token_limits": "scripts' token limits",
}  # fmt: skip
"""Key of `Laws` -> its name."""
Rows = dict[str, dict[str, float]]
"""A row's name -> its figures by column."""


def of_steps() -> Iterator[tuple[str, str, Callable[[frozenset[str]], list[MeasuredTime]]]]:
    """(law, class, times of that class with these laws alone) for each that it can move."""
    specs = [spec for name in names("measurements") if (spec := _timed(load_measurements(name)))]
    for law in (*OF_CARDS, SKEW):
        touched = [spec for spec in specs if law in _laws(spec)]
        for label in sorted({one.label for spec in touched for one in _times(spec, _laws(spec))}):
            yield law, label, lambda kept, label=label: [  # type: ignore[misc]
                one for spec in specs for one in _times(spec, kept & _laws(spec))
                if one.label == label
            ]  # fmt: skip


def _timed(spec: MeasurementSpec) -> MeasurementSpec | None:
    """Its decode steps that are measured: laws of cards are of these alone."""
    cells = [cell for cell in spec.cells if cell.measured is not None and cell.decode is not None]
    return spec.model_copy(update={"cells": cells}) if cells else None


def _laws(spec: MeasurementSpec) -> frozenset[str]:
    """Those that its cells can feel."""
    skewed = any(each.skew for each in spec.runtimes.values())
    return frozenset({law for law, cards in OF_CARDS.items() if spec.device in cards}) | (
        {SKEW} if skewed else frozenset()
    )


_KEPT: dict[tuple[str, frozenset[str]], list[MeasuredTime]] = {}


def _times(spec: MeasurementSpec, kept: frozenset[str]) -> list[MeasuredTime]:
    """Its times with these laws alone."""
    if (spec.name, kept) not in _KEPT:
        settings: dict[str, Any] = {}
        for law in _laws(spec) - kept - {SKEW}:
            settings |= OF_CARDS[law][spec.device]
        bare = spec.model_copy(update={"set": spec.set | settings})
        if SKEW not in kept:
            even = {n: r.model_copy(update={"skew": 0.0}) for n, r in spec.runtimes.items()}
            bare = bare.model_copy(update={"runtimes": even})
        _KEPT[spec.name, kept] = steps(compare(bare))
    return _KEPT[spec.name, kept]


def of_published() -> Iterator[tuple[str, str, Callable[[frozenset[str]], list[MeasuredTime]]]]:
    """The same of whole servers."""

    @cache
    def times(kept: frozenset[str]) -> list[MeasuredTime]:
        laws = Laws(**{key: name in kept for key, name in SERVERS.items()})
        return of_servers(each(possible(), laws))

    for key, name in SERVERS.items():
        for label in ("TTFT", "TPOT") if key == "token_limits" else ("TTFT",):
            yield (
                name,
                label,
                lambda kept, label=label: [  # type: ignore[misc]
                    one for one in times(kept) if one.label == label
                ],
            )


class LoggedKv(NamedTuple):
    """The KV memory that a vLLM server logs."""

    what: str
    device: str
    model: str
    kv: str | None
    share: float
    """Of the memory, that it may take."""
    like: str
    tokens: int


LOGGED = [LoggedKv(*row) for row in (
    ("H100, Llama-3.1-8B", "h100-sxm", "llama-3.1-8b", None, 0.95, "0.19", 476_016),
    ("H100, Llama-3.1-8B, KV in fp8", "h100-sxm", "llama-3.1-8b", "fp8", 0.95, "0.19", 952_032),
    ("H100, Qwen2.5-7B", "h100-sxm", "qwen2.5-7b", None, 0.95, "0.19", 1_096_000),
    ("RTX 4090, Llama-3.1-8B", "rtx-4090", "llama-3.1-8b", None, 0.9, "0.19", 41_392),
)]  # fmt: skip
"""H100: llm-d-incubation/llm-d-planner 151baf3, accuracy_report.md; RTX 4090:
casys-kaist/LLMServingSim 5daddb2, bench/examples/RTX4090 (yaml/servers)."""


def of_kv() -> Rows:
    """Row -> its tokens as logged, and by how much ours differ: as of 2024, with a version's
    sampler alone, with what lies outside PyTorch alone, with both."""
    return {row.what: _kv(row) for row in LOGGED}


def _kv(row: LoggedKv) -> dict[str, float]:
    card, model = load_device(row.device), load_model(row.model).stored_as(None, row.kv)
    version, defaults = VERSIONS[row.like], device_class(row.like, card.capacity_bytes, card.name)
    tokens, most = defaults.max_num_batched_tokens["server"], defaults.max_num_seqs
    part = shard(model, 1)
    former, now = (
        peak_activation_bytes(part, 1, tokens, most, sampler_bytes=of)
        for of in (None, version.sampler_bytes)
    )

    def off(kept_bytes: int) -> float:
        spec = ServingSpec.model_validate({
            "model": row.model, "kv": row.kv, "activation_bytes": f"{kept_bytes}B",
            "gpu_memory_utilization": row.share, "engine": {"name": "v1", "max_model_len": 8192},
        })  # fmt: skip
        return kv_region(card, part, spec).tokens / row.tokens - 1

    outside = version.non_torch_bytes
    return {
        "logged": row.tokens, "without": off(former), "sampler alone": off(now),
        "outside alone": off(former + outside), "all": off(now + outside),
    }  # fmt: skip


def ablation() -> dict[str, Any]:
    """What the release run takes: a table of medians and one of nine in ten, and KV's."""
    found = [*_rows(list(of_steps()), (*OF_CARDS, SKEW)),
             *_rows(list(of_published()), tuple(SERVERS.values()))]  # fmt: skip
    tables: dict[str, Rows] = {"median": {}, "nine in ten": {}}
    for law, label, by_column in found:
        for name, table in tables.items():
            table[f"{label}, {law}"] = {"cells": by_column["all"]["cells"]} | {
                column: figures[name] for column, figures in by_column.items()
            }
    return {**tables, "kv": of_kv()}


def _rows(
    moved: Sequence[tuple[str, str, Callable[[frozenset[str]], list[MeasuredTime]]]],
    laws: Iterable[str],
) -> Iterator[tuple[str, str, Mapping[str, Mapping[str, float]]]]:
    every = frozenset(laws)
    for law, label, times in moved:
        alone = frozenset({law})
        columns = {
            "without any": frozenset(), "it alone": alone, "all but it": every - alone,
            "all": every,
        }  # fmt: skip
        yield law, label, {name: errors(times(kept)) for name, kept in columns.items()}
