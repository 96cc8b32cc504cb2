"""Formats of request traces, recognised by their content, plain or gzip.

- ours: `arrival_s,prompt_tokens,output_tokens`, where `arrival_s` may be empty in every row;
- Azure LLM inference: `TIMESTAMP,ContextTokens,GeneratedTokens`
  (github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md);
- BurstGPT: `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`, in later
  releases with `Session ID` and `Elapsed time` (github.com/HPMLL/BurstGPT). All models and log
  types are kept; failures, whose response (and often request) has no tokens, are dropped;
- Mooncake: JSON lines with `timestamp` (ms), `input_length`, `output_length` and, where known,
  `hash_ids`, one for each 512 tokens of the prompt (github.com/kvcache-ai/Mooncake). Requests whose
  ids begin alike share that part of their prompts; `shared_chains` says what is kept of it;
- sessions of agents (`policies.requests.agent_sessions`);
- logs of servers and their benchmarks (`policies.requests.logged_requests`), times from zero.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError
from hwmodel.description.packed import is_packed, open_whole
from policies.requests.agent_sessions import AgentSessions
from policies.requests.csv_trace import CsvTrace
from policies.requests.logged_requests import LoggedRequests, json_object
from policies.requests.trace_rows import Columns, TraceRows

MOONCAKE_BLOCK_TOKENS = 512
"""Tokens of the prompt that a hash id stands for (Mooncake's README)."""

_CHUNK_BYTES = 1 << 20


def read_trace(path: Path, max_tokens: int) -> Columns:
    """Read a trace of a known format (see the module), dropping rows with an empty output.

    Raises DescriptionError with file and line for whatever is wrong with the file, and where a
    length is above `max_tokens`.
    """
    with _lines(path) as lines:
        rows = _rows(path, lines, max_tokens)
        try:
            return rows.columns()
        except _UNREADABLE:
            read_text(path)  # says where
            raise
        except (csv.Error, ValueError) as error:
            if is_packed(path):
                read_text(path)  # what is damaged says so first
            why = f"not a CSV row: {error}" if isinstance(error, csv.Error) else str(error)
            raise DescriptionError(why, path, rows.line) from None


_UNREADABLE = (OSError, EOFError, zlib.error, UnicodeDecodeError)


def _lines(path: Path) -> TextIO:
    """The file's text to be read a line at a time. Raises DescriptionError when there is none."""
    try:
        return io.TextIOWrapper(open_whole(path), encoding="utf-8-sig", newline="")
    except OSError:
        return io.StringIO(read_text(path), newline="")  # which says why


def _rows(path: Path, lines: TextIO, max_tokens: int) -> CsvTrace | _JsonLines | _Logged | _Agents:
    """The reader of the format of what begins like this. CSV and Mooncake's lines are read one at a
    time; sessions and logs, some of which are one object, whole."""
    head = [""]
    try:
        while not head[-1].strip():
            head.append(next(lines))
    except (StopIteration, *_UNREADABLE):
        head.append("{")  # read whole, which says what is wrong
    if not head[-1].lstrip().startswith("{"):
        return CsvTrace(itertools.chain(head[1:], lines), max_tokens)
    if all(f'"{key}"' in head[-1] for key in _JsonLines.KEYS):
        return _JsonLines(itertools.chain(head[1:], lines), max_tokens)
    text = read_text(path)
    if not text.lstrip().startswith("{"):
        return CsvTrace(io.StringIO(text, newline=""), max_tokens)
    if AgentSessions.known(text):
        return _Agents(text, max_tokens)
    if LoggedRequests.known(text):
        return _Logged(text, max_tokens)
    return _JsonLines(io.StringIO(text), max_tokens)


def read_text(path: Path) -> str:
    """The file's text, unzipped. Raises DescriptionError when it cannot be had."""
    content = bytearray()
    try:
        with open_whole(path) as file:
            while chunk := file.read1(_CHUNK_BYTES):
                content += chunk
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise DescriptionError("no such file", path) from None
    except IsADirectoryError:
        raise DescriptionError(
            "is a directory; expected a trace (CSV or JSON lines, plain or gzip)", path
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        line = content.count(b"\n") + 1
        raise DescriptionError("the gzip data ends or breaks here", path, line) from None
    except OSError as error:
        raise DescriptionError(f"cannot be read: {error.strerror or error}", path) from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DescriptionError(
            f"expected CSV text (UTF-8), plain or gzip; got byte 0x{content[error.start]:02x}",
            path,
            line,
        ) from None


class _JsonLines:
    """A Mooncake trace: an object on each line."""

    KEYS = ("timestamp", "input_length", "output_length")

    def __init__(self, lines: Iterable[str], max_tokens: int) -> None:
        self._lines, self._most = lines, max_tokens
        self.line = 1

    def columns(self) -> Columns:
        """Raises ValueError about the line just read."""
        rows, none = TraceRows(), list[int]()
        chains: list[list[int]] = []
        for number, line in enumerate(self._lines, 1):
            self.line = number
            if not line.strip():
                continue
            item = self._object(line)
            prompt = self._whole(item, "input_length", 1, self._most)
            output = self._whole(item, "output_length", 0, self._most)
            rows.time(self._milliseconds(item), "timestamp", item["timestamp"])
            hashes = self._chain(item)
            if rows.add(prompt, output):
                chains.append(hashes or none)
        columns = rows.columns(timed=True, from_zero=True, per_second=1e3)
        prefix_id, blocks, tree = shared_chains(chains)
        tokens = np.minimum(blocks * MOONCAKE_BLOCK_TOKENS, columns.prompt_tokens)
        tree[:, 1] *= MOONCAKE_BLOCK_TOKENS
        return columns._replace(prefix_id=prefix_id, prefix_tokens=tokens, tree=tree)

    def _object(self, line: str) -> dict[str, Any]:
        if (item := json_object(line)) is None:
            raise ValueError(f"expected a JSON object with {', '.join(self.KEYS)} on each line")
        for key in self.KEYS:
            if key not in item:
                raise ValueError(f"key {key!r} is missing")
        return item

    @staticmethod
    def _whole(item: dict[str, Any], key: str, least: int, most: int) -> int:
        value = item[key]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{key}: expected {least} to {most} tokens; got {value!r}")
        return value

    @staticmethod
    def _milliseconds(item: dict[str, Any]) -> float:
        value = item["timestamp"]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            raise ValueError(f"timestamp: expected milliseconds, 0 or more; got {value!r}")
        return float(value)

    @staticmethod
    def _chain(item: dict[str, Any]) -> list[int]:
        chain = item.get("hash_ids", [])
        if not isinstance(chain, list) or not all(type(part) is int for part in chain):
            raise ValueError("hash_ids: expected a list of whole numbers")
        return chain


class _Logged(LoggedRequests):
    """A log of a server, as the requests that came to it."""

    def columns(self) -> Columns:
        """Raises ValueError about the line being read."""
        prompts, outputs, queued, _, _ = np.array(self.read()).T
        return Columns(
            queued - queued[0], prompts.astype(np.int64), outputs.astype(np.int64), dropped=0
        )


class _Agents(AgentSessions):
    """Sessions of agents, as the turns that they have."""

    def columns(self) -> Columns:
        """Raises ValueError about the line being read."""
        found = self.read()
        prompts, rewritten = found.prompt, ~found.goes_on
        # each rewritten prompt is a prefix of its own, which begins as the one before it does
        ids = np.cumsum(rewritten) - 1
        first = np.isnan(found.pause_s)
        begins = np.where(first, -1, ids - 1)
        least = np.where(first, 0, np.minimum(prompts, np.roll(prompts, 1)))
        return Columns(
            found.begin_s, prompts, found.output, found.dropped, np.where(rewritten, ids, -1),
            np.where(rewritten, prompts, 0), np.stack((begins, least), axis=1)[rewritten],
            found.session, found.pause_s, found.goes_on,
        )  # fmt: skip


Ints = NDArray[np.int64]


def shared_chains(chains: list[list[int]]) -> tuple[Ints, Ints, Ints]:
    """(prefix_id, shared blocks), int64 (n,), of requests whose prompts are chains of blocks, and
    the tree of the ids, int64 (ids, 2): the id that each begins with, and how many blocks of it.

    A request shares its longest beginning that any other has too. All beginnings form a tree; an id
    stands for one path in it, which goes on where paths part with the one that most requests take;
    the others are ids of their own that begin with it.
    """
    tree: dict[tuple[int, int], int] = {}
    count = [0]
    for chain in chains:
        node = 0
        for block in chain:
            node = tree.setdefault((node, block), len(count))
            if node == len(count):
                count.append(0)
            count[node] += 1
    return _follow(chains, tree, count)


def _follow(
    chains: list[list[int]], tree: dict[tuple[int, int], int], count: list[int]
) -> tuple[Ints, Ints, Ints]:
    """See `shared_chains`. tree: (node, block) -> child, children after parents; count: requests
    that pass through a node."""
    heir = np.arange(len(count))
    best = [0] * len(count)
    for (node, _), child in reversed(tree.items()):  # children before their parents
        if count[child] > 1 and count[child] >= best[node]:
            heir[node], best[node] = heir[child], count[child]
    numbers: dict[int, int] = {}
    begins: list[tuple[int, int]] = []
    prefix_id, blocks = np.full(len(chains), -1, np.int64), np.zeros(len(chains), np.int64)
    for row, chain in enumerate(chains):
        node = 0
        for depth, block in enumerate(chain, 1):
            child = tree[node, block]
            if count[child] < 2:
                break
            if int(heir[child]) not in numbers:
                numbers[int(heir[child])] = len(numbers)
                begins.append((numbers[int(heir[node])], depth - 1) if node else (-1, 0))
            node, blocks[row] = child, depth
        if node:
            prefix_id[row] = numbers[int(heir[node])]
    return prefix_id, blocks, np.array(begins, np.int64).reshape(-1, 2)
