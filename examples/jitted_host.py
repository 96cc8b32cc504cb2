"""How long does a pointer chase take, when Numba compiles the host? The host writes each read into
the port and calls the simulation itself, without Python. Prints nanoseconds a hop.

    python examples/jitted_host.py [DEVICE] [PATH=VALUE ...]
"""

import sys
from typing import Any

import numba
import numpy as np

import bankwise
from hwmodel.kernel.sources.calls import run_calls
from hwmodel.kernel.sources.port import TO_COMPLETION

run = run_calls().ctypes


@numba.njit
def chase(port: Any, address: int, read: Any, following: Any) -> int:
    p, place = port[0], 0
    for _ in following:
        read.tick[0], read.address[0], read.size[0] = p.now, 64 * place, 64
        p.waiting, p.staged, p.done, p.settled = 1, 0, 0, 0
        run(address, p.now + 1_000_000, TO_COMPLETION)
        place = following[place]
    return p.now


def main(device: str = "lpddr5-6400-x16", *changes: str) -> None:
    memory = bankwise.open_device(device, set=changes)
    following = np.roll(np.arange(10_000), -77)  # 77 has no factor in common: one cycle
    lent = memory.lend(1)
    ticks = chase(lent.port, lent.address, lent.waiting, following)
    print(f"{ticks * memory.tick_ns / len(following):.1f} ns a hop")


if __name__ == "__main__":
    main(*sys.argv[1:])
