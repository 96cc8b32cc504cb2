"""`bankwise transfer --restore`: each way by context, on the screen and as JSON."""

from __future__ import annotations

from typing import Any

from policies.transfers.restoring import bytes_ratio, flops_ratio
from sweeps.ask.restore import Answer, Question
from sweeps.report.screen import print_table


def record(question: Question, found: list[Answer]) -> dict[str, Any]:
    """What was asked and found; times in ms."""
    return {
        "device": question.device.name, "model": question.model.name, "link": question.link.name,
        "block": question.block, "pages": list(question.kinds), **_ratios(question),
        "contexts": [
            {
                "tokens": answer.tokens,
                "fastest": answer.first,
                "ways": {
                    name: {
                        "ms": way.total_s * 1e3, "link_ms": way.link_s * 1e3,
                        "compute_ms": way.compute_s * 1e3, "bytes": way.bytes, "limit": way.limit,
                        "hidden_layers": way.hidden_layers, "rest": way.rest,
                    }
                    for name, way in answer.ways.items()
                },
            }
            for answer in found
        ],
    }  # fmt: skip


def _ratios(question: Question) -> dict[str, float]:
    model = question.model
    if model.latent is not None:
        return {}
    return {
        "hidden_over_kv_bytes": bytes_ratio(model),
        "recompute_over_restore_flops": flops_ratio(model),
    }


def show(question: Question, found: list[Answer]) -> None:
    """A line a context and way."""
    model = question.model
    device, link = question.device.name, question.link.name
    print(f"KV of {model.name} ({model.kv}) back to {device} over {link},")
    kinds = " and ".join(question.kinds)
    print(f"blocks of {question.block} tokens, {kinds}; a request alone")
    for name, ratio in _ratios(question).items():
        print(f"{name.replace('_', ' ')}: {ratio:.3g}")
    print()
    columns = ["tokens", "way", "ms", "link ms", "compute ms", "MB", "limit", "by hidden states"]
    rows = [
        [
            f"{answer.tokens:,}" if number == 0 else "", name + " *" * (name == answer.first),
            f"{way.total_s * 1e3:,.1f}", f"{way.link_s * 1e3:,.1f}",
            f"{way.compute_s * 1e3:,.1f}", f"{way.bytes / 1e6:,.1f}", way.limit,
            _layers(question, name, way.hidden_layers, way.rest),
        ]
        for answer in found
        for number, (name, way) in enumerate(answer.ways.items())
    ]  # fmt: skip
    print_table(columns, rows)
    print("* the fastest")


def _layers(question: Question, name: str, hidden: int, rest: str | None) -> str:
    if name != "HCache":
        return ""
    return f"{hidden} of {question.model.layers}" + (f", the others by {rest}" if rest else "")
