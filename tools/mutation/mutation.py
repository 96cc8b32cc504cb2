"""Which share of small changes to the product do the tests notice?

    nice -n 10 python -m tools.mutation.mutation --seed 1 --count 150 --out before.jsonl
    nice -n 10 python -m tools.mutation.mutation --again before.jsonl --out after.jsonl

    nice -n 10 python -m tools.mutation.mutation --room hwmodel/specs --tests hwmodel \
        --without tests/hwmodel/specs/test_x.py --out cut.jsonl

Mutants (`mutants.py`) are drawn by a seed, `--count` of each; `--again` draws those that survived
an earlier run. Each is a fork of one process that has imported all tests: the code of one function
is replaced in memory, and the tests that execute its lines run, the quick ones first, until one
fails. `--without` (the beginning of a test's name) asks what leaving tests out would cost: mutants
are of lines that these tests execute, and one that they notice is asked of all the others.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tools.mutation.mutants import ROOT, Mutant, drawn, mutate

ROOMS = ("policies/memory", "policies/allocators", "sweeps/analyse", "sweeps/run")
TESTS = (
    "test_refusals.py", "policies", "sweeps/analyse", "sweeps/plan", "sweeps/report", "sweeps/run",
    "sweeps/study", "sweeps/cli/test_export.py", "sweeps/cli/test_mistakes.py",
    "sweeps/cli/test_run_options.py",
)  # fmt: skip
SLOWEST_S, SPENT_S = 20.0, 30.0
"""CPU seconds, traced: of the slowest test that is asked, and of all that are asked of a mutant."""


def in_a_fork(do: Callable[[], Any]) -> Any:
    """What `do` returns in a child; None where the child was killed."""
    with tempfile.NamedTemporaryFile() as file:
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_DATA, (12 << 30, 12 << 30))  # V8 reserves more
            try:
                Path(file.name).write_bytes(pickle.dumps(do()))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        text = Path(file.name).read_bytes()
        return pickle.loads(text) if text else None


def passes(items: list[pytest.Item], at: int) -> bool:
    following = items[at + 1] if items[at + 1 :] else None
    return not any(r.failed for r in runtestprotocol(items[at], log=False, nextitem=following))


class Sampler:
    """A pytest plugin that runs mutants instead of the tests."""

    def __init__(
        self, samples: list[list[Mutant]], count: int, out: Path, without: tuple[str, ...] = ()
    ) -> None:
        self.samples, self.count, self.out, self.without = samples, count, out, without
        self.files = {str(ROOT / mutant["path"]) for mutants in samples for mutant in mutants}

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # pytest rewrites its assertions first

        once = [Phase.explicit, Phase.generate]  # a failing example need not be a short one
        settings.register_profile("once", parent=settings.get_profile("ci"), phases=once)
        settings.load_profile("once")

    def baseline(self, items: list[pytest.Item]) -> list[tuple[float, int, set[tuple[str, int]]]]:
        """(CPU seconds, index, lines executed) of the tests that pass in time, quick ones first."""
        lines: set[tuple[str, int]] = set()

        def trace(frame: Any, event: str, _: Any) -> Any:
            if frame.f_code.co_filename not in self.files:
                return None
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            return trace

        found = []
        signal.signal(signal.SIGPROF, lambda *_: pytest.fail("too slow"))
        for at in range(len(items)):
            lines.clear()
            begun = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SLOWEST_S)
            threading.settrace(trace)
            sys.settrace(trace)
            fine = passes(items, at)
            sys.settrace(None)
            threading.settrace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)
            found += [(time.process_time() - begun, at, set(lines))] if fine else []
        return sorted(found, key=lambda each: each[0])

    def verdict(self, mutant: Mutant, items: list[pytest.Item], costs: list[float]) -> str:
        if not mutate(mutant):
            return "invalid"
        if "probe_cache" in mutant["path"]:
            os.environ["BANKWISE_PROBE_CACHE"] = tempfile.mkdtemp()
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.alarm(600)  # what waits for ever takes no CPU time
        for at, cost_s in enumerate(costs):
            signal.setitimer(signal.ITIMER_PROF, 5 + 4 * cost_s)
            if not passes(items, at):
                return f"killed by {items[at].nodeid}"
        return "survived"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        known = in_a_fork(lambda: self.baseline(session.items))
        done: list[Mutant] = []
        for mutants in self.samples:
            before = len(done)
            for mutant in mutants:
                if len(done) - before == self.count:
                    break
                if found := self.tried(mutant, session.items, known):
                    done.append(found)
                    self.out.write_text("".join(json.dumps(each) + "\n" for each in done))
            here = done[before:]
            killed = sum(each["verdict"] != "survived" for each in here)
            print(f"\n{killed} of {len(here)} killed" + " by the others" * bool(self.without))
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        minutes = sum(each.ru_utime + each.ru_stime for each in used) / 60
        print(f"\n{minutes:.0f} CPU minutes, {len(known)} tests")
        return True

    def tried(
        self, mutant: Mutant, items: list[pytest.Item],
        known: list[tuple[float, int, set[tuple[str, int]]]],
    ) -> Mutant | None:  # fmt: skip
        """The mutant with its verdict; None where it is no program."""
        constants = mutant["owner"].partition("=")[2].strip("()").split(", ")
        named = [constant for constant in constants if constant]
        text = (ROOT / mutant["path"]).read_text().splitlines()
        first, last = mutant["lines"]
        lines = {
            (str(ROOT / mutant["path"]), at) for at, line in enumerate(text, start=1)
            if first <= at <= last or any(name in line for name in named)
        }  # fmt: skip
        parts: dict[bool, list[tuple[pytest.Item, float]]] = {True: [], False: []}
        for cost_s, at, executed in known:
            part = parts[items[at].nodeid.startswith(self.without) and bool(self.without)]
            told = any(name in self.text_of(items[at]) for name in named)
            if (lines & executed or told) and sum(cost for _, cost in part) < SPENT_S:
                part.append((items[at], cost_s))

        def found(of: bool) -> str:
            asked, costs = [each[0] for each in parts[of]], [each[1] for each in parts[of]]
            verdict = in_a_fork(lambda: self.verdict(mutant, asked, costs))
            return verdict or "killed by its end"

        mine = found(True) if self.without else ""
        if mine in ("invalid", "survived") or (verdict := found(False)) == "invalid":
            return None
        noticed = {"without": mine} if mine else {}
        return {**mutant, "verdict": verdict, "asked": len(parts[False]), **noticed}

    @staticmethod
    @functools.cache
    def text_of(item: pytest.Item) -> str:
        return item.path.read_text()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, action="append", help="repeatable")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--again", type=Path)
    parser.add_argument("--room", action="append", help="a folder of the product, repeatable")
    parser.add_argument("--tests", action="append", help="below tests/, repeatable")
    parser.add_argument("--without", action="append", default=[], help="repeatable")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.again:
        records = map(json.loads, given.again.read_text().splitlines())
        samples = [[each for each in records if each["verdict"] == "survived"]]
    else:
        samples = [drawn(given.room or ROOMS, seed) for seed in given.seed or [1]]
    flags = ["-q", "-s", "-m", "not long", "-p", "no:cacheprovider", "-p", "no:xdist"]
    with tempfile.TemporaryDirectory() as base:
        tests = [str(ROOT / "tests" / each) for each in given.tests or TESTS]
        sampler = Sampler(samples, given.count, given.out, tuple(given.without))
        sys.exit(pytest.main([*flags, f"--basetemp={base}/t", *tests], plugins=[sampler]))


if __name__ == "__main__":
    main()
