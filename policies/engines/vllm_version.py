"""What versions of vLLM's v1 engine do differently, read from their sources.

| rule | 0.11 | 0.19 | 0.23 | 0.33 | source |
|---|---|---|---|---|---|
| free list | fifo | fifo | fifo | split | `BlockPool.free_blocks` |
| admission | chunk | input | input | input | `SchedulerConfig.scheduler_reserve_full_isl` |
| windows | (`kv_managers`) | | | | `SlidingWindowManager` |
| watermark while idle | - | - | - | no | `KVCacheManager.allocate_slots` |
| asynchronous scheduling | no | yes | yes | yes | `VllmConfig.__post_init__` |
| largest device class | 70 GiB | 70 GiB | 70 GiB | 160 GiB | `EngineArgs.get_batch_defaults` |
| thresholds for others | - | no | no | yes | `Scheduler.schedule` |
| small in spite of 70 GiB | A100 | A100 | A100 | A100, GB10 | the same |
| share of the memory | 0.9 | 0.9 | 0.9 | 0.92 | `CacheConfig.gpu_memory_utilization`, since 0.25 |

| sampler, bytes a number | 37 | 14 | 14 | 14 | logged (llm-d-planner 151baf3, accuracy_report.md) |
| memory outside PyTorch, GiB | 0.13 | 0.25 | 0.25 | 0.25 | the same; 1.8 more with several cards |

Qwen3-14B kept 5.64 GiB for activations in 0.15 and 0.16, 2.23 in 0.17 and 0.18 (1,024 sequences);
what is outside PyTorch rose at 0.18, and is 2.07 with two cards in 0.19 (NCCL). 0.23 and 0.33 were
not logged there: assumed as 0.19. They also keep an estimate of their CUDA graphs (by default since
0.21), which is not modelled.

The null block and the block found among duplicates (`BlockPool`) are the same in all of them. 0.11
to 0.23 have no watermark; with one given, they follow the rule of 0.33 (assumed).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

GIB = 1 << 30

Usage = Literal["server", "offline"]
VersionName = Literal["0.11", "0.19", "0.23", "0.33"]


class DeviceClass(NamedTuple):
    """Defaults on devices of at least this much memory."""

    least_bytes: int
    max_num_seqs: int
    max_num_batched_tokens: dict[Usage, int]


class Version(NamedTuple):
    """Defaults of a version: of the engine, of `paged`, and by device class, largest first; words
    in the names of devices below the largest class that have those of the smallest."""

    engine: dict[str, Any]
    paged: dict[str, Any]
    classes: tuple[DeviceClass, ...]
    small: tuple[str, ...] = ("a100",)
    others_first: bool = False
    """Whether a lone request is prefilled without a threshold, and a request that preempts itself
    leaves the step to those behind it (with priorities)."""
    gpu_memory_utilization: float = 0.9
    sampler_bytes: int = 14
    """Of a sequence and a number of the vocabulary (`policies.serving.activations`)."""
    non_torch_bytes: int = GIB // 4
    """Of a card, outside PyTorch's allocator."""


SHARED_BYTES = 18 * GIB // 10
"""Further such bytes of each of several cards: NCCL's. 1.82 GiB in 0.19 with two, and 1.79 in 0.6
(vllm-project/vllm pull request 10511)."""
_SMALL = DeviceClass(0, 256, {"server": 2048, "offline": 8192})
_LARGE = DeviceClass(70 * GIB, 1024, {"server": 8192, "offline": 16384})
_LARGEST = DeviceClass(160 * GIB, 1024, {"server": 16384, "offline": 16384})
_PAGED = {"free_list": "fifo", "idle_watermark": False, "null_block": True}
_SYNCHRONOUS = {"admit_on": "chunk", "async_scheduling": False}
_ASYNCHRONOUS = {"admit_on": "input", "async_scheduling": True}

VERSIONS: dict[str, Version] = {
    "0.11": Version(
        _SYNCHRONOUS,
        {**_PAGED, "window_rules": "0.11"},
        (_LARGE, _SMALL),
        sampler_bytes=37,
        non_torch_bytes=13 * GIB // 100,
    ),
    "0.19": Version(_ASYNCHRONOUS, {**_PAGED, "window_rules": "0.19"}, (_LARGE, _SMALL)),
    "0.23": Version(_ASYNCHRONOUS, {**_PAGED, "window_rules": "0.23"}, (_LARGE, _SMALL)),
    "0.33": Version(
        _ASYNCHRONOUS,
        {**_PAGED, "free_list": "split"},
        (_LARGEST, _LARGE, _SMALL),
        ("a100", "gb10"),
        others_first=True,
        gpu_memory_utilization=0.92,
    ),
}


def device_class(version: str, capacity_bytes: int, device: str) -> DeviceClass:
    """The class of a device of a card's memory. An A100 is in the small one up to 160 GiB, and in
    0.33 a GB10 (DGX Spark), as in vLLM."""
    own = VERSIONS[version]
    chosen = next(each for each in own.classes if capacity_bytes >= each.least_bytes)
    small = any(name in device.lower() for name in own.small)
    return _SMALL if chosen is _LARGE and small else chosen
