"""`bankwise transfer --restore`: each way by context, on the screen and as JSON."""

from __future__ import annotations

from typing import Any

from policies.transfers.restoring import bytes_ratio, flops_ratio
from sweeps.ask.restore import RestoreAnswer, RestoreQuestion
from sweeps.sections.section import Grid, Say, Section


def record(question: RestoreQuestion, found: list[RestoreAnswer]) -> dict[str, Any]:
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


def _ratios(question: RestoreQuestion) -> dict[str, float]:
    model = question.model
    if model.latent is not None:
        return {}
    return {
        "hidden_over_kv_bytes": bytes_ratio(model),
        "recompute_over_restore_flops": flops_ratio(model),
    }


def sheet(question: RestoreQuestion, found: list[RestoreAnswer]) -> Section:
    """A line a context and way."""
    kinds = " and ".join(question.kinds)
    asked = (
        f"KV of {question.model.name} ({question.model.kv}) back to {question.device.name} over"
        f" {question.link.name}, blocks of {question.block} tokens, {kinds}; a request alone."
    )
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
    if ratios := _ratios(question):
        asked += (
            f" Hidden states have {ratios['hidden_over_kv_bytes']:.3g} of KV's bytes; recomputing"
            f" takes {ratios['recompute_over_restore_flops']:.3g} times the FLOPs of projecting"
            " them."
        )
    return Section("Ways to restore", [Say(asked), Grid("", columns, rows), Say("*: the fastest")])


def _layers(question: RestoreQuestion, name: str, hidden: int, rest: str | None) -> str:
    if name != "HCache":
        return ""
    return f"{hidden} of {question.model.layers}" + (f", the others by {rest}" if rest else "")
