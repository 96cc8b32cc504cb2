"""Do probes come when the batch has moved, and does what they measure change the run?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from policies.allocators.kv_layout import kv_layout
from policies.memory import traffic
from policies.memory.fidelity import FidelitySpec
from policies.memory.interval import confidence_interval
from policies.memory.memory_model import memory_model
from policies.memory.probe import Probe
from tests.policies.small import MODEL, FakeMemory, device, mixed, run

STREAM = mixed(200)
ENGINE = {"max_model_len": 1024}


def memory(**changes: Any) -> Any:
    spec = FidelitySpec.model_validate(changes)
    big = device(4096)
    return memory_model(spec, big, MODEL, kv_layout(big, MODEL, 1.0), 1, FakeMemory())


def sampled(**changes: Any) -> dict[str, Any]:
    fake = FakeMemory()
    options = {"fidelity": "sampled", "precision": 9.0, **changes}
    return run(4096, STREAM, memory=options, engine=ENGINE, simulate=fake).metrics["memory"]


def test_the_control_has_one_efficiency_for_weights_and_one_for_all_kv() -> None:
    # the stand-in is slower the more descriptors there are: weights come in tiles, KV in long runs
    weights, *kv = memory(weight_tile="1KiB").efficiency
    assert len(set(kv)) == 1
    assert 0 < weights < kv[0] < 1


def test_the_control_is_blind_to_the_layout_and_to_the_spread() -> None:
    found = set()
    for spread in ("slice", "sequence", "split", "head", "head_major"):
        big = device(4096, f"work.spread={spread}")
        layout = kv_layout(big, MODEL, 1.0)
        found.add(memory_model(FidelitySpec(), big, MODEL, layout, 1, FakeMemory()).efficiency[1])
    assert len(found) == 1


def test_given_efficiencies_need_no_simulator() -> None:
    spec = FidelitySpec(efficiency=0.8, attention=0.5)
    big = device(4096)
    found = memory_model(spec, big, MODEL, kv_layout(big, MODEL, 1.0), 1, None).efficiency
    assert found == (0.8, 0.5, 0.8, 0.8)


def test_what_is_a_devices_own_is_measured_once() -> None:
    fake = FakeMemory()
    calls = []
    for seed in (1, 2):
        run(4096, STREAM[:5], seed=seed, memory={}, engine=ENGINE, simulate=fake)
        calls.append(len(fake.calls))
    assert calls[0] == calls[1] > 1


def test_sampled_measures_the_batch_and_says_what_it_cost() -> None:
    found = sampled()
    attention = found["phases"]["attention"]
    assert attention["probes"] > 1 and attention["row_hit_rate"] == 0.75
    assert 0 < attention["ci95"] < 0.2
    assert (
        found["efficiency"]["attention"]
        == attention["efficiency"]
        != found["efficiency"]["weights"]
    )
    assert found["simulated_share"] > 0
    assert found["probe_wall_s"] > 0
    assert 0 < found["throughput_ci95"] < 0.2


@pytest.mark.parametrize("phase", ["weights", "attention", "prefill"])
def test_a_given_phase_is_not_measured(phase: str) -> None:
    found = sampled(**{phase: 0.123})
    assert found["efficiency"][phase] == 0.123
    if phase != "weights":
        assert found["phases"][phase]["probes"] == 0


def test_the_layout_reaches_the_simulator() -> None:
    changes = {"memory": {"fidelity": "sampled"}, "engine": ENGINE, "simulate": FakeMemory()}
    rates = {
        order: run(4096, STREAM, kv_layout=order, **changes).metrics["kv_gbps"]
        for order in ("layer_kv_token", "layer_kv_block_head")
    }
    assert rates["layer_kv_block_head"] < rates["layer_kv_token"]


class Asked(FakeMemory):
    """Notes the windows."""

    def __init__(self) -> None:
        super().__init__()
        self.windows: set[tuple[float, float]] = set()

    def __call__(
        self, device: Any, d: Any, *, warmup_ns: float, measure_ns: float, **more: Any
    ) -> Any:
        self.windows.add((warmup_ns, measure_ns))
        return super().__call__(device, d, warmup_ns=warmup_ns, measure_ns=measure_ns)


def windows(**changes: Any) -> set[tuple[float, float]]:
    fake = Asked()
    options = {"fidelity": "sampled", "precision": 9.0, **changes}
    run(4096, STREAM[:20], memory=options, engine=ENGINE, simulate=fake)
    return fake.windows


def test_the_window_is_what_the_simulator_is_asked_for() -> None:
    # weights, of 74 KiB a layer, do not fit; a layer of the first requests' KV does
    whole = (0.0, math.inf)
    assert windows(warmup="50ns", measure="200ns") - {whole} == {(50.0, 200.0)}
    assert windows(measure="150ns") - {whole} == {(150.0, 150.0)}
    assert windows(measure="1ms") == {whole}


def test_a_probe_moves_no_more_than_its_bytes_at_the_peak() -> None:
    found = sorted(windows(probe_bytes="32KiB") - {(0.0, math.inf)})
    assert found[0][1] * 307.2 == pytest.approx(32 << 10)
    for warmup, measure in found:  # of engines that are slow, whole times as long
        assert warmup == measure
        assert measure / found[0][1] % 1 == pytest.approx(0.0)


def test_every_engine_has_work_for_the_whole_window_and_no_more() -> None:
    fake = Asked()
    options = {"fidelity": "sampled", "probe_bytes": "4KiB"}
    run(4096, STREAM, memory=options, engine=ENGINE, simulate=fake)
    dma = device(4096).accelerator.dma  # type: ignore[union-attr]
    warmup, measure = max(fake.windows - {(0.0, math.inf)})
    longest = (warmup + measure) * 1e-9 * dma.port_bandwidth + dma.window + dma.request
    for descriptors in fake.calls[1:]:
        assert (descriptors.size.sum()) <= longest * dma.engines


def test_a_probe_lays_out_only_the_layers_it_needs() -> None:
    big = load_device("a100-80gb")
    laid_out = []

    def layer(index: int) -> traffic.Extents:
        laid_out.append(index)
        return traffic.contiguous(0, 1 << 30, big.accelerator.dma.engines)  # type: ignore[union-attr]

    for seed in range(5):
        probe = Probe(big, FidelitySpec(), FakeMemory())
        probe.measure(layer, 28, "slice", np.random.default_rng(seed))
    assert len(laid_out) <= 6  # 10 MB an engine, of which the window takes 0.5 MB


def test_a_memory_alone_cannot_serve() -> None:
    with pytest.raises(DescriptionError, match="needs an accelerator"):
        lone = load_device("lpddr5-6400-x16")
        memory_model(FidelitySpec(), lone, MODEL, kv_layout(lone, MODEL), 1, FakeMemory())


def test_the_interval_is_students() -> None:
    assert confidence_interval([]) == (0, None)
    assert confidence_interval([3.0]) == (3, None)
    mean, half = confidence_interval([1.0, 2.0, 3.0])
    assert (mean, half) == (2, pytest.approx(4.302653 / 3**0.5))
    assert confidence_interval([0.0, 2.0] * 50)[1] == pytest.approx(0.1994, abs=1e-4)
