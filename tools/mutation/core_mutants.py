"""Does the comparison of the two ways find a fault that is put into the fast core?

    python -m tools.mutation.core_mutants [NUMBER ...] --count 400 --seed 31

Each fault changes one expression of `policies/serving/plain` in a copy of the tree, which compiles
it anew (some 20 CPU seconds) and serves drawn runs both ways (`tests.policies.serving.plain_pairs`)
until one differs. Prints a line for each: the run that differs and where, or that none does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CORE = "policies/serving/plain"
COPIED = ("bankwise", "hwmodel", "policies", "sweeps", "tests", "yaml", "pyproject.toml")


class Fault(NamedTuple):
    """An expression of the core that stands once in a file, and what it becomes."""

    name: str
    file: str
    before: str
    after: str
    draws: str
    """What a drawn run needs to have for it: a condition on its `changes`."""


LENDS, SAMPLED = "changes['policy'].get('bounds')", "'fidelity' in changes['memory']"
FLEET, ANY = "'cluster' in changes", "True"
FAULTS = (
    Fault("lends up to, but not of, the limit", "plain_runs.py",
          "larger <= rule.borrow * size", "larger < rule.borrow * size", LENDS),
    Fault("a slab is cut one larger", "plain_runs.py",
          "min(1 + used // SPLIT, MOST)", "min(2 + used // SPLIT, MOST)", LENDS),
    Fault("a migration wants one slot more", "plain_runs.py",
          "if slots >= q.stored[request] + 1", "if slots >= q.stored[request] + 2", LENDS),
    Fault("a stretch goes on past an event", "plain_times.py",
          "if step > 0 and at_s >= event_s", "if step > 0 and at_s > event_s + 1e-3", ANY),
    Fault("one own block fewer is found again", "plain_blocks.py",
          "most = min(limit // block, b.kept_count[kept])",
          "most = min(limit // block, b.kept_count[kept] - 1)", ANY),
    Fault("the last token of a budget is left", "plain_admission.py",
          "if s.budget == 0 or s.partial:", "if s.budget <= 1 or s.partial:", ANY),
    Fault("a probe is due at half of the change", "plain_probes.py",
          "near or (gone <= rule.change and not wide)",
          "near or (gone < rule.change / 2 and not wide)", SAMPLED),
    Fault("the idle time of a card is not counted", "plain_sums.py",
          "bisect.bisect_left(self._idle, (before_s,))",
          "bisect.bisect_left(self._idle, (before_s - 1,))", FLEET),
    Fault("tokens before the window are left out", "plain_sums.py",
          "self._early += under_way", "self._early += 0 * under_way", FLEET),
    Fault("tokens at the close are of a moment later", "plain_sums.py",
          "made += late.made_before(self._close_s) -",
          "made += late.made_before(self._close_s + 1e-4) -", FLEET),
)  # fmt: skip
SEARCH = """
import sys
from tests.policies.serving.plain_pairs import differences, drawn, served
count, seed = map(int, sys.argv[1:])
tried = 0
for number in range(count):
    run = drawn(seed, number)
    changes = run.changes
    if not ({draws}):
        continue
    tried += 1
    if where := differences(served(run, False), served(run, True)):
        print(f"found by run {{number}}, the {{tried}}th of its kind: {{where[0][:100]}}")
        break
else:
    print(f"not found by {{tried}} runs of its kind")
"""


def tried(fault: Fault, tree: Path, count: int, seed: int) -> str:
    """What the comparison says of a fault in this copy. Raises ValueError where the core has no
    such expression any more."""
    file = tree / CORE / fault.file
    text = file.read_text(encoding="utf-8")
    if text.count(fault.before) != 1:
        raise ValueError(f"{fault.name}: {fault.file} has {fault.before!r} no more")
    file.write_text(text.replace(fault.before, fault.after), encoding="utf-8")
    try:
        found = subprocess.run(
            [sys.executable, "-c", SEARCH.format(draws=fault.draws), str(count), str(seed)],
            cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    finally:
        file.write_text(text, encoding="utf-8")
    said = found.stdout if not found.returncode else found.stderr
    return (said.strip().splitlines() or ["ended without a word"])[-1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation.core_mutants")
    parser.add_argument("numbers", nargs="*", type=int, help="of the faults, from 0")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=31)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, tree / name)
        for number in given.numbers or range(len(FAULTS)):
            fault = FAULTS[number]
            print(number, fault.name, "-", tried(fault, tree, given.count, given.seed), flush=True)


if __name__ == "__main__":
    main()
