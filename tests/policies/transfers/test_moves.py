"""Are the transfers beside a run those of the blocks that its requests hold?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.allocators.kv_layout import Units
from policies.requests.requests import Requests
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from policies.transfers.moves import as_table

DEVICE, MODEL = load_device("mlu370-x4"), load_model("llama-3.1-8b")
LINKS = ["pcie5-h100-merged", "nixl-cuda-ipc"]


def served(requests: int = 6, model: str = "llama-3.1-8b", **changes: Any) -> dict[str, Any]:
    each = np.ones(requests, np.int64)
    stream = Requests(np.arange(requests) * 1.0, each * 100, each * 4)
    data = {"model": model, "memory": {"efficiency": 1.0}, **changes}
    spec = ServingSpec.model_validate(data)
    return serve(DEVICE, load_model(model), spec, stream, seed=0).metrics


def test_blocks_in_order_are_one_run_and_each_region_a_descriptor_where_links_merge() -> None:
    found = served(policy={"name": "paged", "block": 16}, moves={"links": LINKS})["moves"]
    assert (found["requests"], found["blocks"], found["runs"]) == (6, 7, 1)  # 100 tokens
    regions = 2 * MODEL.layers
    descriptors = {name: found[name]["descriptors"] for name in LINKS}
    assert descriptors == {"pcie5-h100-merged": regions, "nixl-cuda-ipc": 7 * regions}
    assert found["nixl-cuda-ipc"]["bytes"] == 7 * 16 * MODEL.kv_token_bytes


def test_windows_move_what_they_see_and_states_whole() -> None:
    """Of gpt-oss-20b half of the layers have a window of 128 tokens: of 100 tokens all moves."""
    model = load_model("gpt-oss-20b")
    found = served(model="gpt-oss-20b", moves={"links": LINKS})["moves"]
    assert found["nixl-cuda-ipc"]["bytes"] == pytest.approx(112 * model.kv_token_bytes, rel=0.13)
    hybrid = load_model("qwen3.5-9b")
    moved = served(model="qwen3.5-9b", moves={"links": LINKS})["moves"]["nixl-cuda-ipc"]["bytes"]
    assert moved == hybrid.state_bytes() + 100 * hybrid.kv_token_bytes


def test_a_reservation_is_one_block() -> None:
    found = served(policy={"name": "static"}, moves={"links": LINKS})["moves"]
    assert found["nixl-cuda-ipc"]["descriptors"] == 2 * MODEL.layers
    assert found["nixl-cuda-ipc"]["bytes"] == 100 * MODEL.kv_token_bytes


@pytest.mark.parametrize(
    ("start", "size", "table"),
    [
        ([32, 0, 96], [16, 16, 16], (16, [2, 0, 6])),
        ([40], [100], (100, [0])),
        ([0, 64], [32, 16], (16, [0, 1, 4])),
        ([8, 32], [16, 16], (8, [1, 2, 4, 5])),
    ],
)
def test_units_as_a_block_table(start: list[int], size: list[int], table: tuple[int, Any]) -> None:
    found = as_table(Units(*(np.array(values, np.int64) for values in (start, size, size))))
    assert (found[0], found[1].tolist()) == table
