"""Which KV-cache allocator serves the most on my card? Runs a small sweep at 1.5 times what the
best of three can serve. Prints the verdict, then output tokens/s of each with a 95 % interval, and
requests at once.

    python examples/which_allocator.py [DEVICE] [PATH=VALUE ...]
"""

import sys
import tempfile

import bankwise

SETTINGS = [
    "name=which-allocator",
    "policy=[static, paged, odma]",
    "model=llama-3.2-3b",
    "workload=sharegpt",
    "serving.predictor={kind: lognormal, sigma: 0.4}",  # its error is assumed
    "requests=300",
    "warmup_requests=200",
    "replications=3",
]


def main(device: str = "rtx-4090", *changes: str) -> None:
    settings = [*SETTINGS, f"device={device}", *changes]
    with tempfile.TemporaryDirectory() as out:
        result = bankwise.run("smoke", set=settings, out=f"{out}/run")
        print(*result.sentences, sep="\n")
        for row in result.table(["output_tokens_per_s", "batch"]):
            mean, low, high = (row["output_tokens_per_s" + end] for end in ("", ".low", ".high"))
            rate = f"{mean:7,.0f} ({low:,.0f} to {high:,.0f}) tok/s"
            print(f"{row['serving.policy']:7} {rate}, {row['batch']:.0f} at once")


if __name__ == "__main__":
    main(*sys.argv[1:])
