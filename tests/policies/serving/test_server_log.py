"""Does a log of block tables come in as the server had it, and is each mistake in it placed?"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.allocators.allocator import Limits
from policies.allocators.kv_layout import kv_layout
from policies.allocators.paged import PagedAllocator, PagedOptions
from policies.memory.batch import BatchSpec, place
from policies.serving.server_log import BlockLog, main

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "docs/block-tables.jsonl"
HEADER = {"format": "bankwise-block-tables", "block_size": 16, "blocks": 100}


def line(**changes: Any) -> dict[str, Any]:
    return {"time_s": 0.5, "request": "a", "blocks": [7, 3], "tokens": 20, **changes}


def write(folder: Path, *lines: Any) -> Path:
    file = folder / "log.jsonl"
    texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
    file.write_text("\n".join(texts) + "\n")
    return file


def test_steps_are_lines_of_one_time(tmp_path: Path) -> None:
    file = write(
        tmp_path, HEADER, line(), line(request="b", blocks=[1, 2, 50], tokens=33), "",
        line(time_s=0.75, tokens=21),
    )  # fmt: skip
    first, second = BlockLog(file)
    assert (first.time_s, first.line, first.requests) == (0.5, 2, ["a", "b"])
    assert (second.time_s, second.line, second.tokens.tolist()) == (0.75, 5, [21])
    a, b = first.units(16)
    assert (a.start.tolist(), a.tokens.tolist(), a.size.tolist()) == ([112, 48], [16, 4], [16, 16])
    assert b.tokens.tolist() == [16, 16, 1]
    # side by side: two blocks, then three
    a, b = first.contiguous(16, 32)
    assert (a.start.tolist(), a.tokens.tolist(), a.size.tolist()) == ([32], [20], [32])
    assert (b.start.tolist(), b.tokens.tolist(), b.size.tolist()) == ([64], [33], [48])


def test_blocks_may_be_held_ahead_of_their_tokens(tmp_path: Path) -> None:
    (step,) = BlockLog(write(tmp_path, HEADER, line(blocks=[7, 3, 9], tokens=17)))
    assert step.units(16)[0].tokens.tolist() == [16, 1, 0]


def test_gzip_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "log.gz"
    file.write_bytes(gzip.compress(EXAMPLE.read_bytes()))
    ours, theirs = list(BlockLog(file)), list(BlockLog(EXAMPLE))
    assert [step.requests for step in ours] == [step.requests for step in theirs]


def test_missing_and_empty_files_and_torn_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="cannot be read: No such file"):
        BlockLog(tmp_path / "none")
    (tmp_path / "empty").write_text("")
    with pytest.raises(DescriptionError, match="empty:1: is empty; expected a header line"):
        BlockLog(tmp_path / "empty")
    (tmp_path / "torn.gz").write_bytes(gzip.compress(EXAMPLE.read_bytes())[:-900])
    with pytest.raises(DescriptionError, match=r"torn\.gz:"):
        list(BlockLog(tmp_path / "torn.gz"))


def test_the_example_is_what_the_paged_allocator_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == EXAMPLE.read_text()
    log = BlockLog(EXAMPLE)
    layout = kv_layout(load_device("mlu370-x4"), load_model("deepseek-r1-distill-qwen-7b"))
    assert log.header.blocks == layout.slots // 16
    spec = BatchSpec(sequences=4, context=700)
    allocator = PagedAllocator(layout, spec.requests(), Limits(700, 2800), PagedOptions())
    batch = place(allocator, spec, np.random.default_rng(1))
    first = next(iter(log))
    for request, units in zip(batch.tolist(), first.units(16), strict=True):
        ours = allocator.units(request)
        assert all((a == b).all() for a, b in zip(ours, units, strict=True))


def test_the_example_says_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sequences", "500"]) == 2
    assert "500 sequences of 700 tokens do not fit" in capsys.readouterr().err
