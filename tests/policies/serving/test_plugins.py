"""Does one file bring an allocator, scheduler, predictor, router or controller of one's own, and is
a mistake in it answered with its line?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator
from policies.engines.scheduled_step import Step
from policies.memory.step_times import StepTimes
from policies.serving import plugins
from policies.serving.plugins import KINDS, LOADED, load_plugin, register, require
from policies.serving.recorder import Recorder
from policies.serving.serving import serve
from tests.policies import small

OWN = Path(__file__).with_name("own.py")
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
ROUTER = "from policies.routers.router import Router\n"
SPEC = "from policies.predictors.predictor import PredictorSpec\n"


pytestmark = pytest.mark.usefixtures("unplugged")


def test_a_file_brings_all_three() -> None:
    found = load_plugin(OWN)
    assert found.defined == (("policy", "room"), ("predictor", "doubled"), ("placement", "last"))
    node = {
        "policy": {"name": "room", "tokens": 32}, "predictor": {"kind": "doubled", "times": 3.0},
        "cluster": {"cards": 2, "placement": "last"},
    }  # fmt: skip
    metrics = small.run(1024, small.mixed(40, rate=50.0), **node).metrics
    assert metrics["finished"] == 40
    assert load_plugin(OWN) is found  # as it was


class Prefills(Recorder):
    """Prompt tokens of each step, and whether it decodes beside them."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.beside = 0

    def step(
        self, now_s: float, seconds: float, step: Step, times: StepTimes, allocator: Allocator,
        replica: int,
    ) -> None:  # fmt: skip
        if step.chunks:
            self.tokens.append(sum(chunk.tokens for chunk in step.chunks))
            self.beside += len(step.decode) > 0


@pytest.mark.parametrize("options", [{}, {"long_prefill_token_threshold": 48}], ids=str)
def test_a_scheduler_of_ones_own_caps_the_prefills_of_a_step(options: dict[str, Any]) -> None:
    assert load_plugin(EXAMPLES / "own_scheduler.py").defined == (("scheduler", "capped"),)
    seen = {}
    for name, own in {"v1": {}, "capped": {"prefill_tokens": 64}}.items():
        engine = {"name": name, **options, **own}
        seen[name] = recorder = Prefills()
        stream, described = small.mixed(60), small.spec(engine=engine)
        result = serve(
            small.device(1024), small.MODEL, described, stream, seed=1, recorder=recorder
        )
        assert result.metrics["finished"] == 60
    assert max(seen["v1"].tokens) > 200
    assert max(seen["capped"].tokens) == 64 and seen["capped"].beside > 10


@pytest.mark.parametrize("engine", ["v0", "v1"])
def test_a_controller_of_ones_own_moves_who_waits(engine: str) -> None:
    """All arrive at one card of three."""
    load_plugin(EXAMPLES / "own_controller.py")
    load_plugin(OWN)
    cluster = {"cards": 3, "placement": "last"}
    given = {"engine": {"name": engine, "max_model_len": 1024}}
    stream = small.mixed(60, rate=20000.0)
    alone = small.run(1024, stream, cluster=cluster, **given).metrics
    relief = {**cluster, "controllers": {"relief": {"every_s": 1e-4}}}
    with_it = small.run(1024, stream, cluster=relief, **given).metrics
    cards = with_it["node"]["cards"]
    assert with_it["finished"] == 60 == sum(card["requests"] for card in cards)
    assert with_it["node"]["relief"]["moved"] > 10 and min(c["requests"] for c in cards) > 5
    assert with_it["ttft_s"]["mean"] < alone["ttft_s"]["mean"]


def test_a_router_of_ones_own_has_two_choices() -> None:
    load_plugin(EXAMPLES / "own_router.py")
    stream = small.mixed(200, rate=20000.0)
    imbalance = {
        name: small.run(
            2048, stream, cluster={"cards": 8, "placement": name}
        ).metrics["node"]["requests"]["p100"] for name in ("two_choices", "round_robin")
    }  # fmt: skip
    assert imbalance["round_robin"] == 25 and 25 < imbalance["two_choices"] < 40


def test_what_has_changed_replaces_what_it_was(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    body = "    def choose(self, request, count, tokens):\n        return 0\n"
    file.write_text(f"{ROUTER}class A(Router):\n    name = 'first'\n{body}")
    load_plugin(file)
    file.write_text(f"{ROUTER}class A(Router):\n    name = 'zeroth'\n{body}")
    load_plugin(file)
    placements = KINDS["placement"].known
    assert "zeroth" in placements and "first" not in placements
    assert sys.modules["bankwise_plugin_mine"].A is placements["zeroth"]


def test_a_file_that_is_not_there_or_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="cannot be read: No such file"):
        load_plugin(tmp_path / "none.py")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DescriptionError, match="not a Python file"):
        load_plugin(tmp_path / "bytes.py")
    load_plugin(OWN)
    with pytest.raises(DescriptionError, match="a second plug-in of this name"):
        register(str(tmp_path / "own.py"), "x = 1")


def test_a_card_or_a_length_that_is_none_is_refused() -> None:
    register("mine.py", f"{ROUTER}class A(Router):\n    name = 'far'\n    choose = lambda *_: 7")
    with pytest.raises(DescriptionError, match="placement far: expected a card from 0 to 1; got 7"):
        small.run(1024, small.mixed(4), cluster={"cards": 2, "placement": "far"})
    text = (
        f"{SPEC}from types import SimpleNamespace\nfrom typing import Literal\n"
        "class B(PredictorSpec):\n    kind: Literal['none'] = 'none'\n"
        "    def predictions(self, output_tokens, stream):\n"
        "        return SimpleNamespace(length=output_tokens * float('nan'))"
    )
    register("bad.py", text)
    with pytest.raises(DescriptionError, match="predictor none: expected `length`"):
        small.run(1024, small.mixed(4), predictor={"kind": "none"})


def test_an_unknown_name_has_its_nearest() -> None:
    load_plugin(OWN)
    with pytest.raises(ValidationError, match="unknown predictor; did you mean 'doubled'"):
        small.run(1024, small.mixed(4), predictor={"kind": "doubeld"})
    with pytest.raises(ValidationError, match="unknown placement; did you mean 'last'"):
        small.run(1024, small.mixed(4), cluster={"placement": "lst"})


def test_what_was_made_with_a_plug_in_asks_for_it() -> None:
    with pytest.raises(
        DescriptionError, match="run: made with a plug-in: name it with --plugin own"
    ):
        require({"own.py": {}}, "run")
    load_plugin(OWN)
    require({"own.py": {}}, "run")
    assert plugins.recorded()["own.py"]["sha256"] == LOADED["own.py"].sha256
