"""Are public traces read as their sources mean them, and what do bad ones answer?"""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from policies.requests.requests import load_trace
from policies.requests.trace_formats import read_trace, shared_chains

BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
LATER = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)


def write(folder: Path, text: str, name: str = "trace") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def mooncake(*rows: tuple[int, int, int, list[int]]) -> str:
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    return "".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows)


def refusal(file: Path) -> str:
    with pytest.raises(DescriptionError) as caught:
        load_trace(file)
    return str(caught.value)


def test_burstgpt_rows_become_requests_and_failures_are_dropped(tmp_path: Path) -> None:
    rows = (
        "5,ChatGPT,472,18,490,Conversation log\n"
        "45,GPT-4,0,0,0,Conversation log\n"
        "118.5,GPT-4,417,276,693,API log\n"
        "120,GPT-4,417,0,417,API log\n"
    )
    trace = load_trace(write(tmp_path, BURST + rows))
    assert trace.arrival_s is not None and trace.arrival_s.tolist() == [0, 113.5]
    assert trace.prompt_tokens.tolist() == [472, 417]
    assert trace.output_tokens.tolist() == [18, 276]
    assert trace.dropped == 2
    assert trace.requests().prefix_id.tolist() == [-1, -1]


def test_later_burstgpt_releases_have_columns_that_are_not_used(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, LATER + "5,s1,2.5,ChatGPT,472,18,490,Conversation log\n"))
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([472], [18])


def test_mooncake_milliseconds_count_from_the_first_row(tmp_path: Path) -> None:
    text = mooncake((3000, 6758, 500, [0, 1]), (6000, 10, 0, [2]), (9500, 7322, 490, [0, 3]))
    zipped = tmp_path / "trace.csv"  # its name does not matter
    zipped.write_bytes(gzip.compress(text.encode()))
    for file in (write(tmp_path, "\n" + text), zipped):
        trace = load_trace(file)
        assert trace.arrival_s is not None and trace.arrival_s.tolist() == [0, 6.5]
        assert trace.prompt_tokens.tolist() == [6758, 7322]
        assert trace.dropped == 1
        requests = trace.requests()
        assert requests.prefix_id.tolist() == [0, 0]
        assert requests.prefix_tokens.tolist() == [512, 512]


def test_a_conversation_that_grows_shares_all_of_its_earlier_turns(tmp_path: Path) -> None:
    text = mooncake(
        (0, 700, 5, [0, 1]), (1, 1500, 5, [0, 1, 2]), (2, 2000, 5, [0, 1, 2, 3]), (3, 9, 9, [7])
    )
    requests = load_trace(write(tmp_path, text)).requests()
    assert requests.prefix_id.tolist() == [0, 0, 0, -1]
    # the first turn is shared whole though its second block is not full; the last shares 3 blocks
    assert requests.prefix_tokens.tolist() == [700, 1500, 1536, 0]


def test_where_paths_part_a_request_goes_with_the_larger_crowd() -> None:
    chains = [[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 4], [1, 4], [1, 9], [5]]
    ids, blocks, tree = shared_chains(chains)
    assert ids.tolist() == [0, 0, 0, 1, 1, 0, -1]
    assert blocks.tolist() == [3, 3, 3, 2, 2, 1, 0]
    assert tree.tolist() == [[-1, 0], [0, 1]]  # the second begins with a block of the first


@given(st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=12))
def test_what_an_id_promises_is_really_shared(chains: list[list[int]]) -> None:
    ids, blocks, tree = (column.tolist() for column in shared_chains(chains))

    def names(row: int) -> list[int]:
        """Of each shared block the id it belongs to, from the last block on."""
        at, end, found = ids[row], blocks[row], []
        while at >= 0:
            least = min(tree[at][1], end)
            found += [at] * (end - least)
            at, end = tree[at][0], least
        return found[::-1]

    for i, one in enumerate(chains):
        others = [other for j, other in enumerate(chains) if j != i]
        longest = max((common(one, other) for other in others), default=0)
        assert blocks[i] == longest  # as much as with the closest of all others
        assert (ids[i] < 0) == (longest == 0)
        for j, other in enumerate(chains):
            # blocks have one name where, and only where, they hold the same: a tree
            assert common(names(i), names(j)) == min(common(one, other), blocks[i], blocks[j])


def common(one: list[int], other: list[int]) -> int:
    """Items that two lists begin with."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


ROWS = 4_000
OURS = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{i},700,90\n" for i in range(ROWS))


@pytest.mark.parametrize("text", [OURS, mooncake(*((i, 700, 90, []) for i in range(ROWS)))])
@pytest.mark.parametrize("packed", [False, True])
def test_a_long_trace_takes_the_memory_of_its_columns(
    tmp_path: Path, text: str, packed: bool
) -> None:
    file = tmp_path / "trace"
    file.write_bytes(gzip.compress(text.encode(), 1) if packed else text.encode())
    tracemalloc.start()
    found = read_trace(file, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    columns = [each for each in found if each is not None and not isinstance(each, int)]
    assert len(found.prompt_tokens) == ROWS
    # three columns while rows are read; with prefixes two more, their working copies and `chains`
    assert peak < 2.2 * sum(each.nbytes for each in columns)


def test_what_cannot_be_read_further_down_is_told_with_its_line(tmp_path: Path) -> None:
    rows = "".join(f"{i},700,90\n" for i in range(9000))
    file = tmp_path / "trace"
    file.write_bytes(f"arrival_s,prompt_tokens,output_tokens\n{rows}".encode() + b"\xff,1,1\n")
    message = refusal(file)
    assert message.startswith(f"{file}:9002: ") and "got byte 0xff" in message
