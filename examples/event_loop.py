"""How much of a channel do cores use that compute between their reads? An event loop: each of 16
cores reads 256 bytes anywhere, computes for 40 ns once they are there, writes 64 bytes, and goes
on. Prints, for 1 to 16 cores, GB/s and the mean time from a read's submission to its data.

    python examples/event_loop.py [DEVICE] [PATH=VALUE ...]
"""

import heapq
import sys

import numpy as np

import bankwise


def main(device: str = "lpddr5-6400-x16", *changes: str) -> None:
    for cores in (1, 4, 16):
        memory = bankwise.open_device(device, set=changes)
        place = np.random.default_rng(1)
        events = [(0, core) for core in range(cores)]  # tick at which a core goes on
        begun, waits = [0] * cores, list[float]()
        while len(waits) < 300:
            until = events[0][0] if events else memory.now + 1_000_000
            tags, ticks = memory.next_completions(until)
            for core, tick in zip(tags.tolist(), ticks.tolist(), strict=True):
                if core >= 0:  # a read; what it computes takes 40 ns
                    waits.append((tick - begun[core]) * memory.tick_ns)
                    heapq.heappush(events, (tick + round(40 / memory.tick_ns), core))
            while events and events[0][0] <= memory.now:
                tick, core = heapq.heappop(events)
                at = place.integers(0, memory.capacity_bytes // 256, 2) * 256
                memory.submit(tick, at, [256, 64], [False, True], [core, -1])
                begun[core] = tick
        gbps = memory.statistics()["bandwidth_gbps"]
        print(f"{cores:2} cores {gbps:6.2f} GB/s, {np.mean(waits):6.1f} ns a read")


if __name__ == "__main__":
    main(*sys.argv[1:])
