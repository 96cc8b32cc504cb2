"""Does v1 schedule as vLLM does: tokens, preemptions and physical blocks of every step?"""

from __future__ import annotations

import copy
import functools
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from policies.engines.schedule_cases import ScheduleCase, read_cases
from policies.engines.schedule_check import check
from tests.policies.small import mixed, run
from tests.rotation import long, shared

FOLDER = Path(__file__).parents[2] / "reference"
FILES = ("vllm_schedules.json.gz", "vllm_schedules_drawn.json.gz")
WINDOWS = "vllm_window_schedules.json.gz"
DRAFTS = "vllm_speculation_schedules.json.gz"
CACHED = "vllm_cached_window_schedules.json.gz"
LISTS = "vllm_free_list_schedules.json.gz"
STATES = "vllm_state_schedules.json.gz"
FURTHER = Path(__file__).parents[4] / "shared" / "reference" / "vllm_reference_2.json.gz"
"""Schedules that do not ship: sessions, priorities, limits of prefills."""
EXAMPLE: dict[str, Any] = {
    "name": "two", "vllm": "0.33.0",
    "config": {
        "blocks": 3, "block_size": 16, "max_num_batched_tokens": 32, "max_num_seqs": 2,
        "prefix_caching": True, "reserve_full_isl": True, "watermark": 0.0, "async": False,
    },
    "trace": {"arrival": [0, 1], "prompt": [16, 17], "output": [2, 1]},
    "steps": [
        [0, [[0, 16]], [], 0, 1, 0, 2, 3078604529],
        [1, [[0, 1]], [], 0, 1, 1, 1, 3090985647],
        [2, [[1, 17]], [], 0, 1, 0, 1, 3360394318],
    ],
    "tables": {"2": [[1, [1, 2]]]},
}  # fmt: skip
"""As in tests/reference/README.md."""


@functools.cache
def read(file: str) -> dict[str, ScheduleCase]:
    """Its cases by name, read by the worker that runs them."""
    return {case.name: case for case in read_cases(FOLDER / file)}


def names(file: str) -> list[tuple[str, str]]:
    """(the file, a case of it), for each: found without reading all of it."""
    text = gzip.decompress((FOLDER / file).read_bytes()).decode()
    return [(file, name) for name in re.findall(r'"name": ?"([^"]+)", ?"(?:about|vllm)"', text)]


def cases() -> list[Any]:
    """Every second one with windows, and with drafts, is run in the long suite alone."""
    every = [pytest.param(each) for name in FILES for each in names(name)]
    others = (shared(names(name)) for name in (WINDOWS, DRAFTS, CACHED, LISTS, STATES))
    return [*every, *(case for each in others for case in each)]


@pytest.mark.parametrize("file", [*FILES, WINDOWS, DRAFTS, CACHED, LISTS, STATES])
def test_every_case_of_a_file_is_checked(file: str) -> None:
    assert list(read(file)) == [name for _, name in names(file)]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case[1])
def test_every_step_is_that_of_vllm(case: tuple[str, str]) -> None:
    told = read(case[0])[case[1]]
    found = check(told)
    assert found.difference is None, str(found.difference)
    assert found.steps == found.agreeing == len(told.steps)


@functools.cache
def further() -> list[dict[str, Any]]:
    """Cases of FURTHER; skips the test where it is not there."""
    if not FURTHER.is_file():
        pytest.skip(f"{FURTHER.name} is not here")
    return list(json.loads(gzip.decompress(FURTHER.read_bytes()))["cases"])


def differences(folder: Path, *names: str) -> list[str]:
    """Of the cases of FURTHER whose names begin so; there are some."""
    chosen = [case for case in further() if case["name"].startswith(names)]
    found = [check(case) for case in read_cases(written(folder, *chosen))]
    return [f"{each.name}: {each.difference}" for each in found if each.difference]


@pytest.mark.parametrize(
    "names",
    [("idle-end", "no-idle-end", "sessions-async-s2", "sessions-tree-s1r0/0.33"),
     *long(("sessions", "sess-"))],
)  # fmt: skip
def test_turns_of_sessions_find_what_vllm_finds(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert differences(tmp_path, *names) == []


def test_windows_find_prefixes_that_vllm_finds(tmp_path: Path) -> None:
    assert differences(tmp_path, "window-cached") == []


def test_windows_of_two_lengths_give_up_what_vllm_gives_up(tmp_path: Path) -> None:
    assert differences(tmp_path, "two-windows") == []


@pytest.mark.parametrize("name", ["threshold", "interval", "active", "priority", "partial"])
def test_options_of_the_scheduler_do_what_they_do_in_vllm(tmp_path: Path, name: str) -> None:
    assert differences(tmp_path, f"{name}-") == []


@pytest.mark.parametrize("held", [None, ["01"], ["0x", "0"], ["0", "0"]])
def test_drafts_that_hold_are_asked_for(tmp_path: Path, held: list[str] | None) -> None:
    wrong = copy.deepcopy(EXAMPLE)
    wrong["config"]["speculation"] = {"method": "eagle", "tokens": 2}
    wrong["trace"]["held"] = held
    with pytest.raises(DescriptionError, match=r"trace.*held: expected a digit for each output"):
        read_cases(written(tmp_path, wrong))


def test_steps_between_prefills_are_the_same_together_and_one_by_one() -> None:
    engine = {"prefill_schedule_interval": 5, "long_prefill_token_threshold": 24}
    stream, policy = mixed(60), {"name": "paged", "block": 4}
    together, singly = (
        run(2048, stream, policy=policy, engine=engine, advance_together=each)
        for each in (True, False)
    )
    plain = run(2048, stream, policy=policy)
    assert (together.finish_s == singly.finish_s).all()
    assert together.metrics["steps"] > plain.metrics["steps"]


def written(folder: Path, *cases: Any, name: str = "cases.json") -> Path:
    file = folder / name
    text = json.dumps({"cases": cases}).encode()
    file.write_bytes(gzip.compress(text, mtime=0) if name.endswith(".gz") else text)
    return file


def test_the_example_agrees(tmp_path: Path) -> None:
    for name in ("cases.json", "cases.json.gz"):
        (case,) = read_cases(written(tmp_path, EXAMPLE, name=name))
        assert check(case).difference is None
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert json.loads(page.partition("```json\n")[2].partition("```")[0]) == EXAMPLE


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((1, 1, 0, 1), 2, "step 1: tokens, [request, tokens]: expected [0, 2], found [0, 1]"),
        ((1, 2), [0], "step 1: preemption: expected [0], found []"),
        ((2, 6), 2, "step 2: free blocks: expected 2, found 1"),
        ((2, 7), 5, "step 2: block ids (crc32): expected 5, found 3360394318"),
    ],
)
def test_the_first_difference_is_named(
    tmp_path: Path, place: tuple[int, ...], value: Any, message: str
) -> None:
    changed = copy.deepcopy(EXAMPLE)
    target = changed["steps"]
    for part in place[:-1]:
        target = target[part]
    target[place[-1]] = value
    found = check(read_cases(written(tmp_path, changed))[0])
    assert str(found.difference) == message and found.agreeing == place[0]


def test_a_schedule_that_is_too_short_or_too_long_differs(tmp_path: Path) -> None:
    short, more = copy.deepcopy(EXAMPLE), copy.deepcopy(EXAMPLE)
    short["steps"].pop()
    more["steps"].append(more["steps"][-1])
    found = [check(case) for case in read_cases(written(tmp_path, short, more))]
    assert [each.difference and each.difference.what for each in found] == ["length", "length"]
    assert [each.agreeing for each in found] == [2, 3]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", b"{"), ("a.json", b"[]"), ("a.json", b"[3]"), ("a.json", b'{"cased": []}'),
        ("a.json", b'{"cases": [{}], "extra": 1}'), ("a.json.gz", b"{}"), ("b.json", None),
        ("a.json.gz", gzip.compress(b"[" * 9000, mtime=0)[:-9]), ("a.json", b"\xff"),
    ],
)  # fmt: skip
def test_a_damaged_file(tmp_path: Path, name: str, content: bytes | None) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DescriptionError, match=name) as error:
        read_cases(file)
    assert "\n" not in str(error.value)
