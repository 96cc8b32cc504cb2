"""Which KV-cache allocator serves the most on my card? Prints the verdict, then of each allocator
output tokens/s, their lower 95 % limit, and requests at once.

    python examples/which_allocator.py [DEVICE] [PATH=VALUE ...]
"""

import sys
import tempfile
from typing import Any

import bankwise

SWEEP: dict[str, Any] = {
    "kind": "sweep",
    "name": "which-allocator",
    "summary": "three allocators on one card",
    "base": {
        "model": "llama-3.2-3b",
        "workload": "sharegpt",
        "serving": {"predictor": {"kind": "lognormal", "sigma": 0.4}},  # assumed
        "load": {"relative": 1.5},
        "warmup_requests": 200,
        "requests": 300,
    },
    "axes": {"serving.policy": ["static", "paged", "odma"]},
    "compare": "serving.policy",
}
RATE = "output_tokens_per_s"
LINE = "{:7} {:7,.0f} (at least {:,.0f}) tok/s, {:.0f} at once"


def main(device: str = "rtx-4090", *changes: str) -> None:
    with tempfile.TemporaryDirectory() as out:
        result = bankwise.run(SWEEP, set=[f"device={device}", *changes], out=out + "/run")
        print(*result.sentences, sep="\n")
        for row in result.table([RATE, "batch"]):
            print(LINE.format(row["serving.policy"], row[RATE], row[f"{RATE}.low"], row["batch"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
