"""Do measured kernels have their times, and what lies between them?"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import find
from hwmodel.specs import kernel_table_package
from hwmodel.specs.device import load_device
from hwmodel.specs.kernel_table_csv import read_csv
from hwmodel.specs.kernel_tables import kernel_tables

HEADER = (
    "kind,us,format,rows,columns,inner,kv,heads,kv_heads,head_dim,window,block,sequences,tokens"
)
TABLE = f"""# a card of ours
{HEADER}
product,10,bf16,1,1024,1024,,,,,,,,
product,40,bf16,1,4096,1024,,,,,,,,
product,20,bf16,16,1024,1024,,,,,,,,
product,80,bf16,16,4096,1024,,,,,,,,
decode_attention,5,,,,,bf16,8,2,64,0,16,1,128
decode_attention,9,,,,,bf16,8,2,64,0,16,1,512
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.csv"
    file.write_text(text)
    return file


def test_times_are_met_and_lie_between(tmp_path: Path) -> None:
    tables = read_csv(written(tmp_path, TABLE))
    at = lambda *shape: tables.us("product", ("bf16",), *shape)  # noqa: E731
    assert at(1, 1024, 1024) == pytest.approx(10)
    assert at(4, 1024, 1024) == pytest.approx(10 * 2**0.5)
    assert at(16, 2048, 1024) == pytest.approx(40)
    found = tables.us("decode_attention", ("bf16", 8, 2, 64, 0, 16), 1, np.array([128.0, 256, 512]))
    assert found == pytest.approx([5, 45**0.5, 9])


def test_outside_the_measured_range_there_is_no_time(tmp_path: Path) -> None:
    tables = read_csv(written(tmp_path, TABLE))
    for shape in ((17, 1024, 1024), (1, 512, 1024), (1, 8192, 1024), (1, 1024, 2048)):
        assert math.isnan(tables.us("product", ("bf16",), *shape))
    assert math.isnan(tables.us("product", ("fp8",), 1, 1024, 1024))
    assert math.isnan(tables.us("experts", ("bf16", 1, 1, 1, 1, 1), 1))
    key = ("bf16", 8, 2, 64, 0, 16)
    assert np.isnan(tables.us("decode_attention", key, 1, np.array([64.0, 128, 600]))).tolist() == [
        True, False, True
    ]  # fmt: skip


def test_where_a_corner_was_not_measured_nothing_lies_between(tmp_path: Path) -> None:
    text = TABLE.replace("product,80,bf16,16,4096,1024,,,,,,,,\n", "")
    tables = read_csv(written(tmp_path, text))
    assert tables.us("product", ("bf16",), 1, 2048, 1024) == pytest.approx(20)
    assert tables.us("product", ("bf16",), 16, 1024, 1024) == pytest.approx(20)
    assert math.isnan(tables.us("product", ("bf16",), 4, 2048, 1024))


def test_an_empty_file_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="is empty"):
        read_csv(written(tmp_path, ""))
    with pytest.raises(DescriptionError, match="no measured kernels"):
        read_csv(written(tmp_path, HEADER))


def test_a_table_lies_beside_the_device_that_names_it(tmp_path: Path) -> None:
    written(tmp_path, TABLE)
    file = tmp_path / "mine.yaml"
    shipped = find("accelerators", "h100-sxm").read_text()
    file.write_text(shipped.replace("class: nvidia-hbm,", "class: nvidia-hbm, tables: mine.csv,"))
    law = load_device(str(file)).accelerator.kernels  # type: ignore[union-attr]
    assert law.tables == str(tmp_path / "mine.csv")
    with pytest.raises(DescriptionError, match=r"other\.csv: no such file"):
        load_device("a100-80gb", ["kernels.tables=other.csv"])


def test_without_the_package_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table_package, "systems", lambda: None)
    kernel_tables.cache_clear()
    with pytest.raises(DescriptionError) as caught:
        load_device("h100-sxm", ["kernels.tables=vllm-0.24"])
    assert "pip install 'bankwise[kernels]'" in str(caught.value) and "\n" not in str(caught.value)


def test_the_package_is_asked_for_a_system_and_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "h100_sxm" / "gemm" / "vllm" / "0.24.0").mkdir(parents=True)
    monkeypatch.setattr(kernel_table_package, "systems", lambda: tmp_path)
    kernel_tables.cache_clear()
    for name, system, answer in (
        ("vllm-0.24", None, "expected kernels.system"),
        ("vllm-0.24", "h100", "has no system 'h100'; did you mean 'h100_sxm'"),
        ("vlm-0.24", "h100_sxm", "no tables 'vlm-0.24' of h100_sxm; did you mean 'vllm-0.24.0'"),
        ("vllm-0.2", "h100_sxm", "no tables 'vllm-0.2' of h100_sxm"),
    ):
        with pytest.raises(DescriptionError, match=answer):
            kernel_tables(name, system)
    assert kernel_tables("vllm-0.24", "h100_sxm").grids("product") == {}
    kernel_tables.cache_clear()


@pytest.mark.skipif(
    kernel_table_package.systems() is None, reason="aiconfigurator-core is not installed"
)
@pytest.mark.parametrize("name", ["vllm-0.24", "sglang-0.5", "tensorrt-llm-1.3"])
def test_the_package_has_a_layer_of_llama(name: str) -> None:
    kernel_tables.cache_clear()
    tables = kernel_tables(name, "h100_sxm")
    product = tables.us("product", ("bf16",), 1, 6144, 4096)
    assert 12 < product < 30  # 50 MB at 3,350 GB/s take 15
    for block in (64, 0):
        read = tables.us("decode_attention", ("bf16", 32, 8, 128, 0, block), 64, 4096)
        assert math.isnan(read) or 320 < read < 420  # 1.07 GB take 320
    assert tables.us("prefill_attention", ("bf16", 32, 8, 128, 0), 1, 4096) > 0
    assert 5 < tables.us("all_reduce", (2,), 1 << 20) < 40
