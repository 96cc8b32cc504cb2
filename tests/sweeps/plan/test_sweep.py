"""Does a sweep expand into the points it describes, and does --set reach them?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
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


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("paged={set: {serving.policy: oracle}", "a competitor has this name"),
        ("ref={set: {serving.engine.max_num_seqs: 3}", "expected a value of serving.policy"),
        ("ref={set: {servin.policy: oracle}", "expected a value of serving.policy"),
    ],
)
def test_a_reference_that_means_nothing_is_refused(reference: str, why: str) -> None:
    with pytest.raises(DescriptionError, match=why):
        load_sweep("quickstart", [f"variants.{reference}, role: reference}}"])


@pytest.mark.parametrize("name", shared(names("sweeps"), every=4))
def test_the_config_lays_out_the_same_points(name: str, tmp_path: Path) -> None:
    sweep = load_sweep(name)
    again = load_sweep(written(tmp_path, to_yaml(sweep.config)))
    assert [p.experiment for p in again.points] == [p.experiment for p in sweep.points]
    assert again.config == sweep.config


def test_the_config_writes_defaults_out() -> None:
    base = load_sweep("smoke").config["base"]
    assert base["serving"]["engine"]["max_num_seqs"] == 256
    assert "max_num_batched_tokens" in base["serving"]["engine"]
    assert base["serving"]["gpu_memory_utilization"] == 0.9


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


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "compare: serving.policy",
            "compare: serving.polcy",
            "compare: expected an axis; did you mean 's",
        ),
        ("[static, paged]", "[]", "expected at least one value"),
        ("[static, paged]", "[static, static]", "a value is there twice"),
        ("[static, paged]", "[static, pagd]", ":17: serving.policy"),
        ("axes:", "axis:", "did you mean 'axes'?"),
        ("  model: llama", "  modell: llama", "did you mean 'model'?"),
        ("relative: 1.5", "relative: -1", "load.relative"),
        ("relative: 1.5, of: best", "of: best", "expected one of rate_per_s, relative and goodput"),
        ("  model: llama-2-7b", "  model: llama-2-7b\n  model: llama-2-7b", "duplicate key"),
        ("    engine:", "    model: llama-2-7b\n    engine:", "give the model as `model`"),
        ("kind: sweep", "kind: memory", "expected kind: sweep"),
    ],
)
def test_mistakes_are_placed(old: str, new: str, said: str, tmp_path: Path) -> None:
    text = Path(SMOKE).read_text()
    assert old in text
    with pytest.raises(DescriptionError) as error:
        load_sweep(written(tmp_path, text.replace(old, new)))
    assert said in str(error.value)
    assert str(error.value).startswith(f"{tmp_path}/mine.yaml:")


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


def test_a_mapping_needs_no_name() -> None:
    assert label({"name": "paged", "block": 64}) == "paged block=64"
    assert label({"refresh": "none"}) == "refresh=none"
    assert label("/somewhere/mine.yaml") == "mine"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("variants.a={set: {seed: 2}, role: controll}", "variants.a.role"),
        ("variants.a={set: {seed: 2}, role: change}", "expected one of case, control, reference"),
        ("variants.a={role: control}", "expected at least one path and its value"),
        ("variants.a={set: {seed: 2}, of: paged, role: control}", "is for all competitors"),
        ("variants.a={set: {sed: 2}, role: control}", "did you mean 'seed'"),
        ("rule=effect", "did you mean 'effects'"),
        ("crossing={}", "crossing: belongs to rule: crossing"),
        ("skip=[controls]", "skip"),
    ],
)
def test_a_mistake_in_a_variant_is_said(given: str, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        load_sweep("smoke", [given])


def test_a_variant_may_be_for_one_competitor_alone() -> None:
    of = "variants.a={set: {seed: 3}, of: {paged: {serving.policy.block: 32}}, role: change}"
    points = load_sweep("smoke", ["rule=effects", of]).points[2:]
    assert {p.experiment.seed for p in points} == {3}
    blocks = {p.experiment.serving.policy.name: p.experiment.serving.policy for p in points}
    assert blocks["paged"].model_dump()["block"] == 32


def test_a_renamed_key_names_its_successor() -> None:
    with pytest.raises(DescriptionError, match=r"policy\.pool: unknown key; it is 'space' now"):
        load_sweep("smoke", ["serving.policy={name: odma, pool: partitioned}"])


def test_an_engine_is_chosen_by_its_name_or_by_a_version_and_swept() -> None:
    engines = 'engine=[v0, v1, {name: v1, like: "0.11"}]'
    sweep = load_sweep("smoke", [f"axes.serving.{engines}", "axes.serving.policy=[paged]"])
    found = [point.experiment.serving for point in sweep.points]
    assert [serving.engine.name for serving in found] == ["v0", "v1", "v1"]
    assert len({serving.policy.model_dump_json() for serving in found}) == 3
    options = ["serving.engine=v1", "serving.engine.max_num_seqs=8"]
    assert load_sweep("smoke", options).points[0].experiment.serving.engine.max_num_seqs == 8
    with pytest.raises(DescriptionError, match="unknown engine; did you mean 'v1'"):
        load_sweep("smoke", ["serving.engine=v9"])
