"""Do devices beside one another have the figures of each pair alone?"""

from __future__ import annotations

import pytest

from bankwise import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from sweeps.ask.fit import Fit, fit
from sweeps.ask.fit_devices import Compared, DeviceRate, FitDevicesQuestion
from sweeps.ask.fit_library import question_of

CARDS = ("a100-80gb", "l4", "mlu370-x4")


def asked(*names: str, **given: object) -> Compared:
    return FitDevicesQuestion.of({"names": [*names], **given}).answer()


@pytest.fixture(scope="module")
def decoding() -> dict[str, DeviceRate]:
    found = asked(*CARDS, "llama-3.1-8b", decode_only=True, price={"l4": 2500}, watts={"l4": 50})
    return {each.device: each for each in found.pairs}


def test_decode_alone_is_that_of_the_pair(decoding: dict[str, DeviceRate]) -> None:
    for name, each in decoding.items():
        pair = fit(load_device(name), load_model("llama-3.1-8b"), question_of({}))
        assert isinstance(pair, Fit) and each.tpot_ms == pytest.approx(1e3 * pair.full.seconds)
        # the first token of an answer comes of its prompt
        assert each.tokens_per_s == pytest.approx(pair.full.tokens_per_s * 300 / 299)


def test_prompts_cost_and_price_and_power_divide(decoding: dict[str, DeviceRate]) -> None:
    l4 = decoding["l4"]
    assert l4.tokens_per_s is not None and l4.tokens_per_s_per_kusd is not None
    assert l4.tokens_per_s_per_kusd == pytest.approx(l4.tokens_per_s / 2.5)
    assert l4.tokens_per_s_per_watt == pytest.approx(l4.tokens_per_s / 50)
    assert decoding["a100-80gb"].tokens_per_s_per_kusd is None
    (whole,) = asked("l4", "llama-3.1-8b").pairs
    assert whole.tokens_per_s is not None and whole.tokens_per_s < l4.tokens_per_s


def test_software_of_its_own_class_changes_nothing() -> None:
    (own,) = asked("mlu370-x4", "llama-3.1-8b", software="accelerator").pairs
    assert own.tokens_per_s_equal_software == pytest.approx(own.tokens_per_s)


def test_a_pair_that_does_not_fit_is_a_row_and_a_class_that_is_none_a_mistake() -> None:
    found = asked(*CARDS, "llama-3.1-8b", "llama-3.3-70b")
    out = [each for each in found.pairs if each.why is not None]
    assert {each.model for each in out} == {"llama-3.3-70b"} and len(out) == 3
    assert all(each.fits_with and each.tokens_per_s is None for each in out)
    with pytest.raises(DescriptionError):
        asked("l4", "llama-3.1-8b", software="nvidia-hmb")
    with pytest.raises(DescriptionError, match="needs a model beside devices"):
        asked("l4")
