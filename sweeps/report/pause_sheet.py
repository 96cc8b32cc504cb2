"""`bankwise transfer --pause`: the waste of each way by pause, on the screen and as JSON."""

from __future__ import annotations

from typing import Any

from sweeps.ask.pause import Answer, Question
from sweeps.report.screen import print_table


def record(question: Question, found: Answer) -> dict[str, Any]:
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


def show(question: Question, found: Answer) -> None:
    """The step, what hides behind it, and a line a pause."""
    told = record(question, found)
    print(
        f"{question.context:,} tokens of {question.model.name} on {question.device.name}, beside"
        f" {question.batch.running} requests with {question.batch.tokens:,}"
    )
    print(
        f"a step {told['step_ms']:.1f} ms, {told['token_us']:.1f} us a token to compute,"
        f" saturated at {found.cost.saturation:,}"
    )
    hidden = ", ".join(f"{tokens:,} {name}" for name, tokens in found.hidden.items())
    copy = f"over {question.link.name} a copy takes {told['copy_ms']:.1f} ms"
    print(f"{copy}; tokens that hide behind a step: {hidden}")
    print(f"keeping wastes as much as dropping at {found.even_s:.2g} s\n")
    columns = ["pause s", "keep GB s", "drop", "swap, waited for", "swap, hidden", "least waste"]
    rows = [
        [
            f"{pause['seconds']:g}", f"{pause['keep_gb_s']:.3g}", f"{pause['drop_gb_s']:.3g}",
            f"{pause['swap_gb_s']:.3g}", "0" if pause["swap_hides"] else "too short",
            pause["least"],
        ]
        for pause in told["pauses"]
    ]  # fmt: skip
    print_table(columns, rows)
