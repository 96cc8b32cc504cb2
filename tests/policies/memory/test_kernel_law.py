"""Are steps as long as public ones, with the device as shipped?"""

from __future__ import annotations

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.description.yaml_reader import load, loads
from hwmodel.specs.device import load_device
from hwmodel.specs.kernel_law import KernelClass, KernelLaw
from hwmodel.specs.transformer import load_model
from sweeps.ask.fit import Fit, FitQuestion, fit
from tests.rotation import long


@pytest.mark.parametrize("name", names("kernels"))
def test_a_class_says_of_each_program_all_that_a_law_has(name: str) -> None:
    document = load_class(name)
    stated = set(document.law).union(*document.programs.values())
    assert stated == set(KernelLaw.model_fields)


@pytest.mark.parametrize("device", ["m2-ultra", "rtx-4090", *long("dgx-spark-gb10", "strix-halo")])
def test_no_class_of_kernels_is_faster_than_the_bound(device: str) -> None:
    model = load_model("qwen2.5-7b")

    def rates(of: str, program: str) -> list[float]:
        card = load_device(device, [f"kernels={{class: {of}, program: {program}}}"])
        found = fit(card, model, FitQuestion())
        assert isinstance(found, Fit)
        return [each.tokens_per_s for each in (found.alone, found.full, found.prefill)]

    ideal = rates("ideal", "any")
    for name in names("kernels"):
        for program in load_class(name).programs:
            assert all(a <= b for a, b in zip(rates(name, program), ideal, strict=True)), name


def load_class(name: str) -> KernelClass:
    from hwmodel.description.library import find

    return load(find("kernels", name)).build(KernelClass)


def test_mistakes_in_a_class_are_placed() -> None:
    text = load_text()
    for old, new, answer in (
        ("usual: any", "usual: nay", "usual: did you mean 'any'"),
        ("host: 0us}", "hots: 0us}", "programs.any.hots: unknown key; did you mean 'host'"),
        ("tile: 1", "tile: 0", "law.tile: "),
    ):
        with pytest.raises(DescriptionError, match=answer):
            loads(text.replace(old, new), "mine.yaml").build(KernelClass)


def load_text() -> str:
    from hwmodel.description.library import find

    return find("kernels", "ideal").read_text()


def test_what_a_device_says_stands_over_its_class_with_its_source() -> None:
    device = load_device("a100-80gb")
    assert device.accelerator is not None
    assert device.accelerator.kernels.weights == 0.8
    assert load_device("h100-sxm").accelerator.kernels.weights == 0.89  # type: ignore[union-attr]
    assert "kernels.host" in device.assumed and "kernels.product" not in device.assumed
