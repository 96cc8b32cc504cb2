"""Does the whole job run on the cycle-level model, with the same numbers every time?"""

from __future__ import annotations

import pytest

from hwmodel.kernel.memory import simulate_system
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.memory.fidelity import FidelitySpec
from policies.memory.probe import weights_efficiency
from tests.policies.small import MODEL, mixed, requests, run

STREAM = mixed(60)
SAMPLED = {"fidelity": "sampled", "warmup": "2us", "measure": "4us", "max_probes": 3}


@pytest.mark.parametrize("policy", ["static", "paged", "odma"])
def test_sampled_runs_on_the_dram_model(policy: str) -> None:
    changes = {"policy": {"name": policy}, "memory": SAMPLED, "engine": {"max_model_len": 1024}}
    first, again = (run(4096, STREAM, **changes).metrics for _ in range(2))
    memory = first["memory"]
    assert 0.05 < memory["efficiency"]["attention"] < 1
    # a layer of this model is five tiles: most engines have none
    assert 0.1 < memory["efficiency"]["weights"] < 1
    assert 0 < memory["phases"]["attention"]["row_hit_rate"] < 1
    for metrics in (first, again):
        del metrics["memory"]["probe_wall_s"]
    assert first == again


def test_the_control_has_the_weights_of_the_sampled_run_and_kv_of_one_efficiency() -> None:
    stream = requests([0.0], 100, 10)
    metrics = run(4096, stream, memory={}).metrics
    weights, *kv = metrics["memory"]["efficiency"].values()
    assert len(set(kv)) == 1
    assert 0.3 < kv[0] < 1
    assert metrics["kv_gbps"] == pytest.approx(kv[0] * 307.2)
    assert MODEL.kv_token_bytes == 256
    sampled = run(4096, stream, memory={"fidelity": "sampled"}).metrics["memory"]
    assert sampled["efficiency"]["weights"] == weights


def test_tiles_dealt_in_turn_are_faster_than_slices_of_a_layer() -> None:
    # a layer of 466 MB: 32 engines that each own a slice hit each other's channels and rows
    device = load_device("mlu370-x4", ["derate=1"])
    model = load_model("deepseek-r1-distill-qwen-7b")
    slice_bytes = -(-model.layer_weight_edges[1] // 32 // 512) * 512
    turns, slices = (
        weights_efficiency(
            device, model, FidelitySpec.model_validate({"weight_tile": f"{tile}B"}), simulate_system
        )
        for tile in (16 << 10, slice_bytes)
    )
    assert turns > 0.95
    assert 0.7 < slices < 0.92
