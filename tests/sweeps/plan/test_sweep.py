"""Does a sweep expand into the points it describes, and does --set reach them?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hwmodel.description.library import names
from hwmodel.description.yaml_writer import to_yaml
from sweeps.analyse.figures import REFERENCE
from sweeps.analyse.label import label
from sweeps.plan.crossing_sweep import CrossingSpec
from sweeps.plan.sweep import Sweep, load_sweep
from sweeps.run.capacity import rivals, wanted
from tests.rotation import shared

SMOKE = load_sweep("smoke").document.file


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "mine.yaml").write_text(text)
    return str(tmp_path / "mine.yaml")


def policies(sweep: Sweep) -> list[str]:
    return [point.experiment.serving.policy.name for point in sweep.points]


@pytest.mark.parametrize("name", names("sweeps"))
def test_every_shipped_sweep_lays_out_its_points(name: str) -> None:
    sweep = load_sweep(name)
    roles = Counter(variant.role for variant in sweep.spec.variants.values())
    count = (1 + roles["control"]) * (1 + roles["change"] + roles["condition"])
    parameters = sweep.spec.crossing if isinstance(sweep.spec, CrossingSpec) else {}
    alone = 0  # values of one competitor
    for parameter in parameters.values():
        ends = len(parameter.variants) or 2  # what follows hangs on the results
        count += ends * (parameter.of is None)
        alone += ends * (parameter.of is not None and not parameter.against)
    groups = 1
    for axis, values in sweep.spec.axes.items():
        count *= len(values)
        groups *= 1 if axis == sweep.spec.compare else len(values)
    count += groups * (alone + roles["reference"] + roles["objection"])  # ties hang on the results
    count *= roles["case"] or 1
    assert [point.index for point in sweep.points] == list(range(count))


def test_quickstart_asks_what_it_promises() -> None:
    sweep = load_sweep("quickstart")
    main = [point for point in sweep.points if not point.control]
    assert [(p.overrides["device"], p.overrides["serving.policy"]) for p in main] == [
        (device, policy)
        for device in ("mlu370-x4", "a100-80gb")
        for policy in ("static", "paged", "odma")
    ]
    for point in main:
        experiment = point.experiment
        assert experiment.serving.memory.fidelity == "sampled"
        assert experiment.requests >= 1000 and experiment.replications >= 3
        assert experiment.load is not None and experiment.load.relative == 1.5
    assert {p.experiment.serving.memory.fidelity for p in sweep.points if p.control} == {"analytic"}


def test_references_run_in_the_analytic_control_and_set_no_load() -> None:
    sweep = load_sweep("quickstart")
    found = [point for point in sweep.points if point.control == REFERENCE]
    assert [point.overrides["serving.policy"] for point in found] == [
        "oracle", "oracle", "oracle without holes", "oracle without holes"
    ]  # fmt: skip
    assert {point.experiment.serving.policy.name for point in found} == {"oracle"}
    rivals_of = {point.index: rivals(sweep, point, 1) for point in sweep.points}
    for point in found:
        same = [p for p in sweep.points if p.overrides["device"] == point.overrides["device"]]
        assert all(rivals_of[p.index] == rivals_of[point.index] for p in same)
        assert len(rivals_of[point.index]) == 3
    assert len(wanted(sweep)) == 6 * 6


@pytest.mark.parametrize("name", shared(names("sweeps"), every=4))
def test_the_config_lays_out_the_same_points(name: str, tmp_path: Path) -> None:
    sweep = load_sweep(name)
    again = load_sweep(written(tmp_path, to_yaml(sweep.config)))
    assert [p.experiment for p in again.points] == [p.experiment for p in sweep.points]
    assert again.config == sweep.config


def test_set_reaches_the_experiment_the_axes_and_the_sweep() -> None:
    sweep = load_sweep("smoke", ["requests=7", "load.relative=2", "name=other"])
    assert {point.experiment.requests for point in sweep.points} == {7}
    assert sweep.spec.name == "other"
    assert policies(load_sweep("smoke", ["policy=odma"])) == ["odma"]
    assert policies(load_sweep("smoke", ["policy=[odma, paged]"])) == ["odma", "paged"]
    assert policies(load_sweep("smoke", ["axes.serving.policy=[static]"])) == ["static"]
    devices = load_sweep("quickstart", ["device=a100-80gb"]).points
    assert {point.experiment.device for point in devices} == {"a100-80gb"}
    fidelity = load_sweep("quickstart", ["fidelity=analytic", "skip=[control]"]).points
    assert {point.experiment.serving.memory.fidelity for point in fidelity} == {"analytic"}


def test_an_axis_may_carry_options_of_a_policy() -> None:
    sweep = load_sweep("smoke", ["policy=[{name: paged, block: 32}, static]"])
    assert policies(sweep) == ["paged", "static"]
    assert sweep.points[0].experiment.serving.policy.model_dump()["block"] == 32


def test_an_axis_may_be_a_number_of_the_device() -> None:
    sweep = load_sweep("smoke", ["axes.device_set.dma.window=[8KiB, 16KiB]"])
    assert len(sweep.points) == 4
    assert sweep.points[1].experiment.device_set == {"dma": {"window": "16KiB"}}


def test_a_description_beside_the_sweep_is_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_text(CARD)
    text = Path(SMOKE).read_text().replace("device: mlu370-x4", "device: card.yaml")
    sweep = load_sweep(written(tmp_path, text))
    assert sweep.points[0].experiment.device == str(tmp_path / "card.yaml")


def test_labels_are_short() -> None:
    assert label("/data/azure.csv.gz") == "azure"
    assert label({"name": "paged", "block_tokens": 32}) == "paged block_tokens=32"
    assert label(1.5) == "1.5"


CARD = (Path(SMOKE).parents[1] / "accelerators/mlu370-x4.yaml").read_text()


def test_a_variant_may_be_for_one_competitor_alone() -> None:
    of = "variants.a={set: {seed: 3}, of: {paged: {serving.policy.block: 32}}, role: change}"
    points = load_sweep("smoke", ["rule=effects", of]).points[2:]
    assert {p.experiment.seed for p in points} == {3}
    blocks = {p.experiment.serving.policy.name: p.experiment.serving.policy for p in points}
    assert blocks["paged"].model_dump()["block"] == 32


def test_an_engine_is_chosen_by_its_name_or_by_a_version_and_swept() -> None:
    engines = 'engine=[v0, v1, {name: v1, like: "0.11"}]'
    sweep = load_sweep("smoke", [f"axes.serving.{engines}", "axes.serving.policy=[paged]"])
    found = [point.experiment.serving for point in sweep.points]
    assert [serving.engine.name for serving in found] == ["v0", "v1", "v1"]
    assert len({serving.policy.model_dump_json() for serving in found}) == 3
    options = ["serving.engine=v1", "serving.engine.max_num_seqs=8"]
    assert load_sweep("smoke", options).points[0].experiment.serving.engine.max_num_seqs == 8
