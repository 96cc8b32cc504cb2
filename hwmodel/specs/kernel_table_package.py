"""Kernels that NVIDIA's aiconfigurator-core ships (Apache-2.0), of the extra `kernels`.

Its installed package has `systems/data/<system>/<kind>/<runtime>/<version>/*.parquet`, times in ms
of single kernels within a CUDA graph. A device says which system it is (`kernels.system`). Of its
tables are read: products; attention and latent attention with its projections; experts, with tokens
routed by a power law of 1.2, its own default; all-reduces of the runtime in a graph; low-latency
all-to-alls of DeepEP; gated delta nets. Decode attention of vLLM is over shuffled blocks of 64
tokens, of SGLang and TensorRT-LLM over tokens or blocks in order (its collectors).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.specs.kernel_table import Columns, KernelTables

PACKAGE = "aiconfigurator_core"
EXTRA = "needs aiconfigurator-core; pip install 'bankwise[kernels]'"
FORMATS = {
    "bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block_128x128", "nvfp4": "nvfp4",
    "int8_wo": "int8_weight_only", "int4_wo": "w4a16", "w4a16_mxfp4": "mxfp4",
}  # fmt: skip
"""Its names of formats, and ours; rows of others are left out."""
DISTRIBUTION = "power_law_1.2"
BLOCKS = {"vllm": 64, "trtllm": 0, "sglang": 0}
RUNTIMES = {"tensorrt-llm": "trtllm"}
"""Our names of programs where they are not its."""
_DEEPSEEK = (7168, 576)
"""Hidden size and kept numbers of the latent attention that is measured (DeepSeek-V3)."""


@cache
def systems() -> Path | None:
    """Where the installed package has its tables; None: it is not installed, or cannot be read."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations or find_spec("pyarrow") is None:
        return None
    return Path(found.submodule_search_locations[0]) / "systems" / "data"


def newest(system: str, program: str) -> str | None:
    """The newest tables of a program on a system, as `kernels.tables` names them; None: there are
    none, or the package is not installed."""
    data, runtime = systems(), RUNTIMES.get(program, program)
    if data is None:
        return None
    there = sorted((data / system).glob(f"gemm/{runtime}/[0-9]*"), key=_numbers)
    if not there:
        return None
    major, minor, *_ = there[-1].name.split(".")
    return f"{program}-{major}.{minor}"


def read_package(name: str, system: str | None) -> KernelTables:
    """The tables of a runtime and version (`vllm-0.24`) on a system. Raises DescriptionError where
    the package is not installed, or has no such tables."""
    data = systems()
    if data is None:
        raise DescriptionError(f"{name}: {EXTRA}")
    if system is None:
        raise DescriptionError(f"{name}: expected kernels.system, the card's name in {PACKAGE}")
    if not (data / system).is_dir():
        there = sorted(folder.name for folder in data.iterdir() if folder.is_dir())
        raise DescriptionError(f"{PACKAGE} has no system {system!r}; {nearest(system, there)}")
    runtime, _, version = name.partition("-") if "llm-" not in name else name.rpartition("-")
    runtime = RUNTIMES.get(runtime, runtime)
    known = {f"{folder.parent.name}-{folder.name}" for folder in (data / system).glob("*/*/[0-9]*")}
    if not any(_matches(each, f"{runtime}-{version}") for each in known):
        hint = nearest(name, sorted(each for each in known if each.split("-")[0] in BLOCKS))
        raise DescriptionError(f"{PACKAGE} has no tables {name!r} of {system}; {hint}")

    def source(kind: str, file: str, read: Callable[[Any], Columns]) -> Any:
        def rows() -> Iterator[Columns]:
            for folder in _newest(data / system / kind / runtime, version):
                if (folder / f"{file}_perf.parquet").is_file():
                    yield read(_columns(folder / f"{file}_perf.parquet"))

        return rows

    def all_states(phase: str) -> Callable[[], Iterable[Columns]]:
        def rows() -> Iterator[Columns]:
            for file in ("gdn", "mamba2"):
                reads = source("linear_attention", file, partial(_states, file=file, phase=phase))
                yield from reads()

        return rows

    block = BLOCKS.get(runtime, 0)
    return KernelTables(name, {
        "product": source("gemm", "gemm", _products),
        "decode_attention": source(
            "attention", "generation_attention", lambda table: _attention(table, "step", block)
        ),
        "prefill_attention": source(
            "attention", "context_attention", lambda table: _attention(table, "isl", block)
        ),
        "latent_decode": source(
            "mla", "mla_generation_module", lambda table: _latent(table, "step")
        ),
        "latent_prefill": source("mla", "mla_context_module", lambda table: _latent(table, "isl")),
        "experts": source("moe", "moe", _experts),
        "all_reduce": source("comm", "custom_allreduce", _all_reduces),
        "all_to_all": source("comm", "moe_a2a", _all_to_alls),
        "state_decode": all_states("generation"),
        "state_prefill": all_states("context"),
    })  # fmt: skip


def _matches(found: str, asked: str) -> bool:
    return found == asked or found.startswith(f"{asked}.")


def _newest(folder: Path, version: str) -> list[Path]:
    """The newest version of a table that begins so, in a list; none where there is none."""
    found = [each for each in folder.glob("*") if _matches(each.name, version)]
    return sorted(found, key=_numbers)[-1:]


def _numbers(folder: Path) -> list[int]:
    parts = folder.name.replace("rc", ".").split(".")
    return [int(part) if part.isdigit() else 0 for part in parts]


def _columns(file: Path) -> dict[str, list[Any]]:
    import pyarrow.parquet

    found: dict[str, list[Any]] = pyarrow.parquet.read_table(file).to_pydict()
    return found


def _chosen(table: dict[str, list[Any]], keep: list[bool]) -> dict[str, list[Any]]:
    return {
        name: [value for value, kept in zip(column, keep, strict=True) if kept]
        for name, column in table.items()
    }


def _us(table: dict[str, list[Any]]) -> list[float]:
    return [1e3 * ms for ms in table["latency"]]


def _known(table: dict[str, list[Any]], *columns: str) -> dict[str, list[Any]]:
    """Rows whose formats have a name here, with that name."""
    rows = zip(*(table[name] for name in columns), strict=True)
    table = _chosen(table, [all(each in FORMATS for each in row) for row in rows])
    return table | {name: [FORMATS[each] for each in table[name]] for name in columns}


def _products(table: dict[str, list[Any]]) -> Columns:
    table = _known(table, "gemm_dtype")
    return {
        "format": table["gemm_dtype"], "rows": table["m"], "columns": table["n"],
        "inner": table["k"], "us": _us(table),
    }  # fmt: skip


def _attention(table: dict[str, list[Any]], tokens: str, block: int) -> Columns:
    if "attn_dtype" in table:  # queries of 8 bits are not what runs beside weights of 16
        wide = zip(table["attn_dtype"], table["kv_cache_dtype"], strict=True)
        table = _chosen(table, [own in ("bfloat16", kv) for own, kv in wide])
    table = _known(table, "kv_cache_dtype")
    many = len(table["latency"])
    kv_heads = zip(table["num_key_value_heads"], table["num_heads"], strict=True)
    return {
        "kv": table["kv_cache_dtype"], "heads": table["num_heads"],
        "kv_heads": [kv or heads for kv, heads in kv_heads],
        "head_dim": table["head_dim"], "window": table.get("window_size", [0] * many),
        "block": [block] * many, "sequences": table["batch_size"],
        "tokens": table[tokens], "us": _us(table),
    }  # fmt: skip


def _latent(table: dict[str, list[Any]], tokens: str) -> Columns:
    table = _known(table, "kv_cache_dtype", "gemm_type")
    hidden, kept = _DEEPSEEK
    many = len(table["latency"])
    return {
        "format": table["gemm_type"], "kv": table["kv_cache_dtype"], "hidden": [hidden] * many,
        "kept": [kept] * many, "heads": table["num_heads"], "sequences": table["batch_size"],
        "tokens": table[tokens], "us": _us(table),
    }  # fmt: skip


def _experts(table: dict[str, list[Any]]) -> Columns:
    rows = zip(table["moe_ep_size"], table["distribution"], strict=True)
    table = _chosen(table, [ep == 1 and law == DISTRIBUTION for ep, law in rows])
    table = _known(table, "moe_dtype")
    return {
        "format": table["moe_dtype"], "hidden": table["hidden_size"], "width": table["inter_size"],
        "per_token": table["topk"], "experts": table["num_experts"],
        "cards": table["moe_tp_size"], "rows": table["num_tokens"], "us": _us(table),
    }  # fmt: skip


def _all_reduces(table: dict[str, list[Any]]) -> Columns:
    backends = table.get("backend", [""] * len(table["latency"]))
    table = _chosen(table, [not str(each).endswith("eager") for each in backends])
    bytes_each = [2 * many for many in table["message_size"]]
    return {"cards": table["num_gpus"], "bytes": bytes_each, "us": _us(table)}


def _all_to_alls(table: dict[str, list[Any]]) -> Columns:
    """Dispatch and combine together; its latencies are in microseconds."""
    table = _chosen(table, [each == "deepep_ll" for each in table["comm_backend"]])
    names = ("ep_size", "hidden_size", "topk", "num_experts", "num_tokens")
    both: dict[tuple[Any, ...], dict[str, float]] = {}
    rows = zip(*(table[name] for name in names), strict=True)
    for key, phase, us in zip(rows, table["phase"], table["latency"], strict=True):
        both.setdefault(key, {})[phase] = us
    full = [(*key, sum(each.values())) for key, each in both.items() if len(each) == 2]
    columns = list(zip(*full, strict=True)) or [()] * 6
    return dict(
        zip(("cards", "hidden", "per_token", "experts", "rows", "us"), columns, strict=True)
    )


def _states(table: dict[str, list[Any]], file: str, phase: str) -> Columns:
    """The convolution and the recurrence of a layer together."""
    table = _chosen(table, [each == phase for each in table["phase"]])
    if file == "gdn":
        names = ("num_v_heads", "head_v_dim", "num_k_heads", "head_k_dim")
    else:
        names = ("nheads", "head_dim", "n_groups", "d_state")
    state = {"gdn": "gated_delta", "mamba2": "mamba2"}[file]
    parts: dict[tuple[Any, ...], dict[str, float]] = {}
    rows = zip(*(table[name] for name in (*names, "batch_size", "seq_len")), strict=True)
    for key, kernel, ms in zip(rows, table["kernel_source"], table["latency"], strict=True):
        kernels = parts.setdefault(key, {})
        of = "conv" if "conv" in kernel else "recurrence"
        kernels[of] = min(kernels.get(of, 1e9), 1e3 * ms)
    full = [(state, *key, sum(each.values())) for key, each in parts.items() if len(each) == 2]
    columns = list(zip(*full, strict=True)) or [()] * 8
    return dict(zip(
        ("state", "heads", "head_dim", "key_heads", "width", "sequences", "tokens", "us"),
        columns, strict=True,
    ))  # fmt: skip
