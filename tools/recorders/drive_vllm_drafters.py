"""Ask vLLM how the KV of a draft model joins the pages of models whose layers keep states.

    PYTHON drive_vllm_drafters.py GROUPS.json

writes, of each pattern and drafter below, the groups of layers, the tokens of a block in each kind
of layer, and the bytes of a block; `null` where vLLM refuses. Made with 0.33.0, whose layouts have
layers outermost by default.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import vllm
from drive_vllm_windows import config_of
from vllm.v1.core.kv_cache_planning import get_kv_cache_groups
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, MLAAttentionSpec

PATTERNS: dict[str, tuple[int, int, int, int, int]] = {
    # layers with KV, layers with a state, KV heads (0: one latent), head size, tokens of a block
    "qwen3-next-80b-a3b": (12, 36, 2, 256, 1072),
    "qwen3.5-9b": (8, 24, 4, 256, 544),
    "qwen3.5-27b": (16, 48, 4, 256, 800),
    "granite-4.0-h-small": (4, 36, 8, 128, 544),
    "jamba-v0.1": (4, 28, 8, 128, 96),
    "falcon-h1-7b": (44, 44, 2, 128, 1584),
    "lfm2-1.2b": (6, 10, 8, 64, 16),
    "kimi-linear-48b-a3b": (7, 20, 0, 576, 1952),
}
DRAFTERS = [
    (28, 8, 128), (28, 4, 256), (9, 2, 128), (8, 2, 96), (12, 8, 64), (36, 8, 128), (1, 1, 72),
]  # fmt: skip
"""Layers, KV heads, head size. In bf16."""


def groups_of(pattern: tuple[int, int, int, int, int], drafter: tuple[int, int, int]) -> Any:
    """Numbers of layers of each group by kind, tokens of a block, bytes of a page."""
    full, states, heads, size, block = pattern
    kind: dict[str, Any] = {"block_size": block, "dtype": torch.bfloat16}
    kept: Any = FullAttentionSpec(num_kv_heads=heads, head_size=size, **kind) if heads else None
    kept = kept or MLAAttentionSpec(num_kv_heads=1, head_size=size, **kind)
    # what `_align_hybrid_block_size` leaves: a state's page is that of a block of the model's KV
    state = MambaSpec(
        block_size=32768, shapes=((16, 16),), dtypes=(torch.float32,),
        page_size_padded=kept.page_size_bytes,
    )  # fmt: skip
    own = FullAttentionSpec(num_kv_heads=drafter[1], head_size=drafter[2], **kind)
    specs: dict[str, Any] = {f"state.{at}": state for at in range(states)}
    specs |= {f"full.{at}": kept for at in range(full)}
    specs |= {f"own.{at}": own for at in range(drafter[0])}
    whole = config_of({
        "blocks": 10, "block_size": 16, "groups": [None], "max_num_batched_tokens": 256,
        "max_num_seqs": 32, "prefix_caching": False, "reserve_full_isl": True, "watermark": 0.0,
        "async": False, "ends": "length",
    })  # fmt: skip
    whole.scheduler_config.disable_hybrid_kv_cache_manager = False
    whole.cache_config.kv_cache_layout = "LBNHC"
    try:
        found = get_kv_cache_groups(whole, specs)
    except NotImplementedError:
        return None
    pages = {each.kv_cache_spec.page_size_bytes for each in found}
    assert len(pages) == 1
    return {
        "groups": [[name.split(".")[0] for name in each.layer_names] for each in found],
        "tokens": {
            each.layer_names[0].split(".")[0]: each.kv_cache_spec.block_size
            for each in found if not each.layer_names[0].startswith("state")
        },
        "page": pages.pop(),
    }  # fmt: skip


def main() -> None:
    found = [
        {"model": name, "pattern": pattern, "drafter": drafter, "vllm": groups_of(pattern, drafter)}
        for name, pattern in PATTERNS.items()
        for drafter in DRAFTERS
    ]
    for each in found:  # as many layers of each kind in each group say it
        if each["vllm"]:
            named = each["vllm"].pop("groups")
            each["vllm"]["groups"] = [[g.count(k) for k in ("full", "state", "own")] for g in named]
    made = {"vllm": vllm.__version__, "cases": found}
    Path(sys.argv[1]).write_text(json.dumps(made, separators=(",", ":")) + "\n")
    refused = sum(each["vllm"] is None for each in found)
    print(f"{len(found)} patterns with a drafter, {refused} of them refused")


if __name__ == "__main__":
    main()
