"""Is a file that unpacks without end refused, whatever it is given as?"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.description import packed
from hwmodel.description.description import DescriptionError
from hwmodel.measure import trace
from hwmodel.specs.device import load_device
from policies.engines.schedule_cases import read_cases
from policies.predictors.confusion import read_classes
from policies.requests.requests import load_trace
from policies.serving.server_log import BlockLog
from tests.rotation import spread
from tools.damage import bounded


def accesses(path: Path) -> list[Any]:
    return list(trace.read_trace(path, load_device("lpddr5-6400-x16"), single_channel=True))


READERS = [accesses, load_trace, read_cases, lambda p: read_classes(p, "a"),
           lambda p: list(BlockLog(p))]  # fmt: skip


@pytest.mark.parametrize(("read", "unit"), spread(READERS, [b"\0", b"\n", b"# a comment\n"]))
def test_a_gzip_of_a_gibibyte_is_refused(
    read: Callable[[Path], Any], unit: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "FREE_BYTES", 1 << 19)
    monkeypatch.setattr(trace, "CHUNK", 1 << 16)
    file = tmp_path / "bomb.gz"
    one = gzip.compress(unit * ((8 << 20) // len(unit)), mtime=0)  # 1,000 times smaller
    file.write_bytes(one * 128)  # members follow one another
    with bounded(), pytest.raises(DescriptionError) as error:
        read(file)  # stops long before the end
    assert str(file) in str(error.value)


def test_an_npz_that_unpacks_to_100_gb_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bomb.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<u8", "fortran_order": False, "shape": (12_500_000_000,)}
    )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("address.npy", header.getvalue())
        archive.writestr("write.npy", header.getvalue())
    with bounded(), pytest.raises(DescriptionError, match=r"is not an .npz file"):
        accesses(file)
    raw = file.read_bytes().replace(b"\x80\0\0\0", b"\xff\xff\xff\xef")  # sizes that are not
    file.write_bytes(raw)
    with bounded(), pytest.raises(DescriptionError):
        accesses(file)


def test_a_trace_in_two_blocks_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "".join(f"R {64 * i:#x}\n" for i in range(5000))
    (tmp_path / "t.gz").write_bytes(gzip.compress(lines.encode()))
    monkeypatch.setattr(trace, "CHUNK", 1 << 10)
    found = accesses(tmp_path / "t.gz")
    assert len(found) > 3
    assert np.concatenate([each.address for each in found]).tolist() == [
        64 * i for i in range(5000)
    ]
