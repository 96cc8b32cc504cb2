"""Figures of docs/transfers.md, into docs/figures/motion.json.

    python -m tools.motion

Closed forms and one search, some seconds: ways to restore a context by device, model and link, what
layouts cost on a link, and how many published transfers agree.
"""

from __future__ import annotations

from typing import Any

from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.link import load_link
from hwmodel.specs.transformer import load_model
from policies.transfers.measured_transfers import compare_transfers, load_transfers
from policies.transfers.pieces import pages
from policies.transfers.transfer import Server, transfer
from sweeps.ask.restore import Question, restore
from tools.figures import keep

TOKENS = 4096
CASES = [
    ("mlu370-x4", "deepseek-r1-distill-qwen-7b", "pcie4-a30-batched"),
    ("a100-80gb", "llama-2-7b", "pcie4-a30-batched"),
    ("a100-80gb", "llama-2-7b", "nvme-pcie4"),
    ("a100-80gb", "llama-2-7b", "nvme-4x"),
    ("a100-80gb", "llama-3.1-8b", "nvme-pcie4"),
    ("h100-sxm", "llama-3.1-8b", "pcie5-h100-single"),
    ("h100-sxm", "llama-3.1-8b", "pcie5-h100-batched"),
    ("h100-sxm", "deepseek-v2-lite", "pcie5-h100-batched"),
]
"""Device, model and link; one and four drives stand for HCache's store."""
LINKS = ("pcie5-h100-single", "pcie5-h100-batched", "pcie5-h100-merged", "pcie5-h100-kernel",
         "nixl-cuda-ipc", "nixl-rdma-4x400", "mooncake-rdma-400")  # fmt: skip
CARDS = 4


def restored() -> dict[str, dict[str, Any]]:
    """Milliseconds of each way, and the fastest."""
    found = {}
    for device, model, link in CASES:
        card = load_device(device)
        asked = Question(
            card, load_model(model), load_link(link), card.paging.block, ("aged", "aged")
        )
        answer = restore(asked, [TOKENS])[0]
        times = {name: round(way.total_s * 1e3, 2) for name, way in answer.ways.items()}
        times.setdefault("HCache", None)  # type: ignore[arg-type]
        found[f"{model} to {device}, {link}"] = {**times, "fastest": answer.first}
    return found


def layouts() -> dict[str, dict[str, float]]:
    """Milliseconds of 8,192 tokens of Llama-3.3-70B on four cards, by link, layout and pages."""
    model = load_model("llama-3.3-70b")
    found: dict[str, dict[str, float]] = {}
    for name in LINKS:
        link, row = load_link(name), {}
        for kind, layout in (
            ("aged", "layer_kv_token"), ("fresh", "layer_kv_token"),
            ("aged", "block_layer_kv_token"),
        ):  # fmt: skip
            ends = [Server(LAYOUTS[layout], 16, pages(kind, 512, seed), CARDS) for seed in (0, 1)]
            moved = transfer(link, model, 8192, ends[0], ends[1])
            row[f"{layout}, {kind}"] = round(moved.cost.total_ns / 1e6, 2)
        row["factor"] = row["layer_kv_token, aged"] / row["block_layer_kv_token, aged"]
        found[name] = row
    return found


def published() -> dict[str, int]:
    """How many cells there are, and how many agree."""
    cells = compare_transfers(load_transfers("published-transfers"))
    open_ = [item for item in cells if item.verdict != "input"]
    counts = [item for item in open_ if item.cell.stated.unit in ("descriptors", "KiB")]
    agree = [item for item in open_ if item.verdict == "within"]
    return {
        "cells": len(cells), "inputs": len(cells) - len(open_), "others": len(open_),
        "agree": len(agree), "counts": len(counts), "times": len(open_) - len(counts),
        "counts that agree": len([item for item in agree if item in counts]),
        "times that agree": len([item for item in agree if item not in counts]),
    }  # fmt: skip


def main() -> None:
    ways = restored()
    drives = ways["llama-2-7b to a100-80gb, nvme-4x"]
    gains = {name: drives[name] / drives["HCache"] for name in ("fetch KV", "recompute")}
    values = {
        "restore": ways, "HCache on four drives": gains,
        "layouts": layouts(), "published": published(),
    }  # fmt: skip
    keep("motion", "python -m tools.motion", values)


if __name__ == "__main__":
    main()
