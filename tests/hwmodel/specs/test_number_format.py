"""Do formats give the measured sizes and the FLOPs of their type, and are mistakes named?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.library import names
from hwmodel.specs.number_format import number_format
from hwmodel.specs.transformer import TransformerSpec, load_model, shard

LLAMA_2_7B = load_model("llama-2-7b")
LLAMA_2_13B = LLAMA_2_7B.model_copy(
    update={"layers": 40, "hidden": 5120, "heads": 40, "kv_heads": 40, "intermediate": 13824}
)
LLAMA_31_8B = LLAMA_2_7B.model_copy(
    update={"kv_heads": 8, "intermediate": 14336, "vocabulary": 128256}
)
LLAMA_33_70B = LLAMA_31_8B.model_copy(
    update={"layers": 80, "hidden": 8192, "heads": 64, "intermediate": 28672}
)
QWEN = load_model("deepseek-r1-distill-qwen-7b")


def stored(model: TransformerSpec, weights: str) -> TransformerSpec:
    return model.stored_as(weights, None)


@pytest.mark.parametrize(
    ("model", "weights", "bits", "digits"),
    [
        # bits a weight of llama.cpp's files (tools/quantize/README.md and its older editions)
        (LLAMA_31_8B, "q8_0", 8.5008, 4),
        (LLAMA_31_8B, "q4_k_m", 4.8944, 4),
        (LLAMA_2_7B, "q4_k_m", 4.84, 2),
        (LLAMA_2_13B, "q4_k_m", 4.83, 2),
        # (16 x tables + 4.156 x rest) / all
        (LLAMA_31_8B, "w4a16", 5.71, 2),
        (LLAMA_33_70B, "w4a16", 4.51, 2),
    ],
)
def test_effective_bits_of_whole_models(
    model: TransformerSpec, weights: str, bits: float, digits: int
) -> None:
    found = stored(model, weights)
    assert round(8 * found.weight_bytes / found.parameters, digits) == bits


@pytest.mark.parametrize(
    ("model", "weights", "gib"), [(QWEN, "q8_0", 7.54), (LLAMA_2_7B, "q4_0", 3.56)]
)
def test_sizes_of_published_files(model: TransformerSpec, weights: str, gib: float) -> None:
    # llama.cpp's benchmarks of Qwen2.5-Coder-7B (the same shape) and of Llama-2-7B
    assert round(stored(model, weights).weight_bytes / 2**30, 2) == gib


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("fp8", 8), ("fp8_block_128x128", 8 + 32 / 128**2), ("int8_w8a8", 8 + 16 / 4096),
        ("w4a16", 4 + 20 / 128), ("w4a16_symmetric", 4 + 16 / 128), ("q8_0", 8.5), ("q4_0", 4.5),
        ("q4_k", 4.5), ("q6_k", 6.5625), ("mxfp4", 4.25), ("nvfp4", 4.5 + 32 / 4096**2),
    ],
)  # fmt: skip
def test_bits_of_a_matrix(name: str, bits: float) -> None:
    assert number_format(name).matrix_bits(4096, 4096) == bits * 4096**2


@pytest.mark.parametrize(
    ("name", "head", "size"),
    [
        ("fp16", 128, 256), ("fp8_e4m3", 128, 128), ("int8", 128, 128),
        ("int8_token_head", 128, 132), ("int8_token_head", 64, 68), ("int4_token_head", 128, 68),
        ("q8_0", 128, 136), ("q4_0", 64, 36),
    ],
)  # fmt: skip
def test_bytes_of_a_heads_kv(name: str, head: int, size: int) -> None:
    model = load_model("llama-2-7b", [f"kv={name}", f"head_dim={head}"])
    assert model.kv_head_bytes == size
    assert model.kv_token_bytes == 2 * 32 * 32 * size
    assert shard(model, 4).kv_token_bytes * 4 == model.kv_token_bytes


def documented(what: str) -> dict[str, list[str]]:
    """Format -> its other columns, in the table of docs/models.md that begins with `what`."""
    page = Path(__file__).parents[3].joinpath("docs/models.md").read_text(encoding="utf-8")
    lines = page[page.index(f"| {what} |") :].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.split(", ") for cell in line.strip("| ").split(" | ")] for line in lines]
    return {name.strip("`"): rest for row in rows for name, *rest in zip(*row, strict=True)}


def test_the_tables_of_the_documentation_are_the_data() -> None:
    weights, kv = documented("weights"), documented("KV")
    formats = {name: number_format(name) for name in names("formats")}
    for what, table in (("weights", weights), ("kv", kv)):
        assert sorted(table) == sorted(n for n, each in formats.items() if what in each.stores)
    for name, (bits, compute) in weights.items():
        found = formats[name]
        assert f"{round(found.matrix_bits(4096, 4096) / 4096**2, 3):g}" == bits, name
        assert found.compute == compute, name
    for name, (bits,) in kv.items():
        shape = (1, width) if (width := formats[name].head_dim) else (32, 128)
        assert f"{round(formats[name].effective_bits(*shape), 3):g}" == bits, name


def test_formats_have_the_names_of_their_files() -> None:
    assert [number_format(name).name for name in names("formats")] == names("formats")


def test_a_format_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "q5.yaml"
    file.write_text(
        "{kind: format, name: q5, summary: '', stores: [kv], bits: 5, block: 32, scale_bits: 16}"
    )
    found = load_model("llama-2-7b", [f"kv={file}"])
    assert 8 * found.kv_head_bytes / found.head_dim == 5.5
