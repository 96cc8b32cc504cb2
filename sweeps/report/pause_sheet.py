"""`bankwise transfer --pause`: the waste of each way by pause, on the screen and as JSON."""

from __future__ import annotations

from typing import Any

from sweeps.ask.pause import PauseAnswer, PauseQuestion
from sweeps.sections.section import Grid, Say, Section


def record(question: PauseQuestion, found: PauseAnswer) -> dict[str, Any]:
    """What was asked and found; waste in GB s."""
    each = question.model.kv_token_bytes / 1e9
    return {
        "device": question.device.name, "model": question.model.name, "link": question.link.name,
        "context": question.context, "running": question.batch.running,
        "tokens_running": question.batch.tokens, "pages": list(question.kinds),
        "token_us": found.cost.token_s * 1e6, "fixed_ms": found.cost.fixed_s * 1e3,
        "saturation_tokens": found.cost.saturation,
        "step_ms": found.cost.seconds(question.batch.running) * 1e3,
        "copy_ms": found.copy_s * 1e3, "hidden_tokens_a_step": found.hidden,
        "break_even_s": found.even_s,
        "pauses": [
            {
                "seconds": pause.seconds, "keep_gb_s": pause.keep * each,
                "drop_gb_s": pause.drop * each, "swap_gb_s": pause.swap * each,
                "swap_hides": pause.hidden is not None, "least": pause.least,
            }
            for pause in found.pauses
        ],
    }  # fmt: skip


def sheet(question: PauseQuestion, found: PauseAnswer) -> Section:
    """The step, what hides behind it, and a line a pause."""
    told = record(question, found)
    hidden = ", ".join(f"{tokens:,} {name}" for name, tokens in found.hidden.items())
    asked = (
        f"{question.context:,} tokens of {question.model.name} on {question.device.name}, beside"
        f" {question.batch.running} requests with {question.batch.tokens:,}: a step takes"
        f" {told['step_ms']:.1f} ms, {told['token_us']:.1f} us a token to compute, saturated at"
        f" {found.cost.saturation:,}. Over {question.link.name} a copy takes"
        f" {told['copy_ms']:.1f} ms; tokens that hide behind a step: {hidden}."
    )
    columns = ["pause s", "keep GB s", "drop", "swap, waited for", "swap, hidden", "least waste"]
    rows = [
        [
            f"{pause['seconds']:g}", f"{pause['keep_gb_s']:.3g}", f"{pause['drop_gb_s']:.3g}",
            f"{pause['swap_gb_s']:.3g}", "0" if pause["swap_hides"] else "too short",
            pause["least"],
        ]
        for pause in told["pauses"]
    ]  # fmt: skip
    even = f"keeping wastes as much as dropping at {found.even_s:.2g} s"
    return Section("What a pause wastes", [Say(asked), Grid("", columns, rows), Say(even)])
