"""Does the installed vLLM schedule under bankwise's clock as its model (`like`) does? Are its
requests' texts alike where requests share them, and mistakes told in a line?"""

from __future__ import annotations

from typing import Any

import bankwise_vllm.installed_vllm as installed
import beside_like
import numpy as np
import pytest
from bankwise_vllm.texts import STOP, Texts

from policies.requests.requests import Requests
from policies.serving.serving_spec import ServingSpec

needs_vllm = pytest.mark.skipif(
    installed.vllm_version() is None, reason="vLLM is not installed here (0.19 to 0.33)"
)


def stated(version: str | None, monkeypatch: pytest.MonkeyPatch, **engine: Any) -> ServingSpec:
    """A serving whose engine is vLLM of this version."""
    for module in (beside_like.plugin_module(), installed):
        monkeypatch.setattr(module, "vllm_version", lambda: version)
    return ServingSpec.model_validate({
        "model": "llama-2-7b", "policy": {"name": "vllm"}, "engine": {"name": "vllm", **engine},
    })  # fmt: skip


@needs_vllm
@pytest.mark.parametrize("number", range(20))
def test_the_installed_vllm_and_its_model_agree_in_every_figure(number: int) -> None:
    where, met = beside_like.pair(beside_like.drawn(11, number))
    assert not where and met["steps"] > 0


@needs_vllm
def test_engine_vllm_asks_for_its_own_blocks() -> None:
    run = beside_like.drawn(11, 0)
    told = beside_like.served(run, vllm=True, policy="paged")
    assert "engine vllm: policy paged; expected policy: vllm" in told


def test_blocks_of_vllm_ask_for_its_engine() -> None:
    told = beside_like.served(beside_like.drawn(11, 0), vllm=True, engine="v1")
    assert "expected engine: vllm" in told


def test_defaults_are_those_of_the_installed_version(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = stated("0.33.0", monkeypatch)
    assert spec.engine.installed == "0.33.0" and spec.engine.like == "0.33"
    assert spec.gpu_memory_utilization == 0.92
    assert stated("0.27.1", monkeypatch).engine.like == "0.23"


@pytest.mark.parametrize(
    ("version", "engine", "said"),
    [
        (None, {}, "vLLM is not installed here"),
        ("0.11.2", {}, "vLLM 0.11.2 is older than 0.19"),
        ("0.23.0", {"installed": "0.33.0"}, "vLLM 0.23.0 is installed here; expected 0.33.0"),
        ("0.23.0", {"like": "0.33"}, "vLLM 0.23.0 decides; leave like out"),
        ("0.23.0", {"packing": "first_fit"}, "vLLM has neither"),
    ],
)
def test_mistakes_are_told(
    version: str | None, engine: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=said):
        stated(version, monkeypatch, **engine)


def test_texts_are_alike_where_requests_share_them_and_nowhere_else() -> None:
    requests = Requests(
        np.zeros(6), [40, 50, 40, 40, 30, 90], [5] * 6,
        prefix_id=[1, 1, -1, -1, -1, -1], prefix_tokens=[30, 20, 0, 0, 0, 0],
        parent=[-1, -1, 0, 0, -1, -1], session=[-1, -1, -1, -1, 0, 0],
        think_s=[np.nan] * 5 + [0.0], tree=np.array([[-1, 0], [0, 10]]),
    )  # fmt: skip
    texts = Texts(requests, requests.output_tokens, stops=True)
    prompts = [texts.prompt(each) for each in range(6)]
    assert [len(each) for each in prompts] == requests.prompt_tokens.tolist()
    assert prompts[0][:20] == prompts[1][:20] and prompts[0][20:40] != prompts[1][20:40]
    assert prompts[2] == prompts[3] != prompts[0]
    assert prompts[5][:35] == prompts[4] + texts.answer(4)
    assert texts.answer(4)[-1] == STOP and STOP not in prompts[5][35:]
    alone = Texts(requests, requests.output_tokens, stops=False)
    assert STOP not in alone.answer(4)
