"""What would another memory, or int8 weights, do for this card? Prints output tokens/s of paging
on mlu370-x4 as described and with each change alone; memory is simulated cycle by cycle.

    python examples/what_if.py [PATH=VALUE ...]
"""

import sys

import bankwise

CHANGES = {
    "as described": {},
    "LPDDR5X-8533": {"device_set.memory": "lpddr5x-8533-x16"},
    "HBM2E": {"device_set.memory": "hbm2e-3.2"},
    "twice the DMA window": {"device_set.dma.window": "32KiB"},
    "int8 weights": {"serving.weights": "int8"},
}
BASE = {
    "policy": "paged",
    "load": None,
    "arrivals": {"process": "all_at_once"},
    "serving.memory": {"fidelity": "sampled", "probe_bytes": "1MiB", "max_probes": 4},
}


def main(*changes: str) -> None:
    described = None
    for name, change in CHANGES.items():
        sweep = bankwise.load("smoke", set={**BASE, **change})
        done = bankwise.simulate(sweep.config, set=changes)
        rate = done["metrics"]["output_tokens_per_s"]
        described = described or rate
        print(f"{name:22} {rate:6.0f} output tokens/s  {rate / described - 1:+.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
