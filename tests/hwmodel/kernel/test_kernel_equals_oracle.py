"""The event-driven kernel and the plain-Python oracle give the same command at the same tick.

`BANKWISE_EXAMPLES` sets the number of generated cases, `BANKWISE_LONG_RUN` the requests of the runs
that the auditor reads; `HYPOTHESIS_PROFILE=long` (`make test-long`) raises both: the auditor then
reads millions of commands, of every memory, pattern and controller.
"""

from __future__ import annotations

import os
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwmodel.oracle.audit import audit
from hwmodel.oracle.command_log import CommandLog
from hwmodel.specs.commands import COMMANDS
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.memories import SHIPPED, Case, cases, command_log, memories, spec
from tests.hwmodel.one_channel import simulate_channel
from tests.hwmodel.oracle.reference import ReferenceResult, decode, simulate
from tests.rotation import LONG, rotated, spread

EXAMPLES = int(os.environ.get("BANKWISE_EXAMPLES", "2000" if LONG else "50"))
LONG_RUN = int(os.environ.get("BANKWISE_LONG_RUN", "100000" if LONG else "4000"))


def run_kernel(case: Case) -> Any:
    arrival, address, kind = (np.array(values) for values in zip(*case.requests, strict=True))
    return simulate_channel(
        case.memory,
        arrival.astype(np.int64),
        address.astype(np.int64),
        kind.astype(np.int64),
        channel=case.channel,
        channels=case.channels,
        log=True,
        passed=case.passed,
        owed=case.owed,
    )


def run_oracle(case: Case) -> ReferenceResult:
    places = {"channel": case.channel, "channels": case.channels, "passed": case.passed}
    return simulate(case.memory, case.requests, owed=case.owed, **places)


def lines(log: CommandLog) -> list[str]:
    """A readable line a command, for the difference in a failure."""
    return [
        f"{tick} {COMMANDS[code]} {fields}"
        for tick, code, *fields in zip(*(values.tolist() for values in log), strict=True)
    ]


def assert_equal(case: Case) -> Any:
    """The kernel's result, which is the oracle's."""
    kernel, oracle = run_kernel(case), run_oracle(case)
    expected = lines(command_log(oracle.commands))
    got = lines(kernel.commands)
    for number, (one, other) in enumerate(zip(got, expected, strict=False)):
        before = expected[max(0, number - 5) : number]
        assert one == other, f"command {number}: kernel {one}, oracle {other}, after {before}"
    assert len(got) == len(expected)
    assert kernel.end_tick == oracle.end_tick
    counts = (kernel.row_hits, kernel.row_misses, kernel.row_conflicts)
    assert counts == (oracle.row_hits, oracle.row_misses, oracle.row_conflicts)
    assert (kernel.forwarded, kernel.rmw_reads) == (oracle.forwarded, oracle.rmw_reads)
    latencies = (sum(oracle.read_latency_ticks), sum(oracle.write_latency_ticks))
    assert kernel.latency_ticks == latencies
    ranks = list(oracle.asleep.values())
    assert kernel.asleep_ticks[: len(ranks)] == ranks
    return kernel


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(case=cases())
def test_kernel_and_oracle_issue_the_same_legal_commands_on_generated_memories(case: Case) -> None:
    kernel, fresh = assert_equal(case), case.passed == 0
    if fresh or not case.memory.periodic:  # the auditor counts what is due from tick 0 on
        end = int(kernel.end_tick)
        assert audit(case.memory, kernel.commands, end_tick=end, refresh=fresh) == []


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(memory=memories(), seed=st.integers(0, 2**16))
def test_auditor_finds_nothing_on_generated_memories_that_are_never_idle(
    memory: MemorySpec, seed: int
) -> None:
    """Over more than the nine intervals for which refreshes may be put off."""
    chance, o = np.random.default_rng(seed), memory.organisation
    arrival = np.arange(0, 12 * max(memory.refresh_ticks(), 100), 5, dtype=np.int64)
    address = chance.integers(0, o.capacity_bytes // o.burst_bytes, len(arrival)) * o.burst_bytes
    kind = (chance.random(len(arrival)) < chance.choice([0, 0.3])).astype(np.int64)
    result = simulate_channel(memory, arrival, address, kind, log=True)
    assert audit(memory, result.commands, end_tick=int(result.end_tick)) == []


def test_hits_for_ever_never_put_off_a_write_that_a_refresh_waits_for() -> None:
    """Reads of one open row follow one another sooner than a write follows them, and their bank's
    turn comes only after that of the write, whose row was opened for it."""
    changes: dict[str, Any] = {"refresh": "per_bank", "refresh_order": "round_robin"}
    changes |= {"activation_buffer": 2, "row_hit_limit": 0, "write_queue": 1, "refresh_postpone": 0}
    changes = {f"controller__{key}": value for key, value in changes.items()}
    changes |= {"bank_hash": [], "address_map": ["column:6", "row", "bank:3"]}
    memory = spec("lpddr4-4266-x16", **changes)
    o, number = memory.organisation, np.arange(3 * memory.refresh_ticks(), dtype=np.int64)
    row, bank = o.columns * o.burst_bytes, o.capacity_bytes // o.banks
    write = number % 500 == 50
    other = bank * (1 + number // 500 % 7) + row * (number // 500 % 64)
    address = np.where(write, other, number % o.columns * o.burst_bytes)
    result = simulate_channel(memory, 4 * number, address, write.astype(np.int64), log=True)
    assert audit(memory, result.commands, end_tick=int(result.end_tick)) == []


def test_a_head_without_room_is_answered_from_a_write_that_follows_its_read() -> None:
    """The read of a partial write left its one place for the activation buffer: its write joins the
    full queue, where nothing leaves, and fills the burst that the head waits for."""
    changes = {
        "scheduler": "frfcfs", "queues": "shared", "read_queue": 1, "activation_buffer": 1,
        "partial_write": "read_modify_write", "write_forwarding": True, "refresh": "none",
    }  # fmt: skip
    memory = spec("hbm2-2.0", **{f"controller__{key}": value for key, value in changes.items()})
    other_row = memory.organisation.capacity_bytes // 2
    case = Case(memory, [(0, 0, 2), (0, other_row, 0), (0, 0, 0)], 0, 1)
    assert run_oracle(case).forwarded == 1
    assert_equal(case)


def test_each_bank_may_hold_one_request_more_than_its_shared_queue() -> None:
    """As above, with a queue a bank: in each, a write that waits long for tRTW and a read."""
    changes = {
        "scheduler": "frfcfs", "queue_scope": "bank", "queues": "shared", "read_queue": 1,
        "activation_buffer": 1, "partial_write": "read_modify_write", "refresh": "none",
    }  # fmt: skip
    settings = {f"controller__{key}": value for key, value in changes.items()}
    memory = spec("hbm2-2.0", **settings, timing__tRTW="900nCK")
    o = memory.organisation
    banks = {decode(memory, at)[0]: at for at in range(0, 1 << 18, o.burst_bytes)}
    assert len(banks) == o.banks
    requests = [
        (0, at ^ row, kind)
        for at in banks.values()
        for row, kind in ((0, 2), (o.capacity_bytes // 2, 0))
    ]
    assert_equal(Case(memory, requests, 0, 1))


def stream(
    memory: MemorySpec, pattern: str, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(arrival, address, write): `count` requests that arrive as fast as the queues take them."""
    chance = np.random.default_rng(7)
    burst = memory.organisation.burst_bytes
    bursts = memory.organisation.capacity_bytes // burst
    write = np.zeros(count, dtype=np.bool_)
    if pattern == "sequential":
        number = np.arange(count) % bursts
    elif pattern == "pages":
        size = max(512 // burst, 1)
        pages = chance.integers(0, bursts // size, -(-count // size))
        number = (pages[:, None] * size + np.arange(size)).ravel()[:count]
    else:
        number = chance.integers(0, bursts, count)
        if pattern == "mixed":
            write = chance.random(count) < 0.3
    return np.zeros(count, dtype=np.int64), (number * burst).astype(np.int64), write


PATTERNS = ["sequential", "random", "pages", "mixed"]


@pytest.mark.parametrize(
    ("name", "how"),
    rotated(SHIPPED, [*product(PATTERNS, ["frfcfs", "frfcfs_oldest_ready", "fcfs"])]),
)
def test_kernel_and_oracle_issue_the_same_commands_on_shipped_memories(
    name: str, how: tuple[str, str]
) -> None:
    pattern, scheduler = how
    changes = {"controller__scheduler": scheduler}
    if scheduler == "fcfs":
        changes["controller__activation_buffer"] = 0
    memory = spec(name, **changes)
    # with writes, enough of them for a drain
    count = 1500 if LONG else 300 if pattern == "mixed" else 180
    arrival, address, write = stream(memory, pattern, count)
    requests = list(zip(arrival.tolist(), address.tolist(), write.tolist(), strict=True))
    assert_equal(Case(memory, requests, 0, 1))


@pytest.mark.parametrize(("name", "pattern"), spread(SHIPPED, PATTERNS))
def test_auditor_finds_nothing_in_long_runs_of_the_kernel(name: str, pattern: str) -> None:
    memory = spec(name)
    result = simulate_channel(memory, *stream(memory, pattern, LONG_RUN), log=True)
    assert len(result.commands.tick) + result.forwarded >= LONG_RUN
    assert audit(memory, result.commands, end_tick=int(result.end_tick)) == []


CONTROLLERS: dict[str, dict[str, Any]] = {
    "fcfs": {"scheduler": "fcfs", "activation_buffer": 0},
    "oldest ready, activation buffer": {
        "scheduler": "frfcfs_oldest_ready", "activation_buffer": 16,
    },
    "closed pages, queues a bank": {
        "page_policy": "closed", "queue_scope": "bank", "read_queue": 32, "write_queue": 32,
    },
    "adaptive timeouts, one queue": {"page_policy": "adaptive", "queues": "shared"},
    "timeouts, partial writes read first": {
        "page_policy": "timeout", "partial_write": "read_modify_write",
    },
    "refresh postponed, staggered": {"refresh_postpone": 8, "refresh_phase": "staggered"},
    "idle banks refreshed first": {"refresh_order": "idle_first", "refresh_postpone": 3},
    "all banks refreshed at once": {"refresh": "all_bank", "row_hit_limit": 4},
}  # fmt: skip


@pytest.mark.parametrize(("name", "controller"), spread(SHIPPED, CONTROLLERS))
def test_auditor_finds_nothing_whatever_the_controller(name: str, controller: str) -> None:
    memory = spec(name, **{f"controller__{k}": v for k, v in CONTROLLERS[controller].items()})
    arrival, address, write = stream(memory, "mixed", LONG_RUN // 5)
    kind = write * (1 + (address // memory.organisation.burst_bytes % 5 == 0)).astype(np.int64)
    result = simulate_channel(memory, arrival, address, kind, log=True)
    assert audit(memory, result.commands, end_tick=int(result.end_tick)) == []
