"""Attention by name in sweeps: short forms, the schema, mistakes of a user."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from hwmodel.description.description import DescriptionError
from policies.allocators.attention_options import Pages, TopK
from sweeps.cli.schema import schema
from sweeps.plan.experiment import Task
from sweeps.plan.kv_read import read_kv
from sweeps.plan.sweep import load_sweep
from tests.sweeps.made import RESULTS

FRAMES = RESULTS / "kv-frames.yaml"


def test_a_name_stands_for_its_options() -> None:
    served = load_sweep("smoke", ["serving.attention=top_k"]).points[0].experiment
    assert served.serving.attention == TopK()
    read = load_sweep(FRAMES, ["batch.attention={name: pages, page: 32}"]).points[0].experiment
    assert read.batch.attention == Pages(page=32)


def test_the_schema_knows_every_kind() -> None:
    validator = Draft202012Validator(schema("sweep"))
    for chosen, valid in (
        ("top_k", True),
        ({"name": "budget", "frees": "slots"}, True),
        ({"name": "budget", "frees": "all"}, False),
        ("best", False),
    ):
        data = load_sweep("smoke").document.data
        base = {**data["base"], "serving": {**data["base"]["serving"], "attention": chosen}}
        assert validator.is_valid({**data, "base": base}) is valid


def test_windows_are_for_serving() -> None:
    sweep = load_sweep(FRAMES, ["batch.attention=window_and_sinks"])
    with pytest.raises(DescriptionError, match="window_and_sinks keeps a window of the tokens"):
        read_kv(Task(sweep.points[0].experiment, 1, None))
