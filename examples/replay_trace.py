"""How fast does a DRAM channel serve my addresses, and is every command legal? Writes a trace of
random reads of 256 bytes, replays it on one LPDDR5 channel, and checks the log of its commands.
Prints GB/s, row hits and the number of violations.

    python examples/replay_trace.py [MEMORY] [PATH=VALUE ...]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import bankwise


def main(memory: str = "lpddr5-6400-x16", *changes: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace, log = Path(folder, "trace.npz"), Path(folder, "commands.csv")
        starts = np.random.default_rng(1).integers(0, 1 << 20, 5_000, dtype=np.uint64) * 256
        address = (starts[:, None] + np.arange(0, 256, 32, dtype=np.uint64)).ravel()
        np.savez(trace, address=address, write=np.zeros(len(address), dtype=bool))

        done = bankwise.replay(memory, trace, channel=True, commands=log, set=changes)
        print(f"{done['bandwidth_gbps']:.2f} of {done['peak_gbps']:.2f} GB/s")
        print(f"row hits: {done['row_hits'] / done['requests']:.1%}")
        illegal = bankwise.audit(memory, log, set=changes)
        print(f"{sum(done['commands'].values()):,} commands, {len(illegal)} violations")


if __name__ == "__main__":
    main(*sys.argv[1:])
