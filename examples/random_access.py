"""What does random access cost on a card? Prints, for extents of 64 bytes to 128 KiB that lie
anywhere, the simulated GB/s and their share of a sequential read; then the least extent that
reaches nine tenths.

    python examples/random_access.py [DEVICE] [PATH=VALUE ...]
"""

import sys

import bankwise

PATTERNS = [
    "sequential",
    *(f"random_{size}" for size in ("64B", "512B", "4KiB", "16KiB", "128KiB")),
]


def main(device: str = "mlu370-x4", *changes: str) -> None:
    table = bankwise.memory(device, pattern=PATTERNS, set=changes)
    sequential = table[0]["bandwidth_gbps"]
    for row in table:
        share = row["bandwidth_gbps"] / sequential
        print(f"{row['pattern']:14} {row['bandwidth_gbps']:8.1f} GB/s {share:7.1%} of sequential")
    enough = [row["pattern"] for row in table if row["bandwidth_gbps"] >= 0.9 * sequential]
    print(f"nine tenths of sequential: {', '.join(enough[1:]) or 'none of these extents'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
