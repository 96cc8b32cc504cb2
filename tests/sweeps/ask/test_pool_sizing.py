"""Does `size pools` find the fewest replicas, and what a sweep of them finds?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policies.requests.slo import Slo
from sweeps.ask import pool_sizing, sizing
from sweeps.ask.pool_sizing import (
    Both,
    PoolQuestion,
    ReplicaCount,
    SidesApart,
    fewest,
    least,
    share,
    tasks,
)
from sweeps.ask.size_pools import PoolSized, SizePoolsQuestion
from tests.sweeps.report.golden import held, text_of

SLO = Slo.model_validate({"ttft": "1s", "tpot": "20ms"})
DESCRIBED = {"device": "h100-sxm", "model": "llama-3.1-8b", "workload": "constant"}
ASKED = PoolQuestion(DESCRIBED, {}, SLO, 10.0, 128.0, "nixl-cuda-ipc", 2)


def serves(monkeypatch: pytest.MonkeyPatch, enough: Any) -> list[Any]:
    """Replicas meet the load where this says so; what was asked about."""
    seen: list[Any] = []

    def met(asked: PoolQuestion, found: Any) -> bool:
        seen.append(found)
        return bool(enough(found))

    monkeypatch.setattr(pool_sizing, "meets", met)
    return seen


def test_the_pair_has_the_least_sum_and_no_less_of_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def enough(found: SidesApart) -> bool:  # either may be short by itself, both together are slow
        return found.prefill >= 2 and found.decode >= 3 and found.prefill + 2 * found.decode >= 10

    seen = serves(monkeypatch, enough)
    assert fewest(ASKED, 2, 3) == SidesApart(2, 4)
    assert seen[0] == SidesApart(2, 3) and all(x >= 2 and y >= 3 for x, y in seen)
    serves(monkeypatch, lambda found: False)
    assert fewest(ASKED, 60, 3) is None


def test_runs_last_several_answers_and_draw_other_requests() -> None:
    first, *others = tasks(ASKED._replace(per_s=100.0), SidesApart(1, 2))
    answer_s = 1 + 0.02 * 127
    experiment = first.experiment
    assert experiment.requests / 100 > 2.9 * answer_s
    assert experiment.warmup_requests / 100 > 0.99 * answer_s
    assert [each.replication for each in [first, *others]] == [1, 2, 3, 4]
    pools = experiment.serving.pools
    assert (pools.prefill.replicas, pools.decode.replicas) == (1, 2)
    assert experiment.serving.tensor_parallel == 2
    both = tasks(ASKED, Both(3, 512))[0].experiment.serving
    assert (both.cluster.cards, both.engine.max_num_batched_tokens, both.pools) == (3, 512, None)


@pytest.mark.long  # serves some thirty times
def test_what_was_found_meets_the_load_and_one_less_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (sizing, pool_sizing):
        monkeypatch.setattr(module, "DRAWS", 1)
    monkeypatch.setattr(pool_sizing, "REQUESTS", 60)
    monkeypatch.setattr(pool_sizing, "WARMUP", 10)
    monkeypatch.setattr(pool_sizing, "ANSWERS", 1)
    monkeypatch.setattr(pool_sizing, "MOST", 8)
    slo = Slo.model_validate({"ttft": "300ms", "tpot": "10ms"})
    asked = ASKED._replace(slo=slo, per_s=100.0, cards=1)
    prefill, decode = (least(ReplicaCount(asked, of)) for of in ("prefill", "decode"))
    assert prefill is not None and decode is not None
    found = fewest(asked, prefill, decode)
    assert found is not None and share(asked, found) >= 0.9
    assert prefill == 1 or share(asked, found._replace(prefill=prefill - 1)) < 0.9


SIZED = PoolSized(
    ASKED, "10 requests/s.", (1, 2), SidesApart(1, 2), Both(4, 512), Both(3, 512), [0.95, 0.91, 0.8]
)


def test_who_needs_fewer_is_told_as_it_was_last_looked_at() -> None:
    alone = replace(SIZED, apart=None, same=None, shares=[0.91])
    each = (SIZED, alone, replace(alone, both=None, shares=[]))
    held("pools", text_of(*map(SizePoolsQuestion.model_construct().section, each)))
    written = SIZED.record()
    assert written["arrangements"]["apart"] == {"prefill": 1, "decode": 2, "attained": 0.95}
    assert written["least_beside_ample"] == {"prefill": 1, "decode": 2}
