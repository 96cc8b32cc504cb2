"""Is a mistake in an override placed where the run's document gives it?"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hwmodel.description.description import (
    DescriptionError,
    DescriptionErrors,
    Document,
    Mark,
)
from hwmodel.description.library import LIBRARY
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.serving.building import kv_region
from policies.serving.serving_spec import ServingSpec
from sweeps.plan.place import Override, in_sweep, shortened
from sweeps.run import version
from tests.sweeps.cli.test_mistakes import mistakes

DOCUMENT = Document(
    {}, "mine.yaml",
    {
        (): Mark("mine.yaml", 1), ("base",): Mark("mine.yaml", 2),
        ("base", "device_set", "dma.window"): Mark("mine.yaml", 3),
        ("base", "device_set", "clock", "tCK"): Mark("mine.yaml", 4),
        ("axes", "device_set.clock"): Mark("mine.yaml", 7),
    },
)  # fmt: skip
CLOCK = Override("device_set.clock", ("axes", "device_set.clock"), [])


def placed(error: DescriptionError, *places: Override) -> tuple[str | None, int | None, str]:
    found = in_sweep(error, DOCUMENT, "device", iter(places))
    assert found.message == error.message
    return found.file, found.line, found.path


def test_is_a_mistake_where_an_axis_gives_it_else_in_the_base() -> None:
    error = DescriptionError("too slow", "--set clock.tCK=0ns", None, "clock.tCK")
    assert placed(error, CLOCK) == ("mine.yaml", 7, "device_set.clock.tCK")
    # an axis of another key, or of one that begins alike
    other = Override("device_set.clo", ("axes",), [])
    assert placed(error, other) == ("mine.yaml", 4, "device_set.clock.tCK")
    assert placed(error) == ("mine.yaml", 4, "device_set.clock.tCK")
    nowhere = DescriptionError("what is it", "--set ranks=2")
    assert placed(nowhere) == ("mine.yaml", 2, "device_set")


def test_does_a_mistake_of_a_file_stay_and_has_each_of_several_its_place() -> None:
    error = DescriptionError("no", "card.yaml", 9, "a.b")
    assert in_sweep(error, DOCUMENT, "device", [CLOCK]) is error
    typed = in_sweep(DescriptionError("no such device"), DOCUMENT, "device", [CLOCK])
    assert str(typed) == "mine.yaml:2: base.device: no such device"
    one = DescriptionError("a", "--set clock.tCK=0ns", None, "clock.tCK")
    two = DescriptionError("b", "card.yaml", 5)
    both = in_sweep(DescriptionErrors([one, two]), DOCUMENT, "device", iter([CLOCK]))
    assert isinstance(both, DescriptionErrors)
    assert [(each.file, each.line) for each in both.errors] == [("mine.yaml", 7), ("card.yaml", 5)]


def test_are_paths_as_the_user_types_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bankwise", "run"])
    text = f"{tmp_path}/a.yaml:3 {LIBRARY}/memories/b.yaml"
    assert shortened(text) == "a.yaml:3 memories/b.yaml"
    monkeypatch.setattr(sys, "argv", ["bankwise", f"{tmp_path}/a.yaml"])
    assert shortened(text) == f"{tmp_path}/a.yaml:3 memories/b.yaml"


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
