"""What is published of a device is held against its description, and changes nothing else."""

from pathlib import Path

import pytest

from hwmodel.description.library import names
from hwmodel.specs.device import load_device
from hwmodel.specs.published import OnChip
from hwmodel.specs.transformer import load_model

CARD = (Path(__file__).resolve().parents[3] / "yaml/accelerators/jetson-agx-orin.yaml").read_text()
BUS = next(line for line in CARD.splitlines() if line.startswith("bus:"))


def test_an_override_may_leave_what_is_published() -> None:
    assert load_device("jetson-agx-orin", ["channels=20", "capacity=8GiB"]).peak_gbps == 256


def test_what_is_published_is_in_no_hash(tmp_path: Path) -> None:
    (file := tmp_path / "card.yaml").write_text(CARD.replace(BUS + "\n", ""))
    assert load_device(str(file)).digest == load_device("jetson-agx-orin").digest


def test_a_cache_and_a_scratchpad_change_traffic_under_different_rules() -> None:
    step = load_model("llama-3.2-3b").stored_as("q4_k_m", None).step_weight_bytes
    cache = OnChip(size="50MB", managed_by="hardware")  # type: ignore[arg-type]
    pad = OnChip(size="576MB", managed_by="software")  # type: ignore[arg-type]
    assert cache.matters_below == 50e6 and pad.matters_below == pytest.approx(11.52e9)
    assert "less than 0.05 GB" in cache.remark("m", step)
    assert "m reads 2.01 GB, 3 times what it holds" in pad.remark("m", step)


def test_every_class_of_memory_ships() -> None:
    assert len(names("accelerators")) >= 25
    given = load_device("l40s").given is not None, load_device("h200").given is not None
    assert given == (True, False)


def test_every_device_states_its_bus_where_one_is_published() -> None:
    folder = Path(__file__).resolve().parents[3] / "yaml/accelerators"
    files = {file.stem: file.read_text() for file in folder.glob("*.yaml")}
    without = {name for name, text in files.items() if "\nbus:" not in text}
    hypothetical = {"gddr7-hbf", "hbm4-lpddr6"}
    assert without == {"oaken-hbm", "oaken-lpddr", "tpu-v6e", *hypothetical}  # theirs are not
