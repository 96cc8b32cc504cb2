"""Drive the scheduler of vLLM V1 on models whose layers keep states, with drafts and without.

    PYTHON drive_vllm_states.py SCHEDULES.json.gz [DRAWS]

runs the cases below with PYTHON's vLLM, DRAWS of each (1), and writes them beside those of other
versions there. Made with 0.23.0 and 0.33.0; README.md has the form.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from drive_vllm_speculation import drive, made, of_other_versions, write

CASES: dict[str, dict[str, Any]] = {
    # states: groups of layers that keep one; tokens: drafts, 0: none
    "state": {"states": 3, "tokens": 0},
    "state-tight": {"states": 3, "tokens": 0, "blocks": 90},
    "state-chunk": {"states": 1, "tokens": 0, "full": False, "longest": 1200, "blocks": 110},
    "state-async": {"states": 3, "tokens": 0, "async": True, "blocks": 100},
    "state-mtp": {"states": 3, "tokens": 3, "method": "mtp", "blocks": 160},
    "state-mtp-tight": {"states": 3, "tokens": 2, "method": "mtp", "blocks": 90},
    "state-ngram": {"states": 1, "tokens": 5, "blocks": 120},
    "state-eagle-long": {"states": 2, "tokens": 8, "method": "eagle", "blocks": 200},
    "state-draft": {"states": 1, "tokens": 3, "method": "draft", "blocks": 100},
    "state-budget": {
        "states": 2, "tokens": 4, "method": "mtp", "budget": 64, "seqs": 24, "blocks": 150,
    },
    "state-mtp-chunk": {
        "states": 3, "tokens": 3, "method": "mtp", "full": False, "longest": 1200, "blocks": 170,
    },
    "state-watermark": {
        "states": 3, "tokens": 3, "method": "mtp", "watermark": 0.05, "blocks": 160,
    },
    "state-async-mtp": {"states": 3, "tokens": 1, "method": "mtp", "async": True, "blocks": 120},
    "state-async-ngram": {"states": 1, "tokens": 4, "async": True, "blocks": 100},
    "state-async-stop": {
        "states": 2, "tokens": 3, "method": "eagle", "async": True, "ends": "stop", "blocks": 140,
    },
    # drafter: groups of a draft model's layers, and tokens of a block there
    "state-own": {"states": 3, "tokens": 3, "method": "draft", "drafter": [2, 16], "blocks": 190},
    "state-own-small": {
        "states": 1, "tokens": 4, "method": "draft", "drafter": [3, 8], "blocks": 440,
    },
    "state-own-large": {
        "states": 3, "tokens": 2, "method": "draft", "drafter": [1, 32], "blocks": 130,
    },
    "state-own-chunk": {
        "states": 2, "tokens": 3, "method": "draft", "drafter": [2, 8], "full": False,
        "longest": 1200, "blocks": 540,
    },
    "state-own-async": {
        "states": 3, "tokens": 3, "method": "draft", "drafter": [3, 16], "async": True,
        "blocks": 260,
    },
    "state-own-async-stop": {
        "states": 2, "tokens": 5, "method": "draft", "drafter": [1, 64], "async": True,
        "ends": "stop", "blocks": 130,
    },
    "state-own-watermark": {
        "states": 3, "tokens": 3, "method": "draft", "drafter": [2, 32], "watermark": 0.05,
        "blocks": 190,
    },
    "state-own-budget": {
        "states": 1, "tokens": 3, "method": "draft", "drafter": [1, 8], "budget": 64, "seqs": 24,
        "blocks": 220,
    },
}  # fmt: skip


def main() -> None:
    path, draws = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kept = of_other_versions(path)
    for name, kind in CASES.items():
        for nth in range(draws):
            case = made(name, {"method": "ngram", **kind}, nth)
            if case is None:
                continue
            case["config"] |= {key: kind[key] for key in ("states", "drafter") if key in kind}
            if not kind["tokens"]:
                del case["config"]["speculation"], case["trace"]["held"]
            drive(case)
            kept.append(case)
            lost = sum(len(step[2]) for step in case["steps"])
            print(
                f"{case['name']:28} {len(case['steps']):5} steps {lost:4} preemptions", flush=True
            )
    write(path, kept)


if __name__ == "__main__":
    main()
