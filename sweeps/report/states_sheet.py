"""`bankwise fit --states`: requests held and memory wasted by allocator, as a section and JSON."""

from __future__ import annotations

from typing import Any

from policies.allocators.hybrid import USES
from sweeps.ask.states import StatesAnswer
from sweeps.sections.section import Grid, Say, Section


def record(found: StatesAnswer) -> dict[str, Any]:
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


def sheet(found: StatesAnswer) -> Section:
    """A line a workload and allocator."""
    told = record(found)
    about = (
        f"{told['model']}: {told['memory_bytes'] / 2**30:,.1f} GiB for KV of"
        f" {told['kv_bytes_a_token'] / 1024:,.4g} KiB a token and states of"
        f" {told['state_bytes_a_request'] / 2**20:,.1f} MiB a request. vLLM: blocks of"
        f" {told['block_tokens']:,} tokens, {told['padding_share']:.2%} of a state's page is"
        f" padding, {told['group_layers']} layers a group."
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
    note = (
        "waste: memory with neither tokens nor the state of a running request. even ratio: of"
        " SGLang's pools, at which both run out together. Requests at their full length."
    )
    return Section("Models with states", [Say(about), Grid("", columns, rows), Say(note)])
