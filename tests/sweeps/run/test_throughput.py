"""The throughput that is compared does not depend on how much a policy runs at once."""

from __future__ import annotations

import pytest

from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.requests.request_stream import generate
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from tests.policies.workloads import resolve_workload

BOUND = ["kernels={class: accelerator}", "compute.decode_efficiency=0.5"]
"""An A100 whose products wait for FLOPs from a batch of about 80 on."""


def test_policies_are_compared_on_the_same_work() -> None:
    """Compute binds from a batch of about 80 on, so running more at once gains nothing."""
    stream = generate(resolve_workload("azure-conv"), 2000, 13.0, (1, 1))
    model, device = load_model("deepseek-r1-distill-qwen-7b"), load_device("a100-80gb", BOUND)
    found = {}
    for policy in ("static", "paged"):
        spec = ServingSpec.model_validate({
            "model": model.name, "policy": {"name": policy}, "activation_bytes": "0B",
            "engine": {"max_num_seqs": 4096, "max_num_batched_tokens": 4096, "max_tokens": 8192},
            "memory": {"fidelity": "analytic", "efficiency": 0.9},
        })  # fmt: skip
        found[policy] = serve(device, model, spec, stream, seed=1, warmup_requests=1000).metrics
    assert found["paged"]["batch"] > 3 * found["static"]["batch"]
    static, paged = (found[name]["makespan_output_tokens_per_s"] for name in ("static", "paged"))
    assert paged / static == pytest.approx(1, abs=0.03)
