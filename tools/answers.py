"""Figures of pages that show what commands answer: into docs/figures, a file a page.

    python -m tools.answers                # all; tune takes ten CPU minutes
    python -m tools.answers states measure

`calibrate` reads a log of shared/data (BANKWISE_DATA). `measure` is of the machine that it runs on.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from tools.figures import ROOT, keep

SLO = ("--workload", "sharegpt", "--slo", "ttft=2s,tpot=50ms")
AGENTS = ("--workload", "agents", "--slo", "ttft=2s,tpot=50ms")
SERVER = ("--memory", "ddr5", "--rate", "4800MT/s", "--width", "768", "--capacity", "192GiB",
          "--flops", "fp16=10TFLOPS", "--engines", "2")  # fmt: skip
SHOWN = ("reads in order", "copy (1R:1W)", "random 64 B", "random 576 B", "random 4 KiB",
         "random 2 MiB")  # fmt: skip


def answer(*words: str, folder: str | None = None) -> Any:
    """What `bankwise` answers in a folder, from its JSON."""
    command = [sys.executable, "-m", "sweeps.cli.main", *words, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    return json.loads(done.stdout)


def ends(found: dict[str, float]) -> list[float]:
    """A gain as a ratio with its interval."""
    return [round(1 + found[key], 4) for key in ("mean", "low", "high")]


def tuned(*words: str) -> dict[str, Any]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    found = answer("size", "--device", "rtx-4090", "--model", "llama-3.1-8b", *words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "CPU min": round(cpu / 60, 1), "wall min": round((time.monotonic() - began) / 60, 1),
        "base": round(found["base"]["rate_per_s"] or 0.0, 3),
        "best": None if found["best"] is None else ends(found["best"]["gain_a_card"]),
        "settings": found["settings"],
        "choices": {
            " ".join(f"{key} {value}" for key, value in each["values"].items()):
            [round(each["rate_per_s"] or 0.0, 3)] if each["gain_a_card"] is None
            else ends(each["gain_a_card"])
            for each in found["choices"]
        },
    }  # fmt: skip


def tune() -> dict[str, Any]:
    return {
        "all": tuned(*SLO), "caching": tuned(*AGENTS, "--only", "caching"),
        **{each: tuned(*SLO, "--only", each) for each in ("block", "kv", "chunk")},
    }  # fmt: skip


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "sweeps.cli.main", "new", "device", "my-server", *SERVER],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        found = answer("calibrate", "--memory", "--device", "my-server.yaml", folder=folder)
    return {
        "machine": {key: found[key] for key in ("cpu", "cores", "load", "rounds", "cache_bytes")},
        "rates": {
            each["pattern"]: {"GB/s": [round(rate, 2) for rate in each["gbps"]]}
            for each in found["bandwidth"]
            if each["pattern"] in SHOWN
        },
        "ns": {f"{each['window'] >> 20} MiB": each["ns"] for each in found["latency"]},
        "over a run": {str(each["extent"]): each["ratio"] for each in found["blocks_over_run"]},
    }


def calibrate() -> dict[str, Any]:
    found = answer("calibrate", "vllm-0.19-rtx-4090-llama-3.1-8b")
    three, fitted = ("mean", "low", "high"), found["numbers"]["efficiency"]
    return {
        "described": fitted["described"], "efficiency": [fitted[key] for key in three],
        "instead": {each["name"]: each["instead"] for each in found["not_told"]},
        "held out": found["stretches"]["held_out"],
        "errors": {each["what"]: {**{key: each[key] for key in ("measured", "before", "after")},
                                  **{f"{key} over measured": each[key] / each["measured"]
                                     for key in ("before", "after")}}
                   for each in found["held_out"]},
    }  # fmt: skip


def states() -> dict[str, Any]:
    def waste(found: dict[str, Any]) -> dict[str, Any]:
        return {
            name: {
                "mean tokens": each["mean_tokens"],
                **{
                    f"{kind}, {what}": held[key]
                    for kind, held in each["allocators"].items()
                    for what, key in (("requests", "requests"), ("waste", "waste"))
                },
                "even ratio": each["even_ratio"],
            }
            for name, each in found["workloads"].items()
        }

    fp8 = ("h200", "qwen3.5-35b-a3b", "--kv", "fp8_e4m3")
    plain, own, falcon, lfm = (
        answer("fit", "--states", *asked) for asked in (
            ("a100-80gb", "qwen3.5-9b"), fp8, ("a100-80gb", "falcon-h1-7b"),
            ("a100-80gb", "lfm2-1.2b"),
        )
    )  # fmt: skip
    drafts = answer("fit", "--states", "h200", "qwen3.5-27b", "--drafts", "8")
    cards = answer(
        "fit", "--states", "h200", "qwen3.5-27b", *fp8[2:], "--cards", "2", "--drafts", "7"
    )
    kept = answer("fit", "--states", *fp8, "--mode", "align")
    five = answer("fit", "--states", *fp8, "--slots", "5")
    short = kept["workloads"]["alpaca"]["allocators"]["unified"]["bytes"]["further states"]
    return {
        "a100-80gb": waste(plain), "h200": waste(own),
        "GiB": plain["memory_bytes"] / 2**30, "KiB a token": plain["kv_bytes_a_token"] / 2**10,
        "MiB a request": plain["state_bytes_a_request"] / 2**20,
        "tokens": {"35B": own["block_tokens"], "27B": drafts["block_tokens"],
                   "two cards": cards["block_tokens"], "falcon": falcon["block_tokens"]},
        "falcon": waste(falcon)["azure-conv"], "lfm padding": lfm["padding_share"],
        "further states": short / kept["memory_bytes"],
        "align": waste(kept)["azure-conv"], "five": waste(five)["azure-conv"],
    }  # fmt: skip


PAGES: dict[str, Callable[[], dict[str, Any]]] = {
    "tune": tune, "measure": measure, "calibrate": calibrate, "states": states,
}  # fmt: skip

if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    for page in sys.argv[1:] or PAGES:
        keep(page, f"python -m tools.answers {page}", PAGES[page]())
