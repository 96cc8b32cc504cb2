"""Does a C program drive a memory as Python does, with neither Python nor Numba in it?"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import bankwise

HOST = Path(__file__).resolve().parents[3] / "examples" / "host.c"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc, clang)")
LPDDR5 = "lpddr5-6400-x16"
SPLIT = """
#include "bankwise.h"
int main(int argc, char **argv)
{
    enum { N = 3000 };
    static int64_t tick[N], address[N], size[N], tag[N];
    static uint8_t write[N];
    bankwise *m = bankwise_open(argv[argc - 1]);
    if (!m) return 1;
    uint64_t x = 1;
    for (int64_t i = 0; i < N; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        tick[i] = i / 3, tag[i] = i, size[i] = 1 + (int64_t)(x >> 33) % 700;
        address[i] = (int64_t)(x >> 40) % 5000, write[i] = (x >> 62) == 0;
    }
    if (bankwise_submit(m, N / 2, tick, address, size, write, tag)) return 2;
    if (bankwise_submit(m, 1, tick, address, size, write, tag) != -1) return 3;
    for (int64_t part = 0, n; part < 2; part++) {
        n = part ? bankwise_advance(m, 0, BANKWISE_TO_END) : bankwise_advance(m, 450, 0);
        for (int64_t i = 0; i < n; i++)
            printf("%lld %lld\\n", (long long)m->done_tick[i], (long long)m->done_tag[i]);
        const int64_t h = N / 2;
        if (!part && bankwise_submit(m, h, tick + h, address + h, size + h, write + h, tag + h))
            return 4;
    }
    printf("%lld %lld\\n", (long long)m->port.now, (long long)bankwise_count(m, BANKWISE_bytes));
    bankwise_close(m);
    return 0;
}
"""


def compiled(folder: Path, source: Path, *options: str) -> Path:
    """The program, without a warning."""
    strict = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-I", str(folder)]
    program = folder / source.stem
    command = [str(COMPILER), *strict, str(source), *options, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


def said(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def randoms(count: int) -> np.ndarray:
    """The states of the generator that both C programs use."""
    states, state = [], 1
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        states.append(state)
    return np.array(states, np.uint64)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A folder with the header; the object file; the image of a memory."""
    folder = tmp_path_factory.mktemp("c")
    _, code, image = bankwise.write_c_host(LPDDR5, folder)
    return folder, code, image


@needs_compiler
def test_the_example_says_what_the_same_loop_says_in_python(files: tuple[Path, ...]) -> None:
    folder, code, image = files
    assert len(HOST.read_text(encoding="utf-8").splitlines()) <= 60
    found = said(compiled(folder, HOST, str(code)), image, 16)
    memory = bankwise.open_device(LPDDR5, outstanding=16)
    lines = memory.capacity_bytes // 64
    memory.submit(0, (randoms(20_000) >> 33).astype(np.int64) % lines * 64, 64)
    done = memory.drain()
    bytes_a_tick = memory.statistics()["bytes"] / done.tick[-1]
    assert f"{bytes_a_tick:.3f} bytes a tick, {memory.statistics()['row_hits']} hits" in found


@needs_compiler
def test_a_shared_library_gives_the_completions_of_python_and_wants_no_symbol_of_it(
    tmp_path: Path,
) -> None:
    """The linker refuses symbols that are open but for libc's."""
    _, code, image = bankwise.write_c_host("mlu370-x4", tmp_path)
    library = tmp_path / "libbankwise.so"
    said(COMPILER, "-shared", "-Wl,-z,defs", "-o", library, code)
    (tmp_path / "split.c").write_text(SPLIT, encoding="utf-8")
    program = compiled(tmp_path, tmp_path / "split.c", str(library), f"-Wl,-rpath,{tmp_path}")
    *pairs, last = ([*map(int, line.split())] for line in said(program, image).splitlines())

    random = randoms(3_000)
    size = 1 + (random >> 33).astype(np.int64) % 700
    address, write = (random >> 40).astype(np.int64) % 5_000, random >> 62 == 0
    memory = bankwise.open_device("mlu370-x4")
    memory.submit(np.arange(3_000) // 3, address, size, write)
    done = memory.drain()
    assert sorted(pairs) == sorted(map(list, zip(*reversed(done), strict=True)))
    assert last == [memory.now, memory.statistics()["bytes"]]


@needs_compiler
def test_an_image_of_another_kernel_is_refused(files: tuple[Path, ...], tmp_path: Path) -> None:
    folder, code, image = files
    content = bytearray(image.read_bytes())
    content[0] ^= 1
    other = tmp_path / "other.image"
    other.write_bytes(content)
    program = compiled(folder, HOST, str(code))
    done = subprocess.run([program, other], capture_output=True, text=True)
    assert done.returncode == 2 and "usage" in done.stderr
