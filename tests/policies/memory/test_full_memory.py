"""Does one layer stand for all, and a sample of steps for every step?"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from hwmodel.kernel.memory import Descriptors, SystemResult, simulate_system
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.memory import probe_cache, traffic
from policies.memory.fidelity import FidelitySpec
from policies.memory.probe import Probe, lost_ns, weights_efficiency
from policies.memory.probe_cache import simulate_once
from policies.requests.request_stream import generate
from policies.requests.requests import Requests
from policies.requests.workload import WorkloadSpec, workload_document
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from tests.policies.small import MODEL, device, mixed, spec
from tests.rotation import long

ENGINE = {"max_model_len": 1024}
FOUR = MODEL.model_copy(update={"layers": 4})


def served(fidelity: str, policy: str, count: int = 50) -> Any:
    changes = {"memory": {"fidelity": fidelity}, "policy": {"name": policy}, "engine": ENGINE}
    memory = device(8192)  # twice the layers, half the slots
    return serve(memory, FOUR, spec(**changes), mixed(count), seed=1).metrics


@pytest.mark.parametrize("policy", long("odma", "paged"))
def test_one_layer_stands_for_the_others(policy: str) -> None:
    full, exhaustive = (served(name, policy, 20) for name in ("full", "exhaustive"))
    ratio = full["output_tokens_per_s"] / exhaustive["output_tokens_per_s"]
    assert ratio == pytest.approx(1, abs=0.005)
    shares = [m["memory"]["phases"]["attention"]["efficiency"] for m in (full, exhaustive)]
    assert shares[0] == pytest.approx(shares[1], rel=0.02)
    assert full["memory"]["probes"] >= full["steps"]
    # all layers of every step were simulated: every byte that was moved, but for the weights
    assert exhaustive["memory"]["simulated_bytes"] > full["memory"]["simulated_bytes"]


class Case(NamedTuple):
    """A run on which `sampled` is held against `full`."""

    device: str
    policy: str
    workload: str
    count: int
    rate: float
    model: str = "deepseek-r1-distill-qwen-7b"
    most: int = 8192
    few: int = 40
    """Requests of which every step can be simulated."""

    def options(self, **memory: Any) -> ServingSpec:
        engine = {
            "max_num_batched_tokens": 4096, "max_tokens": self.most,
            "too_long": "drop",
        }  # fmt: skip
        return ServingSpec.model_validate(
            {
                "model": self.model, "policy": {"name": self.policy}, "engine": engine,
                "memory": memory, "predictor": {"kind": "lognormal", "sigma": 0.4},
            }
        )  # fmt: skip

    def offered(self, count: int) -> Requests:
        workload = workload_document(self.workload).build(WorkloadSpec)
        return generate(workload, count, self.rate, (1, 1))

    def throughput(self, **memory: Any) -> tuple[float, float]:
        """(output tokens/s, relative half-width that sampling adds)."""
        device, model = load_device(self.device), load_model(self.model)
        metrics = serve(
            device, model, self.options(**memory), self.offered(self.few), seed=1
        ).metrics
        return metrics["output_tokens_per_s"], metrics["memory"].get("throughput_ci95", 0.0)


CASES = [
    Case("mlu370-x4", "paged", "azure-conv", 400, 2.0),
    Case("mlu370-x4", "odma", "azure-conv", 400, 2.0),
    Case("a100-80gb", "paged", "azure-conv", 800, 12.0),
    Case("mlu370-x4", "paged", "azure-conv", 200, 2.0, "llama-2-7b", 2048, 16),  # KV is a third
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.device}-{c.policy}-{c.model}")


@pytest.mark.long
@each_case
def test_sampled_throughput_covers_that_of_full(case: Case) -> None:
    # ten draws of windows of one run; 26 of 30 is what 95 % intervals must at least do
    full, _ = case.throughput(fidelity="full")
    draws = [case.throughput(fidelity="sampled", seed=seed) for seed in range(10)]
    covered = sum(abs(mine / full - 1) <= half for mine, half in draws)
    mean = math.fsum(mine for mine, _ in draws) / len(draws)
    print(case, f"sampled / full {mean / full:.4f}, covered {covered} of 10,",
          [f"{mine / full - 1:+.4f} ± {half:.4f}" for mine, half in draws])  # fmt: skip
    assert mean == pytest.approx(full, rel=0.01)


def scattered(size: int) -> traffic.Extents:
    """Blocks of 16 KiB at random places."""
    place = np.random.default_rng(1).permutation(4 * size >> 14)[: size >> 14]
    start, count = place.astype(np.int64) << 14, len(place)
    sizes, ids = np.full(count, 16 << 10), np.arange(count)
    return traffic.Extents(start, sizes, np.zeros(count, np.bool_), ids)


def test_what_a_layer_loses_grows_with_the_root_of_its_length() -> None:
    # the begin of a layer, simulated to its end, tells what a window of the whole layer leaves out
    spec = FidelitySpec.model_validate({"calibrate": "32MiB"})
    measure = Probe(load_device("a100-80gb"), spec, simulate_system)
    layers = {0: scattered(64 << 20)}
    rng = np.random.default_rng(1)
    probes = [measure.measure(layers.__getitem__, 1, "slice", rng, True) for _ in range(4)]
    beside = [found.beside for found in probes if found.beside is not None]
    assert len(beside) == 4 and not any(found.exact for found in probes)
    window_ns = math.fsum(found.elapsed_ns for found in probes) / 4
    whole, _ = measure.whole([measure.deal(layers[0], "slice")])
    at_peak_ns = probes[0].at_peak_ns
    assert at_peak_ns / window_ns > 1.01 * whole
    reckoned_ns = window_ns + lost_ns(beside, at_peak_ns)[0]
    assert at_peak_ns / reckoned_ns == pytest.approx(whole, rel=0.02)


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


def stream() -> Descriptors:
    index = np.arange(64, dtype=np.int64)
    return Descriptors(index % 32, index * 4096, np.full(64, 2048), np.zeros(64, bool))


class TestCache:
    """A result that is kept is the one that would be computed."""

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv(probe_cache.PLACE, str(tmp_path / "probes"))
        return tmp_path / "probes"

    def files(self, place: Path) -> list[Path]:
        return sorted(place.rglob("*.json"))

    def test_cold_warm_and_broken_are_the_same(self, place: Path) -> None:
        mlu = load_device("mlu370-x4")
        plain = simulate_system(mlu, stream())
        assert simulate_once(mlu, stream()) == plain
        (file,) = self.files(place)
        assert simulate_once(mlu, stream()) == plain
        for text in ("", "{", "[1]", json.dumps({"gbps": 1.0})):
            file.write_text(text)
            assert simulate_once(mlu, stream()) == plain
            assert len(self.files(place)) == 1
        assert not list(place.rglob("*.part"))

    def test_a_warm_one_is_not_computed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mlu = load_device("mlu370-x4")
        first = simulate_once(mlu, stream())

        def refuse(*_: Any, **__: Any) -> SystemResult:
            raise AssertionError("computed again")

        monkeypatch.setattr(probe_cache, "simulate_system", refuse)
        assert simulate_once(mlu, stream()) == first
        with pytest.raises(AssertionError, match="computed again"):
            simulate_once(load_device("mlu370-x4", ["dma.window=8KiB"]), stream())
        with pytest.raises(AssertionError, match="computed again"):
            simulate_once(mlu, stream(), warmup_ns=1.0)

    def test_what_was_never_simulated_is_not_kept(self) -> None:
        mlu = load_device("mlu370-x4")
        with pytest.raises(probe_cache.NotKept):
            probe_cache.kept(mlu, stream())
        found = simulate_once(mlu, stream())
        assert probe_cache.kept(mlu, stream()) == found
        with pytest.raises(probe_cache.NotKept):
            probe_cache.kept(mlu, stream(), measure_ns=1.0)

    def test_it_is_bounded(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probe_cache, "MOST_FILES", 8)
        mlu = load_device("mlu370-x4")
        monkeypatch.setattr(probe_cache, "_key", lambda *_: f"00{np.random.default_rng().random()}")
        for _ in range(20):
            simulate_once(mlu, stream())
        assert 4 <= len(self.files(place)) <= 8

    def test_off_keeps_nothing(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(probe_cache.PLACE, "off")
        simulate_once(load_device("mlu370-x4"), stream())
        assert not place.exists()

    def test_a_place_that_cannot_be_written_is_no_mistake(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv(probe_cache.PLACE, str(tmp_path / "file"))
        mlu = load_device("mlu370-x4")
        assert simulate_once(mlu, stream()) == simulate_system(mlu, stream())
