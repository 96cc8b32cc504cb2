"""Is a mistake in an override placed where the run's document gives it?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hwmodel.description.description import (
    DescriptionError,
)
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.serving.building import kv_region
from policies.serving.serving_spec import ServingSpec
from sweeps.run import version
from tests.sweeps.cli.test_mistakes import mistakes


def test_which_version_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert version.version()[0].isdigit()
    monkeypatch.setattr(version.metadata, "version", missing)
    assert version.version() == "unknown"


def missing(name: str) -> str:
    raise version.metadata.PackageNotFoundError(name)


VARIANTS = """kind: sweep
name: mine
summary: one mistake
compare: serving.policy
base:
  {{device: mlu370-x4, model: llama-2-7b, workload: alpaca, load: {{rate_per_s: 1}}, requests: 20}}
axes: {{serving.policy: [paged, odma]}}
variants:
  other:
    role: control
    set:
      {set}
"""


def test_a_card_that_is_too_small_says_which_would_do(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(VARIANTS.format(set="device_set.capacity: 8GiB"))
    line = mistakes(tmp_path, "run", "mine.yaml", "--set", "device_set.capacity=9GiB")[-1]
    assert line.startswith("mine.yaml: paged: mlu370-x4 is too small for llama-2-7b")
    found = re.search(r"expected a capacity of (\d+)MiB or more", line)
    assert found is not None
    least = int(found[1])
    assert held(least) > 0
    with pytest.raises(DescriptionError, match="too small"):
        held(least - 1)


def held(mebibytes: int) -> int:
    """Slots of KV on a card of this capacity."""
    device = load_device("mlu370-x4", [f"capacity={mebibytes}MiB"])
    spec = ServingSpec(model="llama-2-7b")
    return kv_region(device, load_model("llama-2-7b"), spec).slots
