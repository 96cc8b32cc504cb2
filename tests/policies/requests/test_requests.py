"""What does a request stream promise, and what does a bad trace file answer?"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from policies.requests.requests import MAX_TOKENS, Requests, load_trace

OURS = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def write(folder: Path, text: str, name: str = "trace.csv") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def refusal(file: Path) -> str:
    with pytest.raises(DescriptionError) as caught:
        load_trace(file)
    return str(caught.value)


def three_requests() -> Requests:
    return Requests(np.array([0.0, 1.0, 1.0]), np.array([5, 6, 7]), np.array([1, 2, 3]))


def test_requests_are_contiguous_arrays_of_one_type_however_they_were_given() -> None:
    tokens = np.arange(1, 13, dtype=np.int32)
    requests = Requests(np.arange(6), tokens[::2], tokens[1::2])[::2]  # type: ignore[arg-type]
    assert len(requests) == 3
    for array, kind in [
        (requests.arrival_s, np.float64),
        (requests.prompt_tokens, np.int64),
        (requests.output_tokens, np.int64),
    ]:
        assert array.dtype == kind and array.flags.c_contiguous
    assert requests.prompt_tokens.tolist() == [1, 5, 9]


@pytest.mark.parametrize(
    ("arrival_s", "prompts", "outputs", "why"),
    [
        ([1.0, 0.5], [1, 1], [1, 1], "must not decrease"),
        ([-1.0, 0.5], [1, 1], [1, 1], "not negative"),
        ([0.0, np.nan], [1, 1], [1, 1], "finite"),
        ([0.0, np.inf], [1, 1], [1, 1], "finite"),
        ([0.0, 1.0], [0, 1], [1, 1], "prompt_tokens must be 1 to"),
        ([0.0, 1.0], [1, 1], [1, 0], "output_tokens must be 1 to"),
        ([0.0, 1.0], [1, 1], [1, MAX_TOKENS + 1], "output_tokens must be 1 to"),
        ([0.0, 1.0], [1.5, 1], [1, 1], "whole numbers"),
        ([0.0, 1.0], [1], [1, 1], "different lengths"),
        ([0.0], [[1]], [1], "one dimension"),
        ([[0.0]], [1], [1], "different lengths"),
    ],
)
def test_requests_refuse_what_no_server_can_be_sent(
    arrival_s: list[float], prompts: list[int], outputs: list[int], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        Requests(np.array(arrival_s), np.array(prompts), np.array(outputs))


def test_requests_share_nothing_and_have_one_sample_unless_told() -> None:
    requests = three_requests()
    assert requests.prefix_id.tolist() == [-1, -1, -1]
    assert requests.prefix_tokens.tolist() == [0, 0, 0]
    assert requests.samples.tolist() == [1, 1, 1]


def test_every_column_follows_a_slice_and_a_selection() -> None:
    shared = np.array([7, -1, 7]), np.array([3, 0, 2]), np.array([1, 4, 2])
    requests = Requests(np.zeros(3), np.array([5, 6, 7]), np.array([1, 2, 3]), *shared)
    for part in (requests[1:], requests.take([1, 2]), requests.take(requests.output_tokens > 1)):
        assert part.prefix_id.tolist() == [-1, 7]
        assert part.prefix_tokens.tolist() == [0, 2]
        assert part.samples.tolist() == [4, 2]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"prefix_id": [-2]}, "prefix_id must be -1 to"),
        ({"prefix_id": [0], "prefix_tokens": [-1]}, "prefix_tokens must be 0 to"),
        ({"prefix_id": [0], "prefix_tokens": [6]}, "not be above prompt_tokens"),
        ({"prefix_tokens": [1]}, "must be 0 where prefix_id is -1"),
        ({"samples": [0]}, "samples must be 1 to"),
        ({"samples": [1, 1]}, "different lengths"),
    ],
)
def test_columns_that_contradict_are_refused(columns: dict[str, list[int]], why: str) -> None:
    arrays = {name: np.array(values) for name, values in columns.items()}
    with pytest.raises(ValueError, match=why):
        Requests(np.zeros(1), np.array([5]), np.array([1]), **arrays)


def test_take_follows_indices_and_masks_and_refuses_to_go_back_in_time() -> None:
    requests = three_requests()
    assert requests.take([0, 2]).prompt_tokens.tolist() == [5, 7]
    assert requests.take(requests.output_tokens > 1).prompt_tokens.tolist() == [6, 7]
    assert len(requests.take([])) == 0
    with pytest.raises(ValueError, match="must not decrease"):
        requests.take([1, 0])
    with pytest.raises(TypeError, match="slice"):
        requests[0]  # type: ignore[index]


def test_our_format_is_read_as_written(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, OURS + "0,10,3\n0.5,20,4\n\n0.5,30,5\n"))
    assert trace.arrival_s is not None and trace.arrival_s.tolist() == [0, 0.5, 0.5]
    assert trace.prompt_tokens.tolist() == [10, 20, 30]
    assert trace.requests().output_tokens.tolist() == [3, 4, 5]


def test_azure_timestamps_become_seconds_since_the_first_row(tmp_path: Path) -> None:
    rows = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    trace = load_trace(write(tmp_path, AZURE + rows))
    assert trace.arrival_s is not None
    assert trace.arrival_s.tolist() == [0.0, pytest.approx(4.314579, abs=2e-6)]
    assert trace.prompt_tokens.tolist() == [374, 396]


def test_azure_2024_timestamps_carry_a_zone_and_may_lack_the_fraction(tmp_path: Path) -> None:
    rows = "2024-05-10 23:59:59.009930+00:00,2,3\n2024-05-11 00:00:01+00:00,4,5\n"
    trace = load_trace(write(tmp_path, AZURE + rows))
    assert trace.arrival_s is not None
    assert trace.arrival_s.tolist() == [0.0, pytest.approx(1.99007)]


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_bytes(b"\xef\xbb\xbf" + (OURS + "0,1,2\n").replace("\n", "\r\n").encode())
    assert len(load_trace(file)) == 1


def test_gzip_is_known_by_its_content_not_by_its_name(tmp_path: Path) -> None:
    zipped = tmp_path / "trace.csv"
    zipped.write_bytes(gzip.compress((OURS + "0,1,2\n").encode()))
    plain = write(tmp_path, OURS + "0,1,2\n", "trace.csv.gz")
    assert len(load_trace(zipped)) == len(load_trace(plain)) == 1


def test_rows_with_an_empty_output_are_dropped_and_counted(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, OURS + "0,10,0\n1,20,4\n2,30,0\n"))
    assert (len(trace), trace.dropped) == (1, 2)
    assert trace.requests().arrival_s.tolist() == [1.0]


def test_a_trace_without_times_has_lengths_but_is_no_request_stream(tmp_path: Path) -> None:
    file = write(tmp_path, OURS + ",10,3\n,20,4\n")
    trace = load_trace(file)
    assert trace.arrival_s is None and len(trace) == 2
    with pytest.raises(DescriptionError, match="no times"):
        trace.requests()


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("\n", 1, "expected a header"),
        (OURS + "0,1," + "9" * 5000 + "\n", 2, "output_tokens: expected 0 to"),
        (OURS + "0,1,2\n" + "x" * 200_000 + "\n", 3, "not a CSV row"),
    ],
)
def test_a_bad_trace_answers_with_file_line_and_what_was_expected(
    tmp_path: Path, text: str, line: int, why: str
) -> None:
    file = write(tmp_path, text)
    message = refusal(file)
    assert message.startswith(f"{file}:{line}: ")
    assert why in message
    assert "\n" not in message


def test_a_truncated_gzip_says_at_which_line_it_ends(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = "".join(f"{i},{p},{o}\n" for i, (p, o) in enumerate(rng.integers(1, 9999, (20_000, 2))))
    file = tmp_path / "trace.csv.gz"
    whole = gzip.compress((OURS + rows).encode())
    file.write_bytes(whole[: len(whole) // 2])
    message = refusal(file)
    place, _, why = message.removeprefix(f"{file}:").partition(": ")
    assert 5_000 < int(place) < 15_000
    assert why == "the gzip data ends or breaks here"


def test_a_damaged_gzip_and_a_file_of_bytes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv.gz"
    whole = bytearray(gzip.compress((OURS + "0,1,2\n" * 100).encode()))
    whole[20] ^= 0xFF
    file.write_bytes(whole)
    assert "the gzip data ends or breaks here" in refusal(file)
    file.write_bytes(b"\x1f\x8b")
    assert refusal(file).startswith(f"{file}:1: the gzip data ends")
    file.write_bytes(OURS.encode() + b"0,1,2\n\xff\xfe\n")
    assert refusal(file).startswith(f"{file}:3: expected CSV text (UTF-8), plain or gzip; got byte")
    file.write_bytes(OURS.encode() + b"0,1\x00,2\n")
    assert refusal(file).startswith(f"{file}:2: ")


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.csv") == f"{tmp_path / 'none.csv'}: no such file"
    assert refusal(tmp_path).startswith(f"{tmp_path}: is a directory; expected a trace")


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 10**6), st.integers(0, 10**6))))
def test_a_trace_comes_back_as_it_was_written(rows: list[tuple[float, int, int]]) -> None:
    rows = sorted(rows)
    kept = [row for row in rows if row[2] > 0]
    with tempfile.TemporaryDirectory() as folder:
        text = OURS + "".join(f"{t!r},{p},{o}\n" for t, p, o in rows)
        file = write(Path(folder), text)
        if not kept:
            assert "no requests" in refusal(file)
            return
        trace = load_trace(file)
    assert trace.arrival_s is not None
    assert trace.dropped == len(rows) - len(kept)
    assert list(zip(trace.arrival_s, trace.prompt_tokens, trace.output_tokens, strict=True)) == kept
