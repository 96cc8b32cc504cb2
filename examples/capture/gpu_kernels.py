"""Kernels of an NVIDIA GPU, measured one by one: a table that `kernels.tables` takes.

    python3 examples/capture/gpu_kernels.py FOLDER [SECTION ...]

Sections are products, attention, reads, footprints, copies and power; all by default. Needs
PyTorch; attention needs FlashInfer too, and a compiler for it. Writes a CSV file a section:

products, attention   times of single kernels in the form of docs/memory-time.md. Products read
                      their weights in turn from four times the L2 and more, attention KV that no L2
                      holds
reads                 the KV of decode attention, read and nothing else
footprints            extents anywhere, by their size and by how many bytes they lie in
copies                between host and card, by the size and the number of their pieces
power                 what the driver says that the card draws while it moves bytes

Times are of replayed graphs, medians of rounds.
"""

from __future__ import annotations

import csv
import ctypes
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton
from triton import language as tl

ROUNDS = 7
AT_ONCE = 512
"""Words that a program of `read_extents` has under way."""
GiB = 1 << 30
PRODUCTS = {
    "llama-3.1-8b": [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)],
    "llama-3.1-70b": [(10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)],
    "qwen3-32b": [(10240, 5120), (5120, 8192), (51200, 5120), (5120, 25600)],
}
"""Model -> (columns, inner): q, k and v as one; out; gate and up as one; down; the head."""
ROWS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096)
SHAPES = [(32, 8, 64), (32, 8, 32), (8, 1, 128), (64, 8, 16)]
"""(query heads, KV heads, sequences) of decode attention."""
TOKENS = (2048, 4096, 8192)
PAGES = (1, 16, 64)
ORDERS = ("shuffled", "in order", "staggered")
"""Of the pages: anywhere; each sequence's in turn; the same with five pages between sequences."""
SIZES = (4 << 10, 8 << 10, 16 << 10, 24 << 10, 28 << 10, 32 << 10, 64 << 10, 256 << 10, 2 << 20)
COUNTS = (1, 64, 512, 8192, 100_000)
Row = dict[str, Any]


def graph_us(call: Callable[[int], Any], times: int) -> float:
    """Microseconds of one of `times` calls in a graph: the median of rounds."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(2):
            call(i)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(times):
            call(i)
    return events_us(graph.replay) / times


def events_us(launch: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Microseconds between the events around a launch: the median of rounds, after one."""
    found = []
    for _ in range(rounds + 1):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        launch()
        ended.record()
        ended.synchronize()
        found.append(begun.elapsed_time(ended) * 1e3)
    return median(found[1:])


def products() -> Iterator[Row]:
    """Weights are read from memory: of copies in turn that no L2 holds together."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    for model, shapes in PRODUCTS.items():
        for columns, inner in shapes:
            copies = max(-(-4 * cache // (columns * inner)), 1)
            plain = [
                torch.randn(columns, inner, device="cuda", dtype=torch.bfloat16) * 0.02
                for _ in range(max(copies // 2, 1))
            ]
            narrow = [plain[i % len(plain)].to(torch.float8_e4m3fn) for i in range(copies)]
            one = torch.ones((), device="cuda")
            for rows in ROWS:
                x = torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16)
                slim = x.to(torch.float8_e4m3fn)

                def bf16(i: int, x: Any = x, plain: Any = plain) -> Any:
                    return torch.nn.functional.linear(x, plain[i % len(plain)])

                def fp8(i: int, slim: Any = slim, narrow: Any = narrow, one: Any = one) -> Any:
                    weight = narrow[i % len(narrow)].t()
                    return torch._scaled_mm(slim, weight, one, one, out_dtype=torch.bfloat16)

                times = {"bf16": max(len(plain), 4), "fp8": max(copies, 4)}
                for name, call in (("bf16", bf16), ("fp8", fp8)):
                    try:
                        us = graph_us(call, times[name])
                    except RuntimeError as error:  # a shape that no kernel takes
                        print(f"{model} {name} {rows}x{columns}x{inner}: {str(error)[:90]}")
                        torch.cuda.synchronize()
                        continue
                    yield {
                        "kind": "product", "us": f"{us:.3f}", "format": name, "rows": rows,
                        "columns": columns, "inner": inner,
                    }  # fmt: skip
            del plain, narrow


@triton.jit
def read_extents(data, starts, many, out, WORDS: tl.constexpr, EXTENTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Adds up extents of `WORDS` words, at such multiples of them, `EXTENTS` at once in each
    program."""
    total = tl.zeros((EXTENTS, WORDS), tl.int64)
    for first in range(tl.program_id(0) * EXTENTS, many, tl.num_programs(0) * EXTENTS):
        at = tl.load(starts + first + tl.arange(0, EXTENTS)).to(tl.int64) * WORDS
        total += tl.load(data + at[:, None] + tl.arange(0, WORDS)[None, :])
    tl.store(out + tl.program_id(0), tl.sum(tl.sum(total, 1), 0))


def launcher(data: Any, at: Any, words: int) -> Callable[[], Any]:
    """A read of the extents of `data` that begin at these multiples of their words."""
    programs = 16 * torch.cuda.get_device_properties(0).multi_processor_count
    out = torch.zeros(programs, dtype=torch.int64, device="cuda")
    settings = {"WORDS": words, "EXTENTS": AT_ONCE // words}
    return lambda: read_extents[(programs,)](data, at, len(at), out, **settings)


def read_us(data: Any, at: Any, words: int) -> float:
    """Microseconds of such a read."""
    launch = launcher(data, at, words)
    return graph_us(lambda _: launch(), 3)


def reads() -> Iterator[Row]:
    """K and V of all sequences at once, a piece of each in turn, in the places that `attention`
    reads; a piece is a page's, or 4 KiB of it."""
    most = max(TOKENS)
    for _, kv_heads, sequences in SHAPES:
        token = kv_heads * 128 * 2 // 8
        half = sequences * (most + 5 * max(PAGES)) * token
        data = torch.randint(1 << 60, (2 * half,), device="cuda")
        for page in PAGES:
            words = min(page * token, AT_ONCE)
            inside = torch.arange(0, page * token, words)
            for tokens in TOKENS[1:]:
                for order in ORDERS:
                    pages = places(sequences, tokens // page, most // page, order, page)
                    at = (pages.view(sequences, -1, 1, 1) * page * token) + torch.tensor(
                        [[0], [half]]
                    )
                    at = at.unsqueeze(-1) + inside  # sequence, page, -, K or V, piece
                    at = (at.flatten(1).t().reshape(-1) // words).to(torch.int32).cuda()
                    us = read_us(data, at, words)
                    yield {
                        "how": "reads", "kv_heads": kv_heads, "sequences": sequences,
                        "tokens": tokens, "block": page, "order": order, "us": f"{us:.3f}",
                        "bytes": len(at) * words * 8,
                    }  # fmt: skip
        del data


def footprints() -> Iterator[Row]:
    """Extents anywhere in the first bytes of the memory, by their size and by how many bytes."""
    free = torch.cuda.mem_get_info()[0]
    most = 1 << ((free - GiB).bit_length() - 1)
    data = torch.empty(most // 8, dtype=torch.int64, device="cuda")
    window = GiB // 4
    while window <= most:
        for size in (32, 64, 128, 256, 512, 1024, 2048, 4096):
            words = size // 8
            many = GiB // size
            at = torch.randint(window // size, (many,), dtype=torch.int32, device="cuda")
            us = read_us(data, at, words)
            yield {
                "how": "footprints", "window": window, "size": size, "us": f"{us:.3f}",
                "bytes": many * size,
            }  # fmt: skip
        window *= 2


def places(sequences: int, pages: int, most: int, order: str, seed: int) -> Any:
    """Ids of the pages of each sequence in turn, where each has room for `most`."""
    if order == "shuffled":
        return torch.randperm(sequences * most, generator=seeded(seed))[: sequences * pages]
    apart = most + (5 if order == "staggered" else 0)
    first = torch.arange(sequences).repeat_interleave(pages) * apart
    return first + torch.arange(pages).repeat(sequences)


def attention() -> Iterator[Row]:
    """Paged decode attention of FlashInfer, K and V in a cache each; `order` beside the columns of
    a table says where a sequence's pages are."""
    import flashinfer

    for tensor_cores in (False, True):
        workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_tensor_cores=tensor_cores
        )
        for row in paged_attention(wrapper):
            yield row | {"tensor_cores": tensor_cores}


def paged_attention(wrapper: Any) -> Iterator[Row]:
    """By one of its kernels."""
    for heads, kv_heads, sequences in SHAPES:
        most, dim = max(TOKENS), 128
        room = sequences * (most + 5 * max(PAGES)) * kv_heads * dim
        k = torch.randn(room, dtype=torch.bfloat16, device="cuda")
        v = torch.randn(room, dtype=torch.bfloat16, device="cuda")
        q = torch.randn(sequences, heads, dim, dtype=torch.bfloat16, device="cuda")
        for page in PAGES:
            each = page * kv_heads * dim
            caches = tuple(
                half[: room // each * each].view(-1, page, kv_heads, dim) for half in (k, v)
            )
            for tokens in TOKENS:
                pages = tokens // page
                for order in ORDERS:
                    ids = places(sequences, pages, most // page, order, page)
                    wrapper.plan(
                        torch.arange(sequences + 1, dtype=torch.int32, device="cuda") * pages,
                        ids.to(torch.int32).cuda(),
                        torch.full((sequences,), page, dtype=torch.int32, device="cuda"),
                        heads, kv_heads, dim, page,
                        q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
                    )  # fmt: skip
                    us = graph_us(lambda _: wrapper.run(q, caches), 5)  # noqa: B023
                    yield {
                        "kind": "decode_attention", "us": f"{us:.3f}", "kv": "bf16",
                        "heads": heads, "kv_heads": kv_heads, "head_dim": dim, "window": 0,
                        "block": page, "sequences": sequences, "tokens": tokens, "order": order,
                    }  # fmt: skip
        del k, v


def seeded(seed: int) -> Any:
    return torch.Generator().manual_seed(seed)


class _Place(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Attributes(ctypes.Structure):
    """cudaMemcpyAttributes."""

    _fields_ = (
        ("order", ctypes.c_int), ("source", _Place), ("target", _Place), ("flags", ctypes.c_uint),
    )  # fmt: skip


def copies() -> Iterator[Row]:
    """Host to card and back: pieces of one size at shuffled places, in one batched call; 2 GiB at
    once; both ways together. `post_us` is what the call takes on the host."""
    import numpy as np

    torch.cuda.init()
    mapped = Path("/proc/self/maps").read_text().splitlines()
    name = next(line.split()[-1] for line in mapped if "libcudart" in line)
    batched = ctypes.CDLL(name).cudaMemcpyBatchAsync
    host = torch.empty(4 * GiB, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(4 * GiB, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.Stream()
    one = (_Attributes * 1)(_Attributes(1, _Place(0, 0), _Place(0, 0), 0))
    zero = (ctypes.c_size_t * 1)(0)
    randoms = np.random.default_rng(0)
    ways = {"to card": (host, card), "to host": (card, host)}
    for way, (source, target) in ways.items():
        for size in SIZES:
            for count in COUNTS:
                if count * size > 4 * GiB:
                    continue
                slots = 4 * GiB // size
                at = [
                    tensor.data_ptr() + randoms.permutation(slots)[:count].astype(np.uint64) * size
                    for tensor in (target, source)
                ]
                sizes = np.full(count, size, np.uint64)
                post, whole = [], []
                for _ in range(4):
                    torch.cuda.synchronize()
                    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    begun.record(stream)
                    clock = time.perf_counter()
                    failed = batched(
                        *(each.ctypes.data_as(ctypes.c_void_p) for each in (*at, sizes)),
                        ctypes.c_size_t(count), one, zero, ctypes.c_size_t(1),
                        ctypes.c_void_p(stream.cuda_stream),
                    )  # fmt: skip
                    post.append((time.perf_counter() - clock) * 1e6)
                    ended.record(stream)
                    ended.synchronize()
                    whole.append(begun.elapsed_time(ended) * 1e3)
                    if failed:
                        break
                if failed:
                    print(f"cudaMemcpyBatchAsync: error {failed}")
                    return
                yield {
                    "how": "batched", "way": way, "size": size, "count": count,
                    "us": f"{median(whole[1:]):.1f}", "post_us": f"{median(post[1:]):.1f}",
                }  # fmt: skip
    other = torch.cuda.Stream()
    half = 2 * GiB

    def copy_up() -> None:
        card[:half].copy_(host[:half], non_blocking=True)

    def both() -> None:
        other.wait_stream(torch.cuda.current_stream())
        copy_up()
        with torch.cuda.stream(other):
            host[half:].copy_(card[half:], non_blocking=True)
        torch.cuda.current_stream().wait_stream(other)

    def copy_down() -> None:
        host[half:].copy_(card[half:], non_blocking=True)

    for way, launch in (("to card", copy_up), ("to host", copy_down), ("both ways", both)):
        us = events_us(launch, 3)
        yield {"how": "one", "way": way, "size": half, "count": 1, "us": f"{us:.1f}", "post_us": ""}


def power() -> Iterator[Row]:
    """Watts of the card, idle and while it reads, writes or copies 8 GiB over and over, or reads
    what its L2 holds."""
    words = 8 * GiB // 8
    data = torch.randint(1 << 60, (words,), device="cuda")
    other = torch.empty_like(data)
    near = data[: torch.cuda.get_device_properties(0).L2_cache_size // 8 // 8]
    at = torch.randint(data.numel() // 32, (8 * GiB // 256,), dtype=torch.int32, device="cuda")
    launches: dict[str, tuple[int, Callable[[], Any]]] = {
        "idle": (0, lambda: time.sleep(0.05)),
        "reads in order": (8 * GiB, lambda: data.sum()),
        "scattered reads of 256 B": (8 * GiB, launcher(data, at, 32)),
        "writes": (8 * GiB, lambda: other.fill_(7)),
        "copy": (16 * GiB, lambda: other.copy_(data)),
        "reads from the L2": (near.numel() * 8 * 200, lambda: [near.sum() for _ in range(200)]),
    }  # fmt: skip
    command = ["nvidia-smi", "--id=0", "--query-gpu=power.draw.instant,clocks.sm,clocks.mem"]
    for name, (moved, launch) in launches.items():
        watch = subprocess.Popen(
            [*command, "--format=csv,noheader,nounits", "--loop-ms=100"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        begun, times = time.perf_counter(), 0
        while time.perf_counter() - begun < 4:
            launch()
            torch.cuda.synchronize()
            times += 1
        passed = time.perf_counter() - begun
        watch.terminate()
        said = [line.split(",") for line in watch.communicate()[0].splitlines()]
        drawn = [float(each[0]) for each in said if len(each) == 3][len(said) // 2 :]
        yield {
            "how": "power", "way": name, "size": moved, "count": times,
            "us": f"{passed / times * 1e6:.1f}", "watts": f"{median(drawn):.1f}",
            "clocks": " ".join(each.strip() for each in said[-1][1:]),
        }  # fmt: skip


def main(folder: Path, sections: list[str]) -> None:
    """Writes a file a section, a line as soon as it is measured; a section that fails leaves what
    it has, and the exit code is 1."""
    folder.mkdir(parents=True, exist_ok=True)
    card = torch.cuda.get_device_properties(0)
    said = f"# {card.name}, {card.multi_processor_count} multiprocessors"
    known = {
        each.__name__: each for each in (products, attention, reads, footprints, copies, power)
    }
    if unknown := [name for name in sections if name not in known]:
        sys.exit(f"{unknown[0]}: no such section; {', '.join(known)}")
    failed = False
    for name in sections or list(known):
        begun = time.perf_counter()
        with open(folder / f"{name}.csv", "w", newline="") as file:
            file.write(f"{said}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}\n")
            table: csv.DictWriter[str] | None = None
            try:
                for row in known[name]():
                    if table is None:
                        table = csv.DictWriter(file, list(row), restval="")
                        table.writeheader()
                    table.writerow(row)
                    file.flush()
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error)[:2000]}")
                failed = True
        print(f"{name}: {time.perf_counter() - begun:.1f} s", flush=True)
        torch.cuda.empty_cache()
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
