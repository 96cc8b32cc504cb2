"""Requests a second of CPU time in BLIS and in ours, on the same requests (docs/performance.md).

    BANKWISE_BLIS=FILE [BANKWISE_BLIS_SETTINGS=DIR] python -m tools.peers.serving_speed [ROUNDS]

FILE: the program; DIR: the clone that it was built in, its folder if that is not said. BLIS draws
the requests and writes them down, and ours serves these from its file. A round runs BLIS on many
and on few, and ours in between: the difference of its two is the time of the further ones. Into
docs/release/serving-speed.json.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import bankwise
from tools.peers.speed import OUT, cpu_s

MANY, FEW, RATE = 4000, 500, 16
"""Requests, and how many arrive a second: neither server is full."""
POLICIES = {"paged": "paged", "odma": {"name": "odma"}}


class Blis:
    """Llama-3.1-8B on an H100 by its roofline, with vLLM's limits of a batch."""

    def __init__(self, built: str, settings: str | None, folder: Path) -> None:
        self.built, self.folder = Path(built).resolve(), folder
        self.settings = Path(settings) if settings else self.built.parent

    def run(self, count: int, **more: Path) -> tuple[float, dict[str, Any]]:
        """CPU seconds, and its figures."""
        asked = {
            "model": "meta-llama/llama-3.1-8b-instruct", "hardware": "H100", "tp": 1,
            "latency-model": "roofline", "num-requests": count, "rate": RATE,
            "model-config-folder": self.settings / "model_configs/llama-3.1-8b-instruct",
            "hardware-config": self.settings / "hardware_config.json",
            "defaults-filepath": self.settings / "defaults.yaml",
            "max-num-seqs": 256, "max-num-batched-tokens": 2048, "total-kv-blocks": 24576,
            "metrics-path": self.folder / "figures.json", **more,
        }  # fmt: skip
        words = [word for key, value in asked.items() for word in (f"--{key}", str(value))]
        took, _ = cpu_s([str(self.built), "run", *words])
        return took, json.loads((self.folder / "figures.json").read_text())

    def requests(self, count: int) -> Path:
        """Those of a run, as bankwise reads them."""
        file, trace = self.folder / "requests.csv", self.folder / "trace"
        self.run(count, **{"trace-output": trace})
        with trace.with_suffix(".csv").open() as theirs, file.open("w") as out:
            lines = csv.writer(out)
            lines.writerow(["arrival_s", "prompt_tokens", "output_tokens"])
            for row in csv.DictReader(theirs):
                arrival_s = int(row["arrival_time_us"]) / 1e6
                lines.writerow([arrival_s, row["input_tokens"], row["output_tokens"]])
        return file


def ours(requests: Path, count: int, policy: Any) -> tuple[float, dict[str, Any]]:
    """CPU seconds of one serving run, memory analytic, and its figures."""
    config = {
        "kind": "sweep", "name": "beside-blis", "summary": "the requests of another simulator",
        "compare": "serving.policy", "axes": {"serving.policy": [policy]},
        "base": {
            "device": "h100-sxm", "model": "llama-3.1-8b", "workload": str(requests),
            "requests": count, "warmup_requests": 0, "replications": 1, "seed": 1,
            "serving": {
                "kv_tokens": 24576 * 16, "memory": {"fidelity": "analytic"},
                "predictor": {"kind": "lognormal", "sigma": 0.4},
                "engine": {"name": "v1", "max_num_seqs": 256, "max_num_batched_tokens": 2048},
            },
        },
    }  # fmt: skip
    began = time.process_time()
    done = bankwise.simulate(config)
    return time.process_time() - began, done["metrics"]


def main(rounds: int = 3) -> None:
    found: dict[str, Any] = {"rounds": rounds, "requests": MANY, "loads": []}
    with tempfile.TemporaryDirectory() as folder:
        blis = Blis(os.environ["BANKWISE_BLIS"], os.environ.get("BANKWISE_BLIS_SETTINGS"),
                    Path(folder))  # fmt: skip
        requests = blis.requests(MANY)
        for name, policy in POLICIES.items():
            ours(requests, MANY, policy)  # what is compiled or loaded once
            theirs, mine = [], []
            for _ in range(rounds):
                many, figures = blis.run(MANY)
                took, metrics = ours(requests, MANY, policy)
                mine.append(MANY / took)
                theirs.append((MANY - FEW) / (many - blis.run(FEW)[0]))
                found["loads"].append(os.getloadavg()[0])
            ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
            found[name] = {
                "theirs": median(theirs), "here": median(mine),
                "times as many": [median(ratios), min(ratios), max(ratios)],
                "their output": figures["tokens_per_sec"],
                "output here": metrics["output_tokens_per_s"],
            }  # fmt: skip
            print(f"{name}: {found[name]}", flush=True)
    OUT.with_name("serving-speed.json").write_text(f"{json.dumps(found, indent=1)}\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
