"""Does `size` find the bandwidth, gather ratio and load that closed forms give?"""

from __future__ import annotations

from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.requests.slo import Slo
from policies.requests.workload import WorkloadSpec, workload_document
from sweeps.ask import sizing
from sweeps.ask.sizing import TOLERANCE, Asked, Target, answer, delivered, mean_output
from sweeps.report.size_sheet import Sized, record, sheet

CARD = load_device("rtx-4090")
WORKLOAD = workload_document("constant").build(WorkloadSpec)  # 512 + 128 tokens
CONTEXT = 512 + 64


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "REQUESTS", 30)
    monkeypatch.setattr(sizing, "WARMUP", 5)
    monkeypatch.setattr(sizing, "SATURATED", (60, 60))


def target(tpot: str, per_s: float = 0.01) -> Target:
    slo = Slo.model_validate({"ttft": "60s", "tpot": tpot})
    return Target(load_model("llama-3.2-3b"), WORKLOAD, slo, per_s, 1)


def found(what: Any, wanted: Target, **more: Any) -> Any:
    return answer(Asked(what, wanted, CARD, **more))


def test_least_bandwidth_of_one_request_at_a_time() -> None:
    wanted = target("20ms")
    accelerator = CARD.accelerator
    assert accelerator is not None
    compute, model = accelerator.compute, wanted.model
    overhead_s = (compute.step_overhead + model.layers * compute.layer_overhead) * 1e-9
    moved = model.step_weight_bytes + CONTEXT * model.kv_token_bytes
    least = moved / (0.02 - overhead_s)
    assert found("bandwidth", wanted) == pytest.approx(least, rel=2 * TOLERANCE)
    assert found("bandwidth", target("0.3ms")) is None  # the overheads alone take longer
    with pytest.raises(DescriptionError, match="too small"):
        found("bandwidth", wanted, capacity=4 << 30)


def test_gather_is_how_slow_scattered_kv_may_be() -> None:
    assert found("gather", target("20ms")) == 0.1
    assert found("gather", target("0.3ms")) is None
    wanted = target("20ms")
    own = answer(Asked("load", wanted, CARD))
    assert own is not None
    tight = answer(Asked("gather", wanted._replace(per_s=0.8 * own), CARD))
    assert tight is not None and 0.1 < tight < 1


def test_tokens_a_second_at_any_latency() -> None:
    wanted = target("20ms")._replace(slo=None)
    tokens = found("load", wanted)
    least = found("bandwidth", wanted._replace(per_s=tokens / 2))
    assert least < delivered(CARD)
    assert found("bandwidth", wanted._replace(per_s=100 * tokens)) is None


def test_the_sheet_names_the_cheapest_that_meets_it() -> None:
    wanted = target("20ms", 1.0)
    devices = {
        "rtx-4090": CARD,
        "spyre": load_device("spyre"),
        "a100-80gb": load_device("a100-80gb"),
    }
    asked = [
        Asked("bandwidth", wanted, CARD, "bf16", 1 << 30),
        Asked("gather", wanted, CARD, "bf16"),
    ]
    sized = Sized(wanted, devices, [2.0, "it has none", 3.0], CARD, asked, [3e11, None])
    assert sized.meeting == ["rtx-4090", "a100-80gb"] and mean_output(wanted) == 128
    priced = sized._replace(prices={"a100-80gb": 100.0, "rtx-4090": 200.0})
    assert priced.cheapest == "a100-80gb"
    assert sized.formats == ["bf16", "int8", "w4a16"]
    assert sized._replace(target=wanted._replace(weights="int8")).formats == ["int8"]
    texts = [
        block.text
        for block in sheet(sized).blocks
        if hasattr(block, "text") and block.text is not False
    ]
    assert any("meets it: rtx-4090" in text for text in texts)
    written = record(sized)
    assert written["frontier"][0] == {
        "capacity_bytes": 1 << 30,
        "weights": "bf16",
        "bandwidth": 3e11,
    }
