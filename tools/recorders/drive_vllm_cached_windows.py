"""Drive the scheduler of vLLM V1 on models with sliding windows, with prefix caching.

    PYTHON drive_vllm_cached_windows.py SCHEDULES.json.gz [DRAWS] [drafts]

runs the cases below with PYTHON's vLLM, DRAWS of each (1), with `drafts` those that speculate
alone, and writes them beside those of other versions there. Prompts share texts, are turns of
sessions, or neither. Made with 0.23.0 and 0.33.0; README.md has the form.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import vllm
from drive_vllm_speculation import drive

CASES: dict[str, dict[str, Any]] = {
    # groups: window of each, None: full attention; shares, sessions: what prompts begin with
    "gpt-oss": {"groups": [128, None], "shares": True},
    "gpt-oss-turns": {"groups": [128, None], "sessions": 10, "factor": 4.0},
    "gemma": {"groups": [64, 64, 64, 64, 64, None], "shares": True, "factor": 1.6},
    "gemma-turns": {"groups": [96, 96, None], "sessions": 8, "factor": 3.0},
    "mistral": {"groups": [100], "shares": True, "factor": 0.8},
    "mistral-turns": {"groups": [64], "sessions": 10, "factor": 2.5},
    "full-first": {"groups": [None, None, 64], "shares": True},
    "small": {"groups": [None, 3], "shares": True},
    "wide": {"groups": [None, 512], "shares": True, "longest": 1500, "requests": 20},
    "chunk": {"groups": [64, None], "shares": True, "full": False, "longest": 1000},
    "tight": {"groups": [64, None], "shares": True, "factor": 0.6},
    "watermark": {"groups": [64, None], "shares": True, "watermark": 0.05},
    "async": {"groups": [64, None], "shares": True, "async": True},
    "async-stop": {"groups": [64, 64, None], "shares": True, "async": True, "ends": "stop"},
    "async-turns": {
        "groups": [100, None],
        "sessions": 8,
        "async": True,
        "factor": 3.0,
    },
    "async-tight": {"groups": [48], "shares": True, "async": True, "factor": 0.5, "ends": "stop"},
}
DRAFTS: dict[str, dict[str, Any]] = {
    "ngram": {"method": "ngram", "drafts": 4, "groups": [64, None], "shares": True},
    "eagle": {"method": "eagle", "drafts": 3, "groups": [128, None], "shares": True},
    "eagle-turns": {
        "method": "eagle", "drafts": 3, "groups": [64, 64, None], "sessions": 8, "factor": 3.0,
    },
    "mtp-one": {"method": "mtp", "drafts": 1, "groups": [80], "shares": True, "factor": 0.8},
    "draft-tight": {"method": "draft", "drafts": 3, "groups": [64, None], "factor": 0.7},
    "eagle-async": {
        "method": "eagle", "drafts": 3, "groups": [64, None], "shares": True, "async": True,
    },
    "ngram-async": {
        "method": "ngram", "drafts": 5, "groups": [64, 64, None], "shares": True, "async": True,
        "factor": 0.7,
    },
    "mtp-async-stop": {
        "method": "mtp", "drafts": 2, "groups": [48], "shares": True, "async": True,
        "ends": "stop", "factor": 0.6,
    },
}  # fmt: skip


def made(name: str, kind: dict[str, Any], nth: int) -> dict[str, Any] | None:
    """A case with its requests; None where this version has no such option."""
    if kind.get("watermark") and vllm.__version__ < "0.3":
        return None
    rng = np.random.default_rng([zlib.crc32(f"cached {name}".encode()), nth])
    block, longest = int(rng.choice([8, 16, 16, 32])), kind.get("longest", 500)
    groups, count = kind["groups"], kind.get("requests", 30)
    if kind.get("sessions"):
        columns = turns(rng, kind["sessions"], count)
    else:
        prompt = np.clip(rng.lognormal(np.log(longest / 4), 0.9, count).astype(int), 4, longest)
        output = np.clip(rng.lognormal(np.log(60), 0.8, count).astype(int), 1, 400)
        arrival = np.cumsum(rng.poisson(2.0, count))
        columns = {"arrival": arrival, "prompt": prompt, "output": output}
    most = int((columns["prompt"] + columns["output"]).max())
    blocks = len(groups) * -(-int(kind.get("factor", 1.2) * max(most, 1300)) // block)
    config = {
        "blocks": blocks, "block_size": block, "groups": groups,
        "max_num_batched_tokens": int(rng.choice([96, 256, 512])),
        "max_num_seqs": int(rng.choice([6, 16, 32])), "prefix_caching": True,
        "reserve_full_isl": kind.get("full", True), "watermark": kind.get("watermark", 0.0),
        "async": kind.get("async", False), "ends": kind.get("ends", "length"),
    }  # fmt: skip
    session = columns.pop("session", None)
    trace = {name: column.tolist() for name, column in columns.items()}
    if kind.get("method"):
        config["speculation"] = {"method": kind["method"], "tokens": kind["drafts"]}
        drawn = rng.choice(kind["drafts"] + 1, (count, 401))
        ends = zip(drawn, trace["output"], strict=True)
        trace["held"] = ["".join(map(str, row[:end])) for row, end in ends]
    if kind.get("shares"):
        ids = rng.integers(-1, 3, count)
        shared = np.minimum(np.array([200, 300, 75, 0])[ids], trace["prompt"])
        trace |= {"prefix_id": ids.tolist(), "prefix_tokens": shared.tolist()}
    version = vllm.__version__
    case = {"name": f"{name}-{nth}-{version}", "vllm": version, "config": config, "trace": trace}
    return case if session is None else case | {"bankwise": {"session": session.tolist()}}


def turns(rng: np.random.Generator, sessions: int, count: int) -> dict[str, Any]:
    """Columns of turns, each sent when the one before has ended for certain."""
    rows = []
    for session in range(sessions):
        at, before = int(rng.integers(0, 400)), 0
        for _ in range(-(-count // sessions)):
            prompt, output = before + int(rng.integers(8, 160)), int(rng.integers(1, 80))
            rows.append((at, prompt, output, session))
            at += 4 * output + 300 + int(rng.integers(0, 200))
            before = prompt + output
    rows.sort()
    names = ("arrival", "prompt", "output", "session")
    return dict(zip(names, np.array(rows[:count], np.int64).T, strict=True))


def main() -> None:
    path, draws = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    cases = DRAFTS if "drafts" in sys.argv else CASES
    kept = json.loads(gzip.decompress(path.read_bytes()))["cases"] if path.exists() else []
    for name, kind in cases.items():
        for nth in range(draws):
            if case := made(name, kind, nth):
                kept = [each for each in kept if each["name"] != case["name"]]
                try:
                    drive(case)
                except AssertionError as error:
                    print(f"{case['name']:24} left out: {error}")
                    continue
                kept.append(case)
                print(
                    f"{case['name']:24} {len(case['steps']):5} steps"
                    f" {sum(len(step[2]) for step in case['steps']):4} preemptions"
                    f" {sum(step[3] for step in case['steps']):6} found",
                    flush=True,
                )
    kept.sort(key=lambda case: [int(part) for part in case["vllm"].split(".")])
    text = json.dumps({"cases": kept}, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
