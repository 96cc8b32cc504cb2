"""Does the address stream of every step have the bytes of its work, and do they all read it?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.specs.state import StateLayers
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.capabilities import KeepsStates
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.fidelity import Memory
from policies.memory.step_streams import StepStreams
from policies.memory.step_times import Efficiency
from policies.memory.step_work import Growing
from policies.memory.step_work_model import StepWorkModel
from policies.serving import building
from policies.serving.serving import serve
from tests.policies.small import LATENT, MODEL, WINDOWS, device, mixed, spec
from tests.rotation import LONG

HYBRID = MODEL.model_copy(
    update={
        "name": "small-hybrid",
        "layers": 6,
        "state": StateLayers(
            kind="gated_delta", pattern=["state", "state", "full"], heads=4, head_dim=16,
            key_heads=2, key_dim=8,
        ),
    }
)  # fmt: skip
"""Four layers with a state of 2,560 bytes, two with KV."""
BESIDE = HYBRID.model_copy(
    update={"state": HYBRID.state.model_copy(update={"pattern": ["both", "state"]})}  # type: ignore[union-attr]
)
"""Three layers with KV and a state side by side, three with a state."""
DRAFTS: dict[str, Any] = {"method": "ngram", "tokens": 3, "acceptance": [0.7, 0.5, 0.3]}
TOP: dict[str, Any] = {"name": "top_k", "tokens": 48, "index_bytes": "12B"}
ODMA: dict[str, Any] = {
    "name": "odma", "window": 40, "refresh": 20, "balance": "requests", "first_bounds": "even",
}  # fmt: skip
PHASES = ("attention", "prefill", "migration")


EVERY = 1 if LONG else 12
"""Of steps in which requests only decode, those that are looked at."""


class Counting(Memory):
    """Holds the streams of steps, over all layers, against their work."""

    def __init__(self) -> None:
        super().__init__(Efficiency())
        self.seen: dict[str, int] = dict.fromkeys(PHASES, 0)
        self.drafts = self.states = self.decoding = 0

    def of(self, card: Any, local: TransformerSpec, region: Any) -> Counting:
        self.streams, self.model, self.base = StepStreams(card, local, 4096), local, region.base
        self.card = card
        return self

    def observe(self, step: Step, engine: Engine) -> Efficiency:
        allocator, layout = engine.allocator, engine.allocator.layout
        states = allocator.able(KeepsStates)
        self.drafts += step.drafts
        if step.repeats:
            self.decoding += 1
            if self.decoding % EVERY:
                return self.efficiency
        work = StepWorkModel(
            self.card, self.model, groups=layout.groups, sparse=layout.sparse,
            commits=states is not None and states.commits_states,
        ).of(step, 1)  # fmt: skip
        layers = range(self.model.layers)
        for phase in PHASES:
            parts = list(self.streams.of(step, allocator, layers, [phase]))
            moved = sum(int(part.size.sum()) for part in parts)
            expected = 0
            for name in (phase, "copy") if phase == "migration" else (phase,):
                if name in work.phases:
                    expected += work.phases[name].moved  # type: ignore[index]
            assert moved == pytest.approx(expected, abs=1e-6), (phase, step)
            self.seen[phase] += bool(parts)
            for part in parts:
                assert part.start.min() >= self.base
                assert (part.start + part.size).max() <= self.card.capacity_bytes
        if self.model.state is not None:
            self._apart(step, allocator)
        self.states += work.phases["attention"].bytes.get("states", 0)
        return self.efficiency

    def _apart(self, step: Step, allocator: Any) -> None:
        """States and KV that decoding requests write lie each in a place of its own."""
        layers = range(self.model.layers)
        parts = list(self.streams.of(step, allocator, layers, ["attention"]))
        if not parts:
            return
        start, size, write = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("start", "size", "write")
        )
        # a state that is copied to its place is written there once
        runs = np.unique(np.stack((start, size), 1)[write], axis=0)
        assert (runs[1:, 0] >= runs.sum(axis=1)[:-1]).all()


CASES: dict[str, tuple[TransformerSpec, dict[str, Any]]] = {
    "paged": (MODEL, {}),
    "odma": (MODEL, {"policy": ODMA}),
    "latent": (LATENT, {}),
    "windows": (WINDOWS, {}),
    "windows in rings": (WINDOWS, {"policy": {"name": "static"}}),
    "an index": (MODEL, {"attention": TOP}),
    "drafts": (MODEL, {"speculation": DRAFTS}),
    "drafts behind windows": (WINDOWS, {"speculation": DRAFTS}),
    "drafts in reservations": (MODEL, {"speculation": DRAFTS, "policy": {"name": "static"}}),
    "states in pages": (HYBRID, {}),
    "states beside KV": (BESIDE, {"policy": {"name": "static"}}),
    "states behind reservations": (HYBRID, {"policy": {"name": "static"}}),
    "states that move": (HYBRID, {"policy": ODMA}),
    "states in two pools": (HYBRID, {"policy": {"name": "paged", "states": "two_pools"}}),
    "states in slots": (HYBRID, {"policy": {"name": "paged", "states": "compact"}}),
    "drafts and states": (HYBRID, {"speculation": DRAFTS}),
    "drafts and states behind": (HYBRID, {"speculation": DRAFTS, "policy": {"name": "static"}}),
    "drafts and pools": (
        HYBRID, {"speculation": DRAFTS, "policy": {"name": "paged", "states": "two_pools"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_streams_have_the_bytes_of_the_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (model, given), counting = CASES[name], Counting()
    monkeypatch.setattr(
        building, "memory_model", lambda _, card, local, kv, *__: counting.of(card, local, kv)
    )
    moves = given.get("policy") == ODMA
    changes: dict[str, Any] = {
        "engine": {"max_model_len": 1024, "max_num_seqs": 16, "max_tokens": 400 if moves else 80},
        "advance_together": False, "predictor": {"kind": "lognormal", "sigma": 1.5, "bias": -1},
        **given,
    }  # fmt: skip
    repeats = list(CASES).index(name) % 2
    card = device(8192, *(["work.grouped=false"] if repeats else []))
    serve(card, model, spec(**changes), mixed(16 if moves else 12), seed=1)
    assert counting.seen["attention"] > 40 // EVERY and counting.seen["prefill"] >= 8
    assert (counting.seen["migration"] > 0) == moves
    assert (counting.drafts > 0) == ("speculation" in given)
    assert (counting.states > 0) == (model.state is not None)


@given(st.data())
def test_amounts_that_grow_are_those_of_each_step(data: st.DataObject) -> None:
    amount = st.integers(-1000, 1000)
    one, other = (Growing(data.draw(amount), data.draw(amount), 4) for _ in range(2))
    assert one.total == one.each.sum()
    assert one.each.tolist() == [one.first + one.growth * step for step in range(4)]
    whole, part = data.draw(amount), data.draw(st.floats(-3, 3))
    steps = np.array([data.draw(amount) for _ in range(4)])
    pairs: list[tuple[Any, Any]] = [
        (one + other, one.each + other.each), (one + whole, one.each + whole),
        (whole + one, one.each + whole), (one + steps, one.each + steps),
        (steps + one, one.each + steps), (one - whole, one.each - whole),
        (one - steps, one.each - steps), (one * whole, one.each * whole),
        (part * one, one.each * part), (one * steps, one.each * steps),
        (one / (1 + part**2), one.each / (1 + part**2)),
        (one / (1 + steps**2), one.each / (1 + steps**2)),
    ]  # fmt: skip
    for found, expected in pairs:
        each = found.each if isinstance(found, Growing) else found
        np.testing.assert_allclose(each, expected, rtol=1e-12)
