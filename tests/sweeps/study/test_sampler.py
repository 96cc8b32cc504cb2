"""Does a search look over the whole space before it learns, and is every family kept to the end?"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sweeps.study.families import families_of
from sweeps.study.sampler import drawn_evenly, phase_of, space_filling
from sweeps.study.study_spec import Study, load_study
from tests.sweeps.study.studies import results, run, tiny


@pytest.fixture(scope="module")
def odma() -> Study:
    return load_study("odma", [])


def drawn(study: Study) -> list[dict[str, Any]]:
    found = (drawn_evenly(study, number) for number in range(study.spec.trials))
    return [params for params in found if params is not None]


def test_a_quarter_of_the_trials_at_least_is_drawn_over_the_whole_space(odma: Study) -> None:
    phases = Counter(phase_of(odma, number) for number in range(odma.spec.trials))
    assert phases["random"] >= odma.spec.trials / 4 and phases["tpe"] >= 16
    assert len(drawn(odma)) == phases["random"]


def test_the_draws_fill_each_parameter_evenly(odma: Study) -> None:
    points = space_filling(odma.space, 64, (1, 0))
    for name, choices in (("space", 3), ("bucket_on", 2), ("align", 5), ("compaction", 2)):
        many = Counter(point[f"serving.policy.{name}"] for point in points)
        assert len(many) == choices and max(many.values()) - min(many.values()) <= 2
    gammas = sorted(point["serving.policy.gamma"] for point in points)
    assert all(abs(g - (i + 0.5) / 64) < 1 / 64 for i, g in enumerate(gammas))
    windows = sorted(point["serving.policy.window"] for point in points)
    assert windows[31] == pytest.approx((125 * 1000) ** 0.5, rel=0.05)  # evenly in logarithms
    pools = [point["serving.policy.pool_share.by"] for point in points]
    assert 30 <= pools.count("range") <= 34


def test_a_pool_is_whole_quarters_of_the_largest_request(odma: Study) -> None:
    pool = odma.spec.space["serving.policy.pool_share"]
    fewest, most = odma.space.quarters(pool)
    assert fewest == 1 and most * odma.quarter <= 0.6 < (most + 1) * odma.quarter
    params = drawn(odma)[0] | {"serving.policy.pool_share.by": "range",
                               "serving.policy.pool_share": most}  # fmt: skip
    share = odma.space.overrides(params)["serving.policy.pool_share"]
    assert share == pytest.approx(most * odma.quarter, abs=1e-6)


FAMILIES = [
    "families={own: {serving.policy.levels: drawn}, even: {serving.policy.levels: requests}}",
    "space.serving.policy.levels={quantiles: [3, 5], balance: [requests, residents]}",
    "halving=[{keep: 0.1}]", "first=[base, paper]", "sampler.random=8", "batch=10",
]  # fmt: skip


def test_the_best_of_each_family_goes_up_every_rung(tmp_path: Path) -> None:
    study = tiny(*FAMILIES)
    run(study, tmp_path / "run")
    found = results(tmp_path / "run")
    for name in study.spec.families:
        mine = [r for r in found if name in families_of(study.spec.families, r["params"])]
        best = max(mine, key=lambda r: r["short"]["output_tokens_per_s"])
        assert best["state"] == "complete", name
    assert Counter(r["state"] for r in found)["pruned"] >= 4
    assert all(
        r["values"] is None and not r["constraints"] for r in found if r["state"] == "pruned"
    )


def test_what_a_pool_costs_has_an_answer_whoever_wins(tmp_path: Path) -> None:
    sets = [item for item in FAMILIES if "families" not in item]
    share = (
        "space.serving.policy.pool_share={range: [0.0, 0.5], step: quarter_request, also: [0.0]}"
    )
    path = "serving.policy.pool_share"
    pool = f"families={{no pool: {{{path}: 0.0}}, a pool: {{{path}: drawn}}}}"
    study = load_study("quick", [
        "trials=10", "warmup_requests=60", "requests=40", "policy.window=60", "policy.refresh=20",
        "policy.pool_share=0.0", "policy.pool_overflow=true", *sets, share, pool,
        "profiles=[serving.policy.pool_share]", "memory=table",
    ])  # fmt: skip
    run(study, tmp_path / "run")
    found = json.loads((tmp_path / "run/findings.json").read_text())["own"]
    families = {each["name"]: each for each in found["families"]}
    pooled = families["a pool"]
    assert pooled["served"] >= 3 and pooled["whole"] >= 1 and pooled["gain"]["count"] == 2
    assert pooled["against"] == families["no pool"]["best"]
    assert families["no pool"]["gain"]["mean"] == pytest.approx(
        1 / (1 + pooled["gain"]["mean"]) - 1
    )
    along = [each for each in found["alone"] if not each["back"]]
    assert [each["x"] for each in along] == sorted(each["x"] for each in along)
    assert along[0]["x"] == 0.0 and len(along) >= 3
    (as_chosen,) = [each for each in along if each["chosen"]]
    assert as_chosen["gain"]["mean"] == 0.0
