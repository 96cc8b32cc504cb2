"""Does `size` find the bandwidth, gather ratio and load that closed forms give?"""

from __future__ import annotations

from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.allocators.registry import POLICIES
from policies.memory.fidelity import FidelitySpec
from policies.requests.arrivals import Arrivals
from policies.requests.request_stream import generate
from policies.requests.slo import Slo
from policies.requests.workload import WorkloadSpec, workload_document
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from sweeps.ask import sizing, sizing_runs
from sweeps.ask.size import SizeQuestion
from sweeps.ask.size_confirm import Confirmed, SizeConfirmQuestion
from sweeps.ask.size_section import size_section
from sweeps.ask.sized import Sized, SizedDevice
from sweeps.ask.sizing import (
    TOLERANCE,
    answer,
    attained,
    confirmation,
    enough,
    with_users,
)
from sweeps.ask.sizing_runs import SizingQuestion, SizingRun, Target, delivered, mean_output
from tests.sweeps.report.golden import held, text_of

CARD = load_device("rtx-4090", ["given.attention=null", "given.weights=null"])
"""One share of its peak in all that it reads."""
WORKLOAD = workload_document("constant").build(WorkloadSpec)  # 512 + 128 tokens
VARIED = workload_document("alpaca").build(WorkloadSpec)
CONTEXT = 512 + 64


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (sizing, sizing_runs):
        monkeypatch.setattr(room, "REQUESTS", 30)
        monkeypatch.setattr(room, "WARMUP", 5)


def target(tpot: str, per_s: float = 0.01) -> Target:
    slo = Slo.model_validate({"ttft": "60s", "tpot": tpot})
    return Target(
        load_model("llama-3.2-3b"), WORKLOAD, slo, per_s, 1, mean_output=mean_output(WORKLOAD)
    )


def found(what: Any, wanted: Target, **more: Any) -> Any:
    return answer(SizingQuestion(what, wanted, CARD, **more))


def test_least_bandwidth_of_one_request_at_a_time() -> None:
    wanted = target("20ms")
    accelerator = CARD.accelerator
    assert accelerator is not None
    law, model = accelerator.kernels, wanted.model
    layer_ns = law.products * law.product + law.kernels * law.kernel + law.attention
    overhead_s = (law.host + model.layers * layer_ns) * 1e-9
    moved = model.step_weight_bytes / law.weights + CONTEXT * model.kv_token_bytes / law.kv
    least = moved / (0.02 - overhead_s)
    assert found("bandwidth", wanted) == pytest.approx(least, rel=2 * TOLERANCE)
    assert found("bandwidth", target("0.3ms")) is None  # the overheads alone take longer
    with pytest.raises(DescriptionError, match="too small"):
        found("bandwidth", wanted, capacity=4 << 30)


def test_gather_is_how_slow_scattered_kv_may_be() -> None:
    assert found("gather", target("20ms")) == 0.1
    assert found("gather", target("0.3ms")) is None
    wanted = target("20ms")
    own = answer(SizingQuestion("load", wanted, CARD))
    assert own is not None
    tight = answer(SizingQuestion("gather", wanted._replace(load=0.8 * own), CARD))
    assert tight is not None and 0.1 < tight < 1


def test_tokens_a_second_at_any_latency() -> None:
    wanted = target("20ms")._replace(slo=None)
    tokens = found("load", wanted)
    least = found("bandwidth", wanted._replace(load=tokens / 2))
    assert least < delivered(CARD)
    assert found("bandwidth", wanted._replace(load=100 * tokens)) is None


def users(ttft: str, tpot: str, many: float, think_s: float = 0.0) -> Target:
    slo = Slo.model_validate({"ttft": ttft, "tpot": tpot})
    return target("20ms")._replace(workload=VARIED, slo=slo, load=many, think_s=think_s)


def closed_loop(many: float, think_s: float, slo: Slo) -> float:
    """The share of requests that attain the objective, by two runs of its own."""
    arrivals = Arrivals(process="closed", clients=int(many), think_s=think_s)
    spec = ServingSpec(model="llama-3.2-3b", memory=FidelitySpec(fidelity="analytic"))
    workload, warm, shares = VARIED.model_copy(update={"arrivals": arrivals}), 3 * int(many), []
    for seed in (77, 78):
        stream = generate(workload, 5 * warm, None, seed)
        done = serve(CARD, load_model("llama-3.2-3b"), spec, stream, seed=1, warmup_requests=warm)
        times = (done.arrival_s, done.first_token_s, done.finish_s)
        shares.append(float(slo.attained(*times, stream.output_tokens)[warm:].mean()))
    return sum(shares) / 2


def test_the_most_users_are_those_of_a_closed_loop() -> None:
    wanted = users("2s", "12ms", 10)
    most = answer(SizingQuestion("load", wanted, CARD))
    assert most is not None and wanted.slo is not None
    assert closed_loop(most, 0.0, wanted.slo) >= 0.85
    assert closed_loop(1.25 * most, 0.0, wanted.slo) < 0.5


def test_no_user_waits_for_others_in_step_where_memory_is_varied() -> None:
    wanted = users("200ms", "60ms", 30, 5.0)._replace(workload=WORKLOAD)
    asked = SizingQuestion("bandwidth", wanted, CARD)
    drawn = asked._replace(target=wanted._replace(drawn=True))
    ample = sizing.AMPLE * delivered(CARD)
    assert sizing_runs.served(asked, ample, 30).attained < 0.5  # all think for 5 s: ask together
    assert sizing_runs.served(drawn, ample, 30).attained > 0.9
    room = [answer(drawn._replace(capacity=n * CARD.capacity_bytes)) for n in (1, 2)]
    assert room[0] is not None and room[0] < delivered(CARD) and room[1] == room[0]


def test_how_many_at_once_is_no_more_than_run_at_once() -> None:
    """Who waits for room has no time of a token: with any wait allowed, more would be no fewer."""
    wanted = users("1000000s", "1s", 1)._replace(at_once=True)
    most = answer(SizingQuestion("load", wanted, CARD))
    assert most is not None and 200 < most <= 257  # 256 sequences are vLLM's own limit
    few = answer(SizingQuestion("load", users("1000000s", "9ms", 1)._replace(at_once=True), CARD))
    assert few is not None and few < most / 2


def test_a_model_that_one_card_does_not_hold_is_shared_by_as_few_as_do() -> None:
    wanted = SizeQuestion.of({"model": "llama-3.3-70b", "workload": "constant", "weights": "bf16"})
    of = wanted.target_at("ttft=5s,tpot=100ms", "1")
    asked = SizingQuestion("load", of, load_device("h100-sxm"))
    cards, load = sizing.answer_where_it_fits(asked)
    assert (cards == 2 or cards == 4) and sizing.cards_of(asked) == cards
    assert load is not None and load > 0
    own = asked._replace(target=asked.target._replace(cards=1))
    with pytest.raises(DescriptionError, match="too small"):
        sizing.answer_where_it_fits(own)


def test_one_lucky_run_does_not_make_a_rate() -> None:
    shares = {1: 0.9, 2: 0.46, 3: 0.87, 4: 0.76}
    assert not enough(shares.__getitem__, 0.9)
    assert enough({1: 0.99}.__getitem__, 0.9)  # so far off that the first decides
    assert not enough({1: 0.5}.__getitem__, 0.9)
    assert enough({1: 0.9, 2: 0.85, 3: 0.95, 4: 0.9}.__getitem__, 0.9)


def test_a_load_that_other_runs_do_not_attain_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    def served(
        asked: Any, own: Any, load: Any, slower: Any = None, draw: int = 1, replicas: int = 1
    ) -> SizingRun:
        most = 10.0 if draw <= sizing.DRAWS else 8.0  # the runs of the bisection were lucky
        return SizingRun(1.0 if load <= most else 0.0, load)

    monkeypatch.setattr(sizing, "served", served)
    load = answer(SizingQuestion("load", target("20ms"), CARD))
    assert load is not None and 8 / (1 + TOLERANCE) ** 2 < load <= 8


@pytest.mark.parametrize("of_search", [7.0, 12.0])
def test_users_are_those_that_other_runs_attain_wherever_the_search_ended(
    of_search: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs of the bisection were unlucky, or lucky."""
    asked_for: list[int] = []

    def served(
        asked: Any, own: Any, load: Any, slower: Any = None, draw: int = 1, replicas: int = 1
    ) -> SizingRun:
        most = of_search if draw <= sizing.DRAWS else 10.0
        asked_for.append(draw)
        return SizingRun(1.0 if load <= most else 0.0, load)

    monkeypatch.setattr(sizing, "served", served)
    asked = SizingQuestion("load", users("2s", "20ms", 10, 5.0), CARD)
    assert answer(asked) == 10
    unseen = set(range(max(asked_for) + 1, 1000))
    asked_for.clear()
    with_users((asked, 10.0))
    assert unseen.issuperset(asked_for)


def test_users_are_served_until_their_share_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def served(
        asked: Any, own: Any, load: Any, slower: Any = None, draw: int = 1, replicas: int = 1
    ) -> SizingRun:
        return SizingRun(0.9 + spread * (-1) ** draw, load)

    monkeypatch.setattr(sizing, "served", served)
    asked, spread = SizingQuestion("load", users("2s", "20ms", 10, 5.0), CARD), 0.0
    assert len(with_users((asked, 10.0))) == sizing.DRAWS
    spread = 0.03
    assert sizing.DRAWS < len(with_users((asked, 10.0))) < sizing.MOST_RUNS
    spread = 0.2
    assert len(with_users((asked, 10.0))) == sizing.MOST_RUNS


@pytest.mark.parametrize("policy", ["odma", "static", "vattention"])
def test_any_policy_is_sized_and_only_paging_is_asked_about_gather(policy: str) -> None:
    options = POLICIES[policy].Options(name=policy)
    wanted = target("20ms")._replace(policy=options)
    load = answer(SizingQuestion("load", wanted, CARD))
    assert load is not None and load > 0 and not wanted.gathers and target("20ms").gathers


def test_a_sweep_agrees_with_the_load_that_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (sizing, sizing_runs):
        monkeypatch.setattr(room, "REQUESTS", 150)
        monkeypatch.setattr(room, "DRAWS", 2)
    wanted = target("20ms")._replace(slo=Slo.model_validate({"ttft": "1s", "tpot": "15ms"}))
    asks = SizingQuestion(
        "load", wanted, load_device("rtx-4090")
    )  # reads little KV slower than much
    load = answer(asks)
    assert load is not None
    shares = []
    for factor in (0.85, 1.25):
        tasks = confirmation(asks, "rtx-4090", "llama-3.2-3b", "constant", {}, factor * load)
        assert tasks[0].experiment.seed != sizing.SEED
        shares.append(sum(attained(task) for task in tasks[:2]) / 2)
    assert shares[0] > 0.9 > shares[1]


ALONE: dict[str, SizedDevice | str] = {
    "rtx-4090": SizedDevice(1, 2.0, 1), "spyre": "it has none", "a100-80gb": SizedDevice(1, 3.0, 1),
}  # fmt: skip
THREE: dict[str, SizedDevice | str] = {
    "rtx-4090": SizedDevice(1, 0.7, 3), "l40s": SizedDevice(1, 1.9, 1),
}  # fmt: skip
PAIRS = THREE | {"rtx-4090": SizedDevice(2, 0.7, 3)}
PRICES, WATTS = {"rtx-4090": 1800.0, "l40s": 8000.0}, {"a100-80gb": 300.0, "rtx-4090": 450.0}


def sized(loads: dict[str, SizedDevice | str], per_s: float = 1.0, **given: Any) -> Sized:
    devices = {name: CARD if name == "rtx-4090" else load_device(name) for name in loads}
    return Sized(target("20ms", per_s), devices, loads, **given)


@pytest.mark.parametrize(
    ("loads", "given", "meeting"),
    [
        (ALONE, {}, ["rtx-4090", "a100-80gb"]),  # least bandwidth x capacity
        (ALONE, {"prices": {"a100-80gb": 100.0, "rtx-4090": 200.0}}, ["a100-80gb", "rtx-4090"]),
        (ALONE, {"watts": WATTS}, ["a100-80gb", "rtx-4090"]),
        (ALONE, {"watts": WATTS, "prices": {"rtx-4090": 1.0}}, ["rtx-4090", "a100-80gb"]),
        (THREE, {"prices": PRICES}, ["rtx-4090", "l40s"]),  # three for 1,800 each are cheaper
        (PAIRS, {"prices": PRICES}, ["l40s", "rtx-4090"]),
        (THREE, {"watts": {"rtx-4090": 450.0, "l40s": 350.0}}, ["l40s", "rtx-4090"]),
    ],
)
def test_prices_decide_else_watts_else_bandwidth_and_capacity(
    loads: dict[str, SizedDevice | str], given: dict[str, Any], meeting: list[str]
) -> None:
    found = sized(loads, 1.5 if loads is not ALONE else 1.0, **given)
    assert found.meeting == meeting and found.cheapest == meeting[0]


def test_what_meets_it_is_told_as_it_was_last_looked_at() -> None:
    by_watts = sized(ALONE, watts=WATTS)
    priced = sized(ALONE, watts=WATTS, prices={"rtx-4090": 1.0})
    assert priced.record()["watts"] == WATTS and mean_output(WORKLOAD) == 128
    held("sized", text_of(size_section(by_watts), size_section(priced)))


def test_what_a_sweep_finds_at_a_load_is_told_as_it_was_last_looked_at() -> None:
    found = (Confirmed("rtx-4090", target("20ms", 2.0), [0.8, 0.9]),
             Confirmed("rtx-4090", target("20ms", 0.0), []))  # fmt: skip
    held("confirmed", text_of(*map(SizeConfirmQuestion.model_construct().section, found)))
