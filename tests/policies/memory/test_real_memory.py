"""Does the whole job run on the cycle-level model, with the same numbers every time?"""

from __future__ import annotations

from hwmodel.kernel.memory import simulate_system
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.memory.fidelity import FidelitySpec
from policies.memory.probe import weights_efficiency


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
