"""Are beams forked by their law in every step, under whoever can serve them, and nothing lost?"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from policies.requests.request_stream import generate
from policies.requests.requests import Requests
from policies.requests.workload import WorkloadSpec
from policies.serving.beams import BeamLaw
from tests.policies.small import Audited, mixed, requests, run

ABLE = ({"name": "paged"}, {"name": "static"}, {"name": "orca", "variant": "oracle"},
        {"name": "oracle"}, {"name": "odma"}, {"name": "s3"})  # fmt: skip


def searching(stream: Requests, beams: int, forks: float = 0.2) -> Requests:
    many = np.full(len(stream), beams)
    return dataclasses.replace(stream, samples=many, forks=np.full(len(stream), forks))


def law(beams: int, forks: float, output: int = 4000) -> np.ndarray:
    stream = searching(requests([0.0], 20, output), beams, forks).apart()
    drawn = BeamLaw(stream, stream.output_tokens, 7)
    return np.array(
        [[drawn.source(beam, made) for beam in range(beams)] for made in range(1, output + 1)]
    )


def test_each_prompt_has_beams_of_its_own() -> None:
    stream = dataclasses.replace(
        requests([0.0, 0.0, 0.0], 20, 50), samples=np.array([2, 1, 3]),
        forks=np.array([0.5, 0.0, 0.5]),
    ).apart()  # fmt: skip
    drawn = BeamLaw(stream, stream.output_tokens, 7)
    assert [drawn.group(request) for request in range(6)] == [0, 0, 2, 3, 3, 3]
    for made in range(1, 51):
        sources = [drawn.source(request, made) for request in range(6)]
        assert {*sources[:2]} <= {0, 1} and {*sources[3:]} <= {3, 4, 5}


@pytest.mark.parametrize(("beams", "forks"), [(2, 0.05), (4, 0.2), (6, 0.5)])
def test_a_share_of_beams_gives_way_to_forks_of_those_that_go_on(beams: int, forks: float) -> None:
    parents = law(beams, forks)
    assert (parents[0] == 0).all()  # there is only the prompt
    gone = parents[1:] != np.arange(beams)
    # one goes on where all were drawn to give way
    assert gone.mean() == pytest.approx(forks - forks**beams / beams, rel=0.1)
    assert (np.take_along_axis(parents, parents, axis=1) == parents).all()
    followed = np.bincount(parents[1:][gone], minlength=beams) / gone.sum()
    assert followed == pytest.approx(np.full(beams, 1 / beams), abs=0.06)


def test_beams_all_give_way_and_one_goes_on() -> None:
    assert (law(3, 1.0, 50).max(axis=1) == law(3, 1.0, 50).min(axis=1)).all()


@pytest.mark.parametrize("engine", ["v1", "v0"])
@pytest.mark.parametrize("policy", ABLE, ids=lambda each: each["name"])
def test_every_token_is_made_and_every_block_returns(policy: dict[str, Any], engine: str) -> None:
    stream = searching(mixed(30), 3)
    changes = {"policy": policy, "engine": {"name": engine, "max_model_len": 1024}}
    result = Audited(8192, stream, **changes).result
    made = result.metrics["makespan_output_tokens_per_s"] * result.metrics["makespan_s"]
    assert made == pytest.approx(3 * stream.output_tokens.sum())
    assert result.metrics["copied_tokens"] > 0
    slow = run(8192, stream, **changes, advance_together=False)
    assert (slow.finish_s == result.finish_s).all()  # no stretch of steps jumps over a fork


def test_a_workload_has_beams_or_samples() -> None:
    base = {"name": "few", "summary": "", "lengths": {"constant": {
        "prompt_tokens": 20, "output_tokens": 5}}}  # fmt: skip
    stream = generate(WorkloadSpec.model_validate({**base, "beams": 4}), 3, 1.0)
    assert stream.samples.tolist() == [4, 4, 4] and stream.forks.tolist() == [0.2] * 3
    for wrong in ({"beams": 4, "samples": 2}, {"beam_forks": 0.3}, {"beams": 1}):
        with pytest.raises(ValueError, match="beams"):
            WorkloadSpec.model_validate({**base, **wrong})
