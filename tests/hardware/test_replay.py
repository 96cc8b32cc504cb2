"""Traces in, figures out: formats, mistakes, chunking, and the command log."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import hwmodel.trace
from hwmodel.audit import audit
from hwmodel.command_log import read_csv
from hwmodel.description import DescriptionError
from hwmodel.device import load_device
from hwmodel.replay import replay

LPDDR5 = "lpddr5-6400-x16"


def text(path: Path, count: int = 2000) -> Path:
    rng = np.random.default_rng(3)
    address = rng.integers(0, 1 << 25, count) * 32
    path.write_text("".join(f"{'RW'[i % 3 == 0]} {a:#x}\n" for i, a in enumerate(address.tolist())))
    return path


def same(a: dict, b: dict) -> bool:
    ignored = ("wall_s", "pattern")
    return {k: v for k, v in a.items() if k not in ignored} == {
        k: v for k, v in b.items() if k not in ignored
    }


def test_text_gzip_and_npz_give_the_same_figures(tmp_path: Path) -> None:
    plain = text(tmp_path / "t.txt")
    zipped = tmp_path / "t.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    lines = [line.split() for line in plain.read_text().splitlines()]
    arrays = tmp_path / "t.npz"
    np.savez(
        arrays,
        address=np.array([int(a, 16) for _, a in lines], np.uint64),
        write=np.array([kind == "W" for kind, _ in lines]),
    )
    device = load_device(LPDDR5)
    found = [replay(device, file, single_channel=True) for file in (plain, zipped, arrays)]
    assert found[0]["requests"] == 2000
    assert same(found[0], found[1]) and same(found[0], found[2])


@pytest.mark.parametrize("device", [LPDDR5, "mlu370-x4"])
def test_the_size_of_chunks_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    trace = text(tmp_path / "t.txt")
    whole = replay(load_device(device), trace)
    monkeypatch.setattr(hwmodel.trace, "CHUNK", 4)
    assert same(whole, replay(load_device(device), trace))


def test_an_address_inside_a_burst_is_aligned_down(tmp_path: Path) -> None:
    device = load_device(LPDDR5)
    for name, address in (("a", "0x40"), ("b", "0x5f")):
        (tmp_path / name).write_text(f"R {address}\n")
    assert same(replay(device, tmp_path / "a"), replay(device, tmp_path / "b"))


@pytest.mark.parametrize("name", [LPDDR5, "hbm2e-3.2", "mlu370-x4"])
def test_the_command_log_is_legal_and_complete(tmp_path: Path, name: str) -> None:
    device = load_device(name)
    log = tmp_path / "commands.csv"
    found = replay(device, text(tmp_path / "t.txt"), commands=log)
    logs = read_csv(device.memory, log)
    assert len(logs) == device.channels
    assert sum(len(part.tick) for _, part in logs) == sum(found["commands"].values())
    for _, part in logs:
        assert audit(device.memory, part) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"R 0x20\nR zzz\n", "t:2: expected 'R 0x1f40'"),
        (b"R 0x20\nX 0x20\n", "t:2: expected"),
        (b"R -32\n", "t:1: negative address"),
        (b"", "is empty"),
        (b"# nothing\n", "holds no accesses"),
        (b"R 0x99999999999\n", "outside"),
        (gzip.compress(b"R 0x20\n" * 5000)[:-20], "truncated or damaged gzip"),
    ],
)
def test_a_bad_trace_is_answered_with_its_place(
    tmp_path: Path, content: bytes, message: str
) -> None:
    trace = tmp_path / "t"
    trace.write_bytes(content)
    log = tmp_path / "commands.csv"
    with pytest.raises(DescriptionError) as error:
        replay(load_device(LPDDR5), trace, commands=log)
    assert message in str(error.value)
    assert not list(tmp_path.glob("commands*")), "nothing half-written"


def test_a_missing_trace_and_a_wrong_npz_are_the_users_mistake(tmp_path: Path) -> None:
    device = load_device(LPDDR5)
    with pytest.raises(DescriptionError, match="no such file"):
        replay(device, tmp_path / "none")
    np.savez(tmp_path / "x.npz", address=np.zeros(3, np.uint64))
    with pytest.raises(DescriptionError, match="has no array 'write'"):
        replay(device, tmp_path / "x.npz")
    (tmp_path / "y.npz").write_bytes(b"not a zip")
    with pytest.raises(DescriptionError, match=r"not an \.npz"):
        replay(device, tmp_path / "y.npz")


def test_energy_grows_with_activations() -> None:
    from hwmodel.energy import energy_nj

    memory = load_device(LPDDR5).memory
    base = energy_nj(memory, {"RD": 100}, 1000.0)
    assert energy_nj(memory, {"RD": 100, "ACT2": 10}, 1000.0) == pytest.approx(base + 18.18)
    assert energy_nj(memory, {"RD": 100}, 2000.0) == pytest.approx(base + 61.4)
