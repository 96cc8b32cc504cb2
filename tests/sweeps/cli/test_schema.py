"""Does an editor see the mistakes that `bankwise check` sees, and none in what ships?"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import yaml
from hwmodel.description.description import DescriptionError
from sweeps.cli.inspection import READERS
from sweeps.cli.schema import DESCRIPTIONS, schema
from tests.rotation import long
from tests.sweeps.cli.test_command_line import bankwise

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "yaml").rglob("*.yaml"))
FREE = {"sources", "timing", "device_set", "model_set", "workload_set", "memory_set", "densities"}
"""Mappings whose keys are names."""
LARGE = {"sweep", "study", "server"}
"""Schemas that take seconds to check."""


@pytest.fixture(scope="module")
def validators() -> dict[str, Draft202012Validator]:
    return {kind: Draft202012Validator(schema(kind)) for kind in DESCRIPTIONS}


def read(file: str) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data: dict[str, Any] = yaml.load((ROOT / file).read_text(), loader)
    return data


def test_every_kind_that_is_checked_has_a_schema() -> None:
    assert set(DESCRIPTIONS) == set(READERS)


@pytest.mark.parametrize("kind", [*sorted({*READERS} - LARGE), *long(*sorted(LARGE))])
def test_each_is_a_schema(kind: str, validators: dict[str, Draft202012Validator]) -> None:
    Draft202012Validator.check_schema(validators[kind].schema)


@pytest.mark.parametrize("file", SHIPPED)
def test_what_ships_is_valid(file: str, validators: dict[str, Draft202012Validator]) -> None:
    data = read(file)
    errors = [error.message for error in validators[data["kind"]].iter_errors(data)]
    assert errors == []


def changed(file: str, path: str, value: Any) -> dict[str, Any]:
    """A shipped description with a value at a path, in whose keys `~` stands for a dot."""
    data = here = read(f"yaml/{file}.yaml")
    *groups, last = (part.replace("~", ".") for part in path.split("."))
    for group in groups:
        here = here.setdefault(group, {})
    here[last] = value
    return data


def _misspelt(data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The description with one key misspelt, for each key, and for a few of each group."""
    for key in data:
        changed = {f"{key}x" if name == key else name: value for name, value in data.items()}
        yield key, changed
    for key, inner in data.items():
        if isinstance(inner, dict) and key not in FREE and "value" not in inner:
            for name in list(inner)[:4]:
                changed = copy.deepcopy(data)
                changed[key][f"{name}x"] = changed[key].pop(name)
                yield f"{key}.{name}", changed


@pytest.mark.parametrize(
    "file",
    ["memories/lpddr5-6400-x16", "memories/lpddr5-6400-x16-bl32",
     "accelerators/mlu370-x4", "models/llama-2-7b",
     "workloads/lognormal", "measurements/llama-2-7b-a100-80gb", "sweeps/quickstart",
     "sweeps/kv-extent", "studies/odma"],
)  # fmt: skip
def test_a_misspelt_key_is_not(file: str, validators: dict[str, Draft202012Validator]) -> None:
    data = read(f"yaml/{file}.yaml")
    # whose keys are names too
    names = {"commands", "buses", "hold", "variants", "plausible", "tolerances", "runtimes",
             "setups", "stand_ins", "families", "profiles", "known"}  # fmt: skip
    for path, changed in _misspelt(data):
        if "_set." not in path and (path.split(".")[0] not in names or "." not in path):
            assert not validators[data["kind"]].is_valid(changed), path


@pytest.mark.parametrize(
    ("file", "path", "value"),
    [
        ("accelerators/mlu370-x4", "interleave", 512),
        ("accelerators/mlu370-x4", "interleave", "512 bytes"),
        ("accelerators/mlu370-x4", "dma.descriptor_cost", "100GB"),
        ("accelerators/mlu370-x4", "channel_hash", "rotated"),
        ("memories/lpddr5-6400-x16", "timing.tRP", 18),
        ("memories/lpddr5-6400-x16", "clock.tCK.sauce", "gem5"),
        ("sweeps/quickstart", "base.serving.engine.max_num_seq", 4),
        ("sweeps/quickstart", "base.serving.policy", {"name": "pagd"}),
        ("sweeps/quickstart", "base.serving.policy", {"name": "paged", "blok": 3}),
        ("sweeps/quickstart", "axes.serving~polcy", ["paged"]),
        ("sweeps/quickstart", "base.batch", {"age": 3}),
        ("sweeps/quickstart", "variants.analytic.set", {"serving.memory.fidlity": "analytic"}),
        ("studies/odma", "variants.static.set", {"serving.polcy": {"name": "static"}}),
        ("sweeps/kv-extent", "base.load", {"relative": 1.5}),
        ("studies/odma", "space.serving~policy~gama", {"range": [0.0, 1.0]}),
    ],
)
def test_neither_is_a_wrong_value(
    file: str, path: str, value: Any, validators: dict[str, Draft202012Validator]
) -> None:
    data = changed(file, path, value)
    assert not validators[data["kind"]].is_valid(data)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("base.serving.policy", "paged"),
        ("base.serving.policy", {"name": "paged", "block": 32}),
        ("base.serving.kv_layout", "layer_block_kv_head"),
        ("base.slo", {"ttft": "2s", "tpot": "100ms"}),
        ("base.seed", {"value": 3, "source": "assumed"}),
        ("axes.device_set~dma~window", ["4KiB", "8KiB"]),
    ],
)
def test_what_check_takes_is_valid(
    path: str, value: Any, validators: dict[str, Draft202012Validator]
) -> None:
    assert validators["sweep"].is_valid(changed("sweeps/quickstart", path, value))


def test_one_schema_tells_the_kinds_apart() -> None:
    validator = Draft202012Validator(schema())
    assert all(validator.is_valid(read(file)) for file in SHIPPED[::3])
    assert not validator.is_valid(read("yaml/models/llama-2-7b.yaml") | {"kind": "memory"})
    assert not validator.is_valid({"kind": "memry"})


def test_fields_are_explained() -> None:
    told = schema("accelerator")["$defs"]["Dma"]["properties"]["window"]
    assert told["description"] == "Bytes an engine may have outstanding."


def test_the_command_writes_one_of_each_kind(tmp_path: Path) -> None:
    done = bankwise("check", "--schema", "schemas", cwd=tmp_path)
    assert done.stdout.splitlines()[0] == "wrote schemas/bankwise.json"
    names = {path.stem for path in (tmp_path / "schemas").iterdir()}
    assert names == {"bankwise", *DESCRIPTIONS}
    assert json.loads((tmp_path / "schemas/bankwise.json").read_text()) == schema()
    with pytest.raises(DescriptionError, match="no kind 'acelerator'; did you mean"):
        schema("acelerator")
