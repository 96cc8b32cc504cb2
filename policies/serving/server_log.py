"""Logs of block tables: which physical blocks held which tokens, step by step, in a server.

JSON lines (docs/calibrate.md), plain or gzip: a header, then an object for each request of each
decode step. Lines of one step follow one another and have its `time_s`. Read a step at a time, so
that memory does not grow with the log.

    python -m policies.serving.server_log [--sequences 4] [--context 700] [--steps 6] > LOG

writes one from `PagedAllocator` after it has been in use, as the example of the documentation.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError, Document, Strict, nearest
from hwmodel.description.packed import lines_of, open_text
from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS, KvOrder
from hwmodel.specs.number_format import KvFormat
from hwmodel.specs.transformer import load_model
from policies.allocators.allocator import Limits
from policies.allocators.kv_layout import Units, kv_layout
from policies.allocators.paged import PagedAllocator, PagedOptions
from policies.memory.batch import BatchSpec, place
from policies.requests.requests import MAX_TOKENS, IntArray

_KEYS = ("time_s", "request", "blocks", "tokens")
_MOST_BLOCKS = 1 << 31
_EVERY = 16
"""Tokens that each sequence of the example grows by from one logged step to the next."""
_STEP_S = 0.06
"""What a step of the example is said to take."""
_SEED = 1


class BlockLogHeader(Strict):
    """The first line of a log: what its block numbers mean."""

    format: Literal["bankwise-block-tables"]
    version: Literal[1] = 1
    block_size: Annotated[int, Field(ge=1, le=65536)]
    """Tokens in a block."""
    blocks: Annotated[int, Field(ge=1, le=_MOST_BLOCKS)] | None = None
    """Blocks of the whole KV cache; None: as many as the device has room for."""
    model: str | None = None
    """A shipped model, or the path of one."""
    kv: KvFormat | None = None
    """Format of the KV; None: the model's."""
    kv_layout: KvOrder = LAYOUTS["layer_kv_token"]
    tensor_parallel: Annotated[int, Field(ge=1)] = 1
    """Cards that the server spanned; block numbers are those of each of them."""
    note: str = ""


class LoggedStep(NamedTuple):
    """A decode step. blocks: of each request, int64 (n,), in token order; tokens: int64
    (requests,), stored when the step is over, the one that it writes among them. line: of its
    first request."""

    time_s: float
    line: int
    requests: list[str]
    blocks: list[IntArray]
    tokens: IntArray

    def units(self, block_size: int) -> list[Units]:
        """Where each request's tokens lie."""
        return [
            _units(blocks * block_size, tokens, block_size)
            for blocks, tokens in zip(self.blocks, self.tokens.tolist(), strict=True)
        ]

    def contiguous(self, block_size: int, first: int = 0) -> list[Units]:
        """The same requests side by side from slot `first` on, each in one run as long as its
        blocks."""
        sizes = np.array([len(blocks) * block_size for blocks in self.blocks], np.int64)
        starts = first + np.cumsum(sizes) - sizes
        columns = zip(starts, self.tokens, sizes, strict=True)
        return [Units(*(np.array([value], np.int64) for value in row)) for row in columns]


def _units(start: IntArray, tokens: int, block_size: int) -> Units:
    stored = np.clip(tokens - np.arange(len(start)) * block_size, 0, block_size)
    return Units(start, stored, np.full(len(start), block_size, np.int64))


def is_block_log(path: Path) -> bool:
    """Whether a file is a log of block tables and no trace of addresses: JSON lines, by its name or
    its first letter."""
    if ".jsonl" in path.suffixes:
        return True
    try:
        with open_text(path) as file:
            return path.suffix != ".npz" and file.read(1) == "{"
    except (OSError, EOFError, ValueError, zlib.error):  # who reads it says what is wrong
        return False


class BlockLog:
    """A log on disk. `header` is read at once; iterating reads the steps, one at a time.

    Raises DescriptionError with file and line for whatever is wrong with the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = _header(path)

    def __iter__(self) -> Iterator[LoggedStep]:
        step: list[tuple[int, dict[str, Any]]] = []
        for number, item in _objects(self.path):
            if number == 1:
                continue
            self._check(number, item)
            if step and item["time_s"] < step[0][1]["time_s"]:
                raise self._error("time_s is less than in the line before", number)
            if step and item["time_s"] > step[0][1]["time_s"]:
                yield self._step(step)
                step = []
            step.append((number, item))
        if step:
            yield self._step(step)

    def _step(self, lines: list[tuple[int, dict[str, Any]]]) -> LoggedStep:
        seen: dict[str, int] = {}
        for number, item in lines:
            name = str(item["request"])
            if name in seen:
                raise self._error(
                    f"request {name!r} is in this step already, on line {seen[name]}", number
                )
            seen[name] = number
        number, first = lines[0]
        return LoggedStep(
            float(first["time_s"]),
            number,
            list(seen),
            [np.array(item["blocks"], np.int64) for _, item in lines],
            np.array([item["tokens"] for _, item in lines], np.int64),
        )

    def _check(self, number: int, item: dict[str, Any]) -> None:
        for key in _KEYS:
            if key not in item:
                raise self._error(f"key {key!r} is missing", number)
        for key in item:
            if key not in _KEYS:
                raise self._error(f"unknown key {key!r}; {nearest(key, list(_KEYS))}", number)
        time_s, blocks, tokens = (item[key] for key in ("time_s", "blocks", "tokens"))
        if not isinstance(item["request"], (str, int)) or isinstance(item["request"], bool):
            raise self._error(f"request: expected a name; got {item['request']!r}", number)
        if isinstance(time_s, bool) or not isinstance(time_s, (int, float)) or not time_s >= 0:
            raise self._error(f"time_s: expected seconds, 0 or more; got {time_s!r}", number)
        if not _whole(tokens, 1, MAX_TOKENS):
            raise self._error(f"tokens: expected a number of 1 or more; got {tokens!r}", number)
        self._check_blocks(number, blocks, tokens)

    def _check_blocks(self, number: int, blocks: Any, tokens: int) -> None:
        many, size = self.header.blocks or _MOST_BLOCKS, self.header.block_size
        if not isinstance(blocks, list):
            raise self._error(f"blocks: expected a list; got {blocks!r}", number)
        for block in blocks:
            if not _whole(block, 0, many - 1):
                raise self._error(
                    f"blocks: expected numbers from 0 to {many - 1}; got {block!r}", number
                )
        if len(set(blocks)) < len(blocks):
            raise self._error("blocks: one is there twice", number)
        if len(blocks) * size < tokens:
            raise self._error(f"{tokens} tokens do not fit {len(blocks)} blocks of {size}", number)

    def _error(self, message: str, line: int) -> DescriptionError:
        return DescriptionError(message, self.path, line)


def _whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _header(path: Path) -> BlockLogHeader:
    for _, item in _objects(path):
        document = Document(item, str(path))
        try:
            return document.build(BlockLogHeader)
        except DescriptionError as error:
            raise DescriptionError(error.message, path, 1, error.path) from None
    raise DescriptionError("is empty; expected a header line", path, 1)


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered objects of the lines that are not empty."""
    number = 0
    try:
        for number, line in enumerate(lines_of(path), 1):
            if line.strip():
                data = json.loads(line)
                if not isinstance(data, dict):
                    raise DescriptionError("not a JSON object", path, number)
                yield number, data
    except (ValueError, EOFError, OSError, RecursionError, zlib.error) as error:
        if isinstance(error, OSError) and error.strerror:
            raise DescriptionError(f"cannot be read: {error.strerror}", path) from None
        text = f"not JSON: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise DescriptionError(text, path, number + (not isinstance(error, ValueError))) from None


def example(device: str, model: str, batch: BatchSpec, steps: int) -> Iterator[str]:
    """Lines of a log of `steps` decode steps, _EVERY tokens apart, of a batch that `paged` has
    placed after `batch.age` requests came and went. Raises DescriptionError."""
    options = batch.policy
    assert isinstance(options, PagedOptions)
    layout = kv_layout(load_device(device), load_model(model))
    limits = Limits(batch.context, 4 * batch.context)
    allocator = PagedAllocator(layout, batch.requests(), limits, options)
    requests = place(allocator, batch, np.random.default_rng(_SEED)).tolist()
    block = allocator.block
    note = f"paged in use on {device}: python -m policies.serving.server_log"
    yield _line(
        format="bankwise-block-tables", version=1, block_size=block,
        blocks=layout.slots // block, model=model, kv_layout="layer_kv_token", note=note,
    )  # fmt: skip
    for step in range(steps):
        for request in requests:
            if step and not allocator.grow(request, _EVERY):
                raise DescriptionError(f"no room for {_EVERY} tokens more of each sequence")
        for request in requests:
            blocks = allocator.units(request).start // block
            yield _line(
                time_s=round(step * _EVERY * _STEP_S, 3),
                request=f"r{request}",
                tokens=int(allocator.stored[request]),
                blocks=blocks.tolist(),
            )


def _line(**values: Any) -> str:
    return json.dumps(values, separators=(",", ":"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print an example log. Returns 2 and says why when the input is at fault."""
    parser = argparse.ArgumentParser(prog="python -m policies.serving.server_log")
    parser.add_argument("--device", default="mlu370-x4")
    parser.add_argument("--model", default="deepseek-r1-distill-qwen-7b")
    for name, default in {"sequences": 4, "context": 700, "age": 2000, "steps": 6}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(arguments)
    try:
        batch = BatchSpec(sequences=given.sequences, context=given.context, age=given.age)
        for line in example(given.device, given.model, batch, given.steps):
            print(line)
    except (DescriptionError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
