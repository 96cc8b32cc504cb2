"""How much of their prompts requests find of those before them, if memory had no end: Mooncake's
trace beside the laws of sessions that ship, printed as JSON.

    python -m tools.peers.sharing conversation_trace.jsonl

The file: github.com/kvcache-ai/Mooncake, `FAST25-release/traces`, commit 3b5a594.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from policies.requests.request_stream import generate
from policies.requests.requests import Requests
from policies.requests.trace_formats import MOONCAKE_BLOCK_TOKENS as BLOCK
from policies.requests.workload import WorkloadSpec, workload_document
from sweeps.analyse.statistics import interval

TURNS, SEEDS = 12_031, range(1, 9)
"""Drawn of each law: as many as the trace has, and how often."""
Row = dict[str, float]


def traced(path: Path) -> Row:
    """Of Mooncake's file, by its hash ids. All prompts begin with one block, the system's; a
    request that shares no more of its prompt with an earlier one begins a session."""
    seen: set[int] = set()
    prompt = found = begun = requests = 0
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            item = json.loads(line)
            ids, tokens = item["hash_ids"], item["input_length"]
            shared = next((i for i, each in enumerate(ids) if each not in seen), len(ids))
            seen.update(ids)
            requests, begun = requests + 1, begun + (shared <= 1)
            prompt, found = prompt + tokens, found + min(shared * BLOCK, tokens)
    return _row(requests, begun, prompt, found)


def drawn(name: str, mean_turns: float | None = None) -> dict[str, list[float]]:
    """Of a law that ships, means over seeds and their 95 % intervals; `mean_turns`: instead of its
    own."""
    document = workload_document(name)
    if mean_turns is not None:
        document.data["lengths"]["sessions"]["mean_turns"] = mean_turns
    law, rows = document.build(WorkloadSpec), list[Row]()
    for seed in SEEDS:
        requests = generate(law, TURNS, 1.0, seed)
        found, begun = shared_tokens(requests), len(np.unique(requests.session))
        rows.append(_row(len(requests), begun, int(requests.prompt_tokens.sum()), found))
    means = {key: interval([row[key] for row in rows]) for key in rows[0]}
    return {
        key: [float(f"{value:.6g}") for value in (mean.mean, mean.low, mean.high)]
        for key, mean in means.items()
    }


def shared_tokens(requests: Requests) -> int:
    """Prompt tokens that an earlier request had: of a turn all of the turn before, of a first one
    the longest opening that was seen."""
    whole, before = requests.prompt_tokens + requests.output_tokens, requests.turn_before
    longest: dict[int, int] = {}
    found = 0
    for request in range(len(requests)):
        openings = requests.prefixes(request)
        if requests.context[request] >= 0 and before[request] >= 0:
            found += int(whole[before[request]])
        else:
            found += max((min(n, longest.get(i, 0)) for i, n in openings), default=0)
        for i, n in openings:
            longest[i] = max(n, longest.get(i, 0))
    return found


def _row(requests: int, begun: int, prompt: int, found: int) -> Row:
    return {
        "turns a session": round(requests / begun, 4),
        "mean prompt": round(prompt / requests, 1),
        "prompt tokens found": round(found / prompt, 6),
    }


def main(path: Path) -> None:
    """Write the file."""
    real = traced(path)
    turns = round(real["turns a session"], 2)
    values = {
        "the trace, one hour, 12,031 requests": real,
        "`chat-sessions`": drawn("chat-sessions"),
        f"the same with `mean_turns: {turns}`": drawn("chat-sessions", turns),
        "`agents`": drawn("agents"),
        "`shared-documents`": drawn("shared-documents"),
    }
    print(json.dumps({"workloads": values}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
