"""Is a memory asked for the windows that its options say?"""

from __future__ import annotations

import math
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from policies.allocators.kv_layout import kv_layout
from policies.memory.fidelity import FidelitySpec
from policies.memory.memory_model import memory_model
from tests.policies.small import MODEL, FakeMemory, mixed, run

STREAM = mixed(200)
ENGINE = {"max_model_len": 1024}


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


def test_a_memory_alone_cannot_serve() -> None:
    with pytest.raises(DescriptionError, match="needs an accelerator"):
        lone = load_device("lpddr5-6400-x16")
        memory_model(FidelitySpec(), lone, MODEL, kv_layout(lone, MODEL), 1, FakeMemory())
