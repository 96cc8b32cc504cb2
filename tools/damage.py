"""Files of every kind that bankwise reads, damaged at random from a seed: is each answered with
lines, within 5 CPU seconds and 1 GiB, and never with a traceback?

    python -m tools.damage --count 200 --seed 1

Prints each case that is not, with its number, then how many were tried. A case is told by its seed
and its number alone.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import LIBRARY
from hwmodel.measure.trace import read_trace
from hwmodel.oracle.audit import audit_file
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.huggingface import import_config
from policies.engines.schedule_cases import read_cases
from policies.engines.schedule_check import check
from policies.predictors.confusion import read_classes
from policies.requests.arrivals import read_envelope
from policies.requests.request_log import read_request_log
from policies.requests.requests import load_trace
from policies.serving.server_log import BlockLog
from sweeps.cli.inspection import inspect
from sweeps.report.contents import read_report
from sweeps.report.page import page
from tests.hwmodel.specs.test_huggingface import CONFIGS
from tests.sweeps.made import made

SECONDS, BYTES = 10.0, 1 << 30
"""No case takes longer, or more memory than the process had before it."""
NESTED = "{value: " * 30 + "1" + ", source: x}" * 30
ODD = (
    "99999999999999999999999999", "1" * 5000, ".nan", "NaN", "Infinity", "-.inf", "-1", "true",
    "null", "[]", "{}", "''", '""', "[[1]]", '"\\x00"', "2020-01-01", "!!binary aGk=", "1e-320",
    "!!python/object:os.system {}", "*x", "&x [*x]", "&x {a: *x}", "0x10", "1e5", "010", "12:30",
    "yes", "tRCD / 0", "1e400", "1e308", "0ns", "(" * 300 + "1" + ")" * 300,
    "+".join(["1"] * 3000), "1" * 400 + "ns", "{a: 1, a: 2}", NESTED, "[column:99999999999, row]",
    "{? [a] : b}", "{1: 2, null: 3}", "x" * 5000, "/dev/null", "../..",
    "{value: 3, source: [{a: b}]}", "0", "-0.0", "9223372036854775807", "9223372036854775808",
    "[" * 3000, '{"a":' * 3000, "\u0000", "\ud83d", "1.5", "<script>alert(1)</script>", "[1, 1]",
    "1_000", "\u0663",
)  # fmt: skip
"""What stands instead of a value."""


class Sample(NamedTuple):
    """A file that is whole, and what reads it; `name` gives its ending."""

    name: str
    content: bytes
    read: Callable[[Path], Any]


def _inspected(path: Path) -> None:
    assert inspect([str(path)], [], assumed=True) in (0, 1)


@cache
def _device() -> Device:
    return load_device("lpddr5-6400-x16")


def _descriptions() -> Iterator[Sample]:
    for folder in sorted(LIBRARY.iterdir()):
        for file in sorted(folder.glob("*.yaml"))[:: 4 if folder.name == "sweeps" else 7]:
            yield Sample("damaged.yaml", file.read_bytes(), _inspected)


def _traces() -> Iterator[Sample]:
    def read(path: Path) -> None:
        for _ in read_trace(path, _device(), single_channel=True):
            pass

    lines = "".join(f"{'RW'[i % 3 == 0]} {i * 64:#x}\n" for i in range(200)).encode()
    for text in (
        lines, b"0x1f40 READ 10\n0x40 WRITE 12\n" * 20, b"r,5000,64,1000\nw,128,32,2000\n" * 20,
    ):  # fmt: skip
        yield Sample("trace.txt", text, read)
    yield Sample("trace.gz", gzip.compress(lines, mtime=0), read)
    buffer = io.BytesIO()
    address = np.arange(200, dtype=np.uint64) * 64
    columns = {"write": address % 128 == 0, "size": np.full(200, 32), "picosecond": address}
    np.savez_compressed(buffer, address=address, **columns)
    yield Sample("trace.npz", buffer.getvalue(), read)
    log = "cycle,command,rank,bankgroup,bank,row,column\n"
    log += "0,ACT1,0,0,0,5,\n2,ACT2,0,0,0,5,\n40,RD,0,0,0,5,3\n"
    yield Sample("log.csv", log.encode(), lambda path: audit_file(_device().memory, path))


TEXTS = {
    "ours": "arrival_s,prompt_tokens,output_tokens\n"
    + "".join(f"{i / 2},{i + 5},{i + 1}\n" for i in range(50)),
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n",
    "burst": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,10,0,10,API log\n",
    "mooncake": '{"timestamp": 0, "input_length": 900, "output_length": 5, "hash_ids": [1, 2]}\n'
    '{"timestamp": 27, "input_length": 1200, "output_length": 9, "hash_ids": [1, 3, 4]}\n',
    "statistics": 3 * ('{"input_toks": 9, "output_toks": 3, "queued_ts": 1.0, '
                       '"first_token_ts": 1.5, "last_token_ts": 2.0}\n'),
    "bench": json.dumps({
        "request_rate": "inf", "input_lens": [300, 20, 100], "output_lens": [3, 0, 2],
        "ttfts": [0.5, 0.0, 0.25], "itls": [[0.1, 0.1], [], [0.2]], "start_times": [0.0, 1.0, 2.0],
    }),
}  # fmt: skip
"""Request traces and logs."""


def _requests() -> Iterator[Sample]:
    for text in TEXTS.values():
        yield Sample("trace.csv", text.encode(), load_trace)
    packed = gzip.compress(TEXTS["ours"].encode(), mtime=0)
    yield Sample("trace.csv.gz", packed, load_trace)
    for name in ("statistics", "bench"):
        yield Sample("log.json", TEXTS[name].encode(), read_request_log)
    yield Sample("rates.csv", b"minute,rate\n0,3.5\n1,4\n7,0.5\n", read_envelope)
    classes = b"output_tokens,class\n5,0\n90,1\n700,2\n"
    yield Sample("classes.csv", classes, lambda path: read_classes(path, "class"))


def _logs() -> Iterator[Sample]:
    def blocks(path: Path) -> None:
        for _ in BlockLog(path):
            pass

    def scheduled(path: Path) -> None:
        for case in read_cases(path)[:2]:
            check(case)

    header = {"format": "bankwise-block-tables", "version": 1, "block_size": 16, "blocks": 900,
              "model": "llama-2-7b", "kv_layout": "layer_kv_token"}  # fmt: skip
    rows = [{"time_s": step * 0.1, "request": f"r{r}", "tokens": 40, "blocks": [r, r + 9, r + 99]}
            for step in range(4) for r in range(3)]  # fmt: skip
    text = "\n".join(map(json.dumps, [header, *rows])).encode()
    yield Sample("blocks.jsonl", text, blocks)
    yield Sample("blocks.jsonl.gz", gzip.compress(text, mtime=0), blocks)
    file = Path(__file__).parents[1] / "tests/reference/vllm_schedules_drawn.json.gz"
    known = json.loads(gzip.decompress(file.read_bytes()))
    cases = (known["cases"] if isinstance(known, dict) else known)[:2]
    yield Sample("schedules.json", json.dumps(cases).encode(), scheduled)


def _configs() -> Iterator[Sample]:
    def read(path: Path) -> None:
        import_config(path, "mine")

    for config in CONFIGS.values():
        yield Sample("config.json", json.dumps(config, indent=1).encode(), read)


def _runs(folder: Path) -> Iterator[Sample]:
    def read(path: Path) -> None:
        for name, content in whole.items():
            if name != path.name:
                (path.parent / name).write_bytes(content)
        page([read_report(path.parent).section])

    files = made(folder / "whole", skip=20).iterdir()
    whole = {file.name: file.read_bytes() for file in files if file.suffix != ".csv"}
    for name, content in whole.items():
        yield Sample(name, content, read)


@cache
def samples(folder: Path) -> tuple[tuple[Sample, ...], ...]:
    """Whole files by family; a family is as likely as another."""
    made = (_descriptions(), _traces(), _requests(), _logs(), _configs(), _runs(folder))
    return tuple(tuple(each) for each in made)


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """The file with one to three damages of any kind."""
    packed = raw[:2] == b"\x1f\x8b" and chance.random() < 0.5
    if packed:
        raw = gzip.decompress(raw)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        raw = _once(raw, chance)
    return gzip.compress(raw, mtime=0) if packed else raw


def _once(raw: bytes, chance: random.Random) -> bytes:
    way = chance.choice(("cut", "byte", "bytes", "tab", "indent", "twice", "gone", *["value"] * 7))
    place = chance.randrange(len(raw) + 1)
    if way == "cut":
        return raw[:place]
    if way == "byte":
        return raw[:place] + bytes([chance.randrange(256)]) + raw[place + 1 :]
    if way == "bytes":
        length = chance.randrange(1, 30)
        return raw[:place] + chance.randbytes(chance.randrange(30)) + raw[place + length :]
    if way == "value":
        values = list(re.finditer(rb"(?<=[:,\[\n ])[^\s{\[,}\]:]+", raw[:20_000]))
        if not values:
            return raw
        hit = chance.choice(values)
        odd = chance.choice(ODD).encode("utf-8", "surrogatepass")
        return raw[: hit.start()] + odd + raw[hit.end() :]
    lines = raw.split(b"\n")
    at = chance.randrange(len(lines))
    if way == "gone":
        del lines[at]
    elif way == "twice":
        lines.insert(at, chance.choice(lines))
    else:
        lines[at] = (b"\t" if way == "tab" else b"   ") + lines[at]
    return b"\n".join(lines)


class TooLong(BaseException):
    """A case took more than its time."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """At most SECONDS of CPU, and BYTES more than the process has."""

    def late(*_: Any) -> None:
        raise TooLong

    used = int(re.findall(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[0]) << 10
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    before = signal.signal(signal.SIGPROF, late)
    resource.setrlimit(resource.RLIMIT_DATA, (used + BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def fault_of(folder: Path, seed: int, number: int) -> str | None:
    """What is wrong with how a case is answered, None where nothing is."""
    chance = random.Random(f"{seed}-{number}")
    sample = chance.choice(chance.choice(samples(folder)))
    place = folder / "case"
    place.mkdir(exist_ok=True)
    file = place / sample.name
    file.write_bytes(damaged(sample.content, chance))
    try:
        with (
            bounded(), contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):  # fmt: skip
            sample.read(file)
    except DescriptionError as error:
        long = [line for line in str(error).splitlines() if "\n" in line or not line.strip()]
        return f"{sample.name}: an empty line" if long else None
    except TooLong as error:
        return f"{sample.name}: longer than {SECONDS:g} s\n" + "".join(
            traceback.format_tb(error.__traceback__)[-3:]
        )
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{sample.name}: " + "".join(traceback.format_exception(error)[-3:])
    finally:
        for each in place.iterdir():
            each.unlink()
    return None


def faults(folder: Path, seed: int, count: int, first: int = 0) -> list[str]:
    """Of cases `first` on: what is wrong, each with its number."""
    tried = ((number, fault_of(folder, seed, number)) for number in range(first, first + count))
    return [
        f"case {number} of seed {seed}: {fault}" for number, fault in tried if fault is not None
    ]


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 where a case is answered wrongly."""
    parser = argparse.ArgumentParser(prog="python -m tools.damage")
    for name, default in {"count": 200, "seed": 1, "first": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(arguments)
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = faults(Path(folder), given.seed, given.count, given.first)
    for each in found:
        print(each)
    print(f"{given.count} cases, {len(found)} faults, {time.process_time() - begin:.0f} CPU s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
