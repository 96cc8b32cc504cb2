"""The address streams under which the reference figures were measured, byte for byte.

`pcg`: lines of 64 bytes over 512 MiB from numpy's PCG64, used with Ramulator. `mix`: a counter
hashed with splitmix64 (Steele et al. 2014), which any language can repeat, used with DRAMSys. Both
return byte addresses within one channel and which requests write, int64 (requests,).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
SEED = 20240607
LINE_BYTES = 64
LINES = 1 << 20
"""Drawn; the first half of them is used."""
FOOTPRINT_BYTES = 512 << 20
RUN = 64
"""Lines or requests of a run of reads or writes."""


def pcg(name: str, lines: int = LINES // 2, request_bytes: int = 32) -> tuple[IntArray, IntArray]:
    """`seq`, `rand64`, `page<bytes>`, `seq_w25_mix`, `seq_w25_run`, `seq_w25_run1` or `rand_w50`.

    Pages come in random order, none twice. w25: a quarter of the lines are written, drawn one by
    one (`mix`) or every fourth run; those of `run` have a sequence of their own in the upper half.
    """
    at = np.arange(LINES)
    line, write = at, np.zeros(LINES, np.bool_)
    footprint = FOOTPRINT_BYTES // LINE_BYTES
    if name in ("rand64", "rand_w50"):
        chance = _generator(1 if name == "rand64" else 5)
        line = chance.integers(0, footprint, LINES)
        if name == "rand_w50":
            write = chance.random(LINES) < 0.5
    elif name.startswith("page"):
        page_bytes = int(name.removeprefix("page").replace("k", ""))
        page_bytes <<= 10 if name.endswith("k") else 0
        per_page = page_bytes // LINE_BYTES
        page = _generator(100 + page_bytes).permutation(FOOTPRINT_BYTES // page_bytes)
        line = page[at // per_page] * per_page + at % per_page
    elif name == "seq_w25_mix":
        write = _generator(3).random(LINES) < 0.25
    elif name.startswith("seq_w25_run"):
        write = at // RUN % 4 == 3
        if name == "seq_w25_run":
            line = np.where(write, footprint // 2 + np.cumsum(write) - 1, np.cumsum(~write) - 1)
    elif name != "seq":
        raise ValueError(f"no stream {name}")
    parts = LINE_BYTES // request_bytes
    address = line[:lines, None] * LINE_BYTES + np.arange(parts) * request_bytes
    return address.ravel(), np.repeat(write[:lines], parts).astype(np.int64)


def mix(
    name: str, requests: int, request_bytes: int = 32, capacity_bytes: int = 1 << 30
) -> tuple[IntArray, IntArray]:
    """`seq_read`, `rand_read`, `paged_<bytes>`, `seq_w25_each`, `seq_w25_run64` or `rand_rw50`."""
    at, write = np.arange(requests), np.zeros(requests, np.bool_)
    slots = capacity_bytes // request_bytes
    slot = at % slots
    if name.startswith("paged_"):
        page_bytes = int(name.removeprefix("paged_"))
        per_page, pages = page_bytes // request_bytes, capacity_bytes // page_bytes
        order = np.argsort(_splitmix(SEED + 2 + page_bytes, pages), kind="stable")
        slot = order[at // per_page % pages] * per_page + at % per_page
    elif name in ("rand_read", "rand_rw50"):
        key = SEED + (1 if name == "rand_read" else 4)
        slot = (_splitmix(key, requests) % np.uint64(slots)).astype(np.int64)
        if name == "rand_rw50":
            write = (_splitmix(SEED + 3, requests) >> np.uint64(32)) % np.uint64(2) == 1
    elif name.startswith("seq_w25_"):
        write = at // {"each": 1, "run64": RUN}[name.removeprefix("seq_w25_")] % 4 == 3
    elif name != "seq_read":
        raise ValueError(f"no stream {name}")
    return slot * request_bytes, write.astype(np.int64)


def _generator(purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([SEED, purpose]))


def _splitmix(seed: int, count: int) -> NDArray[np.uint64]:
    """The first `count` outputs of splitmix64 from `seed`; wraps at 64 bits."""
    state = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(
        0x9E3779B97F4A7C15
    )
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
