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


_SMALL = DeviceClass(0, 256, {"server": 2048, "offline": 8192})
_LARGE = DeviceClass(70 * GIB, 1024, {"server": 8192, "offline": 16384})
_LARGEST = DeviceClass(160 * GIB, 1024, {"server": 16384, "offline": 16384})
_PAGED = {"free_list": "fifo", "idle_watermark": False, "null_block": True}
_SYNCHRONOUS = {"admit_on": "chunk", "async_scheduling": False}
_ASYNCHRONOUS = {"admit_on": "input", "async_scheduling": True}

VERSIONS: dict[str, Version] = {
    "0.11": Version(_SYNCHRONOUS, {**_PAGED, "window_rules": "0.11"}, (_LARGE, _SMALL)),
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
