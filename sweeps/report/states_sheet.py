"""`bankwise fit --states`: requests held and memory wasted by allocator, shown and as JSON."""

from __future__ import annotations

from typing import Any

from policies.allocators.hybrid import USES
from sweeps.ask.states import Answer
from sweeps.report.screen import print_table


def record(found: Answer) -> dict[str, Any]:
    """Bytes, tokens and shares."""
    pages = found.pages
    return {
        "model": pages.model.name, "memory_bytes": found.memory,
        "kv_bytes_a_token": pages.model.kv_token_bytes,
        "state_bytes_a_request": pages.model.state_bytes(pages.drafts),
        "block_tokens": pages.block, "page_bytes": pages.page,
        "padding_share": pages.padding / pages.page, "group_layers": pages.group,
        "workloads": {
            name: {
                "mean_tokens": found.length[name], "even_ratio": found.even[name],
                "allocators": {
                    pool: {"requests": held.requests, "waste": held.waste, "bytes": held.bytes}
                    for pool, held in each.items()
                },
            }
            for name, each in found.held.items()
        },
    }  # fmt: skip


def show(found: Answer) -> None:
    """A line a workload and allocator."""
    told = record(found)
    print(
        f"{told['model']}: {told['memory_bytes'] / 2**30:,.1f} GiB for KV of"
        f" {told['kv_bytes_a_token'] / 1024:,.4g} KiB a token and states of"
        f" {told['state_bytes_a_request'] / 2**20:,.1f} MiB a request"
    )
    print(
        f"vLLM: blocks of {told['block_tokens']:,} tokens, {told['padding_share']:.2%} of a"
        f" state's page is padding, {told['group_layers']} layers a group\n"
    )
    rows = []
    for name, each in told["workloads"].items():
        for pool, held in each["allocators"].items():
            most = max(USES[2:], key=held["bytes"].__getitem__)
            share = held["bytes"][most] / found.memory
            rows.append([
                name, f"{each['mean_tokens']:,.0f}", pool, f"{held['requests']:,}",
                f"{held['waste']:.1%}", f"{most}, {share:.1%}", f"{each['even_ratio']:.2f}",
            ])  # fmt: skip
    columns = ["workload", "tokens", "allocator", "requests", "waste", "most of it", "even ratio"]
    print_table(columns, rows)
    print(
        "\nwaste: memory with neither tokens nor the state of a running request. even ratio: of"
        "\nSGLang's pools, at which both run out together. Requests at their full length."
    )
