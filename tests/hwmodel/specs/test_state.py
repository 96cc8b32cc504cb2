"""Are states of recurrent layers as large as published, and their parameters counted?"""

from __future__ import annotations

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.transformer import load_model, shard

COUNTED = {
    "qwen3-next-80b-a3b": 79_674_391_296, "qwen3.5-35b-a3b": 34_660_610_688,
    "qwen3.5-27b": 26_895_998_464, "qwen3.5-9b": 8_953_803_264,
    "kimi-linear-48b-a3b": 49_122_675_072 + 26 * 256, "granite-4.0-h-small": 32_207_337_984,
    "jamba-v0.1": 51_570_323_328, "falcon-h1-7b": 7_585_513_568, "lfm2-1.2b": 1_170_340_608,
}  # fmt: skip
"""Parameters of the classes of transformers 5.23.0 with these configurations; of Kimi-Linear a bias
of the router a layer is stored and not counted there."""


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_are_those_of_the_published_class(name: str) -> None:
    assert load_model(name).parameters == COUNTED[name]


@pytest.mark.parametrize(
    ("name", "layers", "size"),
    [
        ("qwen3.5-35b-a3b", 30, 32 * 128 * 128 * 4 + (32 * 128 + 2 * 16 * 128) * 3 * 2),
        ("kimi-linear-48b-a3b", 20, 32 * 128**2 * 4 + 3 * 32 * 128 * 3 * 2),
        ("granite-4.0-h-small", 36, 128 * 64 * 128 * 2 + (8192 + 2 * 128) * 3 * 2),
        ("jamba-v0.1", 28, 8192 * 16 * 2 + 8192 * 3 * 2),
        ("falcon-h1-7b", 44, 24 * 128 * 256 * 2 + (3072 + 2 * 256) * 3 * 2),
        ("lfm2-1.2b", 10, 2048 * 2 * 2),
    ],
)
def test_a_state_has_the_bytes_of_its_closed_form(name: str, layers: int, size: int) -> None:
    assert load_model(name).state_bytes() == layers * size


def test_a_logged_state_is_met() -> None:
    assert load_model("qwen3.5-9b").state_bytes() == 24 * 2_146_304  # as Qwen3.5-4B: 51 MB


def test_only_layers_with_attention_keep_kv() -> None:
    model = load_model("qwen3-next-80b-a3b")
    assert (model.kv_layers, model.kv_token_bytes) == (12, 12 * 2 * 2 * 256 * 2)
    assert model.kv_held_bytes(1000) == 1000 * model.kv_token_bytes


def test_cards_that_do_not_divide_state_heads_are_refused() -> None:
    with pytest.raises(DescriptionError, match="24 state heads"):
        shard(load_model("falcon-h1-7b").model_copy(update={"heads": 16, "kv_heads": 16}), 16)
