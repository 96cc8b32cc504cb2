"""Do declarations of what does not go together name keys, for few reasons?"""

from __future__ import annotations

from typing import Any

import pytest

from policies.serving.combinations import (
    DECLARATIONS,
    NAMED,
    Declaration,
    Facts,
)
from policies.serving.controllers import CONTROLLERS
from policies.serving.serving_spec import ServingSpec
from policies.transfers.connectors import CONNECTORS
from tests.policies.small import spec

HOST = {"host": {"link": "pcie5-h100-batched", "cpu_bytes_to_use": "1GB"}}
MOST_REASONS = 12
FEATURES = sorted({name for each in DECLARATIONS for name in (each.key, *each.others)})


@pytest.mark.parametrize("feature", FEATURES)
def test_a_declaration_names_a_key_of_the_description(feature: str) -> None:
    if feature in NAMED:
        return
    own: Any = ServingSpec
    named = {name: kind.Options for name, kind in {**CONNECTORS, **CONTROLLERS}.items()}
    for part in feature.split("."):
        field = own.model_fields.get(part)
        assert field is not None or part == "swap_dram", feature
        if part in named:
            own = named[part]
            continue
        kinds = (
            [] if field is None else [field.annotation, *getattr(field.annotation, "__args__", ())]
        )
        own = next((kind for kind in kinds if hasattr(kind, "model_fields")), own)


def test_few_reasons_make_pairs_mean_nothing() -> None:
    reasons = {each.reason for each in DECLARATIONS}
    assert all(len(reason) > 15 for reason in reasons)
    assert len(reasons) <= MOST_REASONS


def test_a_key_that_is_gone_is_never_there() -> None:
    gone = Declaration("cluster.teleporting", ("tiers",), "it is nowhere")
    assert gone.breach(Facts(spec(tiers=HOST))) is None
