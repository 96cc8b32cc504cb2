"""Does the whole job run on the cycle-level model, with the same numbers every time?"""

from __future__ import annotations

import pytest

from tests.policies.small import MODEL, mixed, requests, run

STREAM = mixed(60)
SAMPLED = {"fidelity": "sampled", "warmup": "2us", "measure": "4us", "max_probes": 3}


@pytest.mark.parametrize("policy", ["static", "paged", "odma"])
def test_sampled_runs_on_the_dram_model(policy: str) -> None:
    changes = {"policy": {"name": policy}, "memory": SAMPLED, "engine": {"max_model_len": 1024}}
    first, again = (run(4096, STREAM, **changes).metrics for _ in range(2))
    memory = first["memory"]
    assert 0.05 < memory["efficiency"]["attention"] < 1
    assert 0.3 < memory["efficiency"]["weights"] < 1
    assert 0 < memory["phases"]["attention"]["row_hit_rate"] < 1
    for metrics in (first, again):
        del metrics["memory"]["probe_wall_s"]
    assert first == again


def test_analytic_default_is_the_sequential_stream_of_the_dram_model() -> None:
    metrics = run(4096, requests([0.0], 100, 10), memory={}).metrics
    efficiency = metrics["memory"]["efficiency"]
    assert len(set(efficiency.values())) == 1
    assert 0.3 < efficiency["weights"] < 1
    assert metrics["kv_gbps"] == pytest.approx(efficiency["attention"] * 307.2)
    assert MODEL.kv_token_bytes == 256
