"""Does the contract kit pass what ships, and name what a plug-in breaks? Do packages register?"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bankwise.testing import ContractBroken, check, check_named
from hwmodel.description.description import DescriptionError
from policies.allocators.registry import POLICIES
from policies.routers.routers import ROUTERS
from tests.rotation import shared

ROOT = Path(__file__).parents[1]
PACKAGES = ROOT / "examples/packages"
OWN = [f"examples/own_{each}.py" for each in
       ("allocator", "scheduler", "connector", "controller", "router")]  # fmt: skip
FILES = [*OWN, *(str(each.relative_to(ROOT)) for each in sorted(PACKAGES.glob("*/*.py")))]
SHIPPED = [*(("policy", name) for name in POLICIES if name != "ideal"),
           *(("placement", name) for name in ROUTERS), ("scheduler", "v0"),
           ("scheduler", "sglang"), ("predictor", "lognormal")]  # fmt: skip
OPTIONS = {"lognormal": {"sigma": 0.4}}

pytestmark = pytest.mark.usefixtures("unplugged")


@pytest.mark.parametrize("file", shared(FILES, every=2))
def test_examples_keep_their_contract(file: str) -> None:
    assert all("alike and conserved" in line for line in check(ROOT / file))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(*each, marks=[pytest.mark.long] * (each[1] == "radix")) for each in SHIPPED
    ],  # it is dear
)
def test_what_ships_keeps_its_contract(kind: str, name: str) -> None:
    assert "alike and conserved" in check_named(kind, name, OPTIONS.get(name))


ROUTER = "from policies.routers.router import Router\nimport numpy as np\nclass R(Router):\n"
ALLOCATOR = """
from typing import Any, Literal
from policies.allocators.allocator import PolicyOptions
from policies.allocators.arena import Arena
from policies.allocators.reservation import ContiguousAllocator
class A(ContiguousAllocator):
    class Options(PolicyOptions):
        name: Literal["bad"] = "bad"
    def __init__(self, layout, requests, limits, options):
        super().__init__(layout, requests, limits, options, Arena(0, layout.slots, "first"))
    def size(self, request, demand):
        return int(self.needs(demand.prompt, demand.generated))
    def needs(self, prompt, output):
        return prompt + 2 * output + 40
"""
MOVER = """
from typing import Any, Literal
from policies.allocators.capabilities import Migration
from policies.allocators.paged import PagedAllocator, PagedOptions
class B(PagedAllocator):
    class Options(PagedOptions):
        name: Literal["bad"] = "bad"
        copied: bool = False
    def grow(self, request, tokens):
        before = int(self.stored[request])
        if not super().grow(request, tokens):
            return False
        if before >= self.block and self.pool.free:
            row, (new,) = int(self.row[request]), self.pool.take(1).tolist()
            old = self.tables.blocks(row)[:1].copy()
            self.tables.replace(row, 0, self.pool_of(new))
            self.pool.give(old, 0)
            if self.options.copied:
                one = int(old[0]) * self.block, new * self.block, self.block, self.block
                self.copying.made.append(Migration(request, *one))
        return True
    def pool_of(self, block):
        import numpy as np
        return np.array([block])
"""
BROKEN = {
    "a draw without a seed": (
        f"{ROUTER}    name = 'bad'\n    def choose(self, request, count, tokens):\n"
        "        return int(np.random.default_rng().integers(len(count)))\n",
        "two runs of one seed differ",
    ),
    "slots held twice": (
        f"{ALLOCATOR}    def units(self, request):\n"
        "        return super().units(request)._replace(start=super().units(request).start * 0)\n",
        "hold a slot that another holds",
    ),
    "slots that are not given back": (
        f"{ALLOCATOR}    @property\n    def free_slots(self):\n"
        "        return min(super().free_slots, 900)\n",
        "free_slots",
    ),
    "a prediction that knows who comes": (
        "from policies.predictors.predictor import PredictorSpec\n"
        "from types import SimpleNamespace\nfrom typing import Literal\n"
        "class P(PredictorSpec):\n    kind: Literal['bad'] = 'bad'\n"
        "    def predictions(self, output_tokens, stream):\n"
        "        return SimpleNamespace(length=output_tokens * 0.0 + output_tokens.mean())\n",
        "a prediction changes with the requests that come after it",
    ),
    "lengths that are changed": (
        "from policies.predictors.predictor import PredictorSpec\nfrom typing import Literal\n"
        "class P(PredictorSpec):\n    kind: Literal['bad'] = 'bad'\n"
        "    def predictions(self, output_tokens, stream):\n        output_tokens[:] = 1\n",
        r"bad.py:6: predictions raised ValueError: assignment destination is read",
    ),
    "what outlasts a run": (
        f"{ROUTER}    name, seen = 'bad', []\n    def choose(self, request, count, tokens):\n"
        "        self.seen.append(request)\n        return len(self.seen) % 7 % len(count)\n",
        "or what outlasts a run",
    ),
    "a way out": (
        f"{ROUTER}    name = 'bad'\n    def choose(self, request, count, tokens):\n"
        "        raise SystemExit(3)\n",
        "bad.py:6: choose raised SystemExit: 3",
    ),
    "no such card": (
        f"{ROUTER}    name = 'bad'\n    def choose(self, request, count, tokens):\n"
        "        return 99\n",
        r"placement bad: expected a card from 0 to 2; got 99 \(.*bad.py\)",
    ),
    "what never ends": (
        f"{ROUTER}    name = 'bad'\n    def choose(self, request, count, tokens):\n"
        "        while True:\n            pass\n",
        "bad.py:[67]: placement bad is not done after 1 s",
    ),
    "replicas that are taken away": (
        "from policies.serving.node_controller import Controller\nclass C(Controller):\n"
        "    name = 'bad'\n    def report(self):\n        return {}\n"
        "    def decide(self, at_s):\n        self.node.replicas.clear()\n",
        "bad.py: ValueError",
    ),
    "a block that is moved without a copy": (MOVER, "neither CopiesKv.copies nor"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_named(name: str, tmp_path: Path) -> None:
    text, said = BROKEN[name]
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises((ContractBroken, DescriptionError), match=said) as error:
        check(tmp_path / "bad.py", seconds=1 if "never" in name else 60)
    assert "bad.py" in str(error.value)


def test_a_run_that_never_ends_is_stopped_and_its_line_named(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        f"{ROUTER}    name = 'bad'\n    def choose(self, request, count, tokens):\n"
        "        open('begun', 'w')\n        while True:\n            pass\n"
    )
    words = ["--plugin", "bad.py", "--set", "serving.cluster={cards: 2, placement: bad}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sweeps.cli.main", "run", "smoke", *words], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 143
    assert re.search(r"^stopped by SIGTERM; it was at bad.py:[678]; nothing was", said, re.M), said


def install(folder: Path, module: str, text: str) -> None:
    info = folder / f"{module}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[bankwise.plugins]\nit = {module}\n")
    (folder / f"{module}.py").write_text(text)


def test_a_package_that_is_installed_needs_no_option_and_one_at_fault_is_named(
    tmp_path: Path,
) -> None:
    source = PACKAGES / "bankwise-first-fit/bankwise_first_fit.py"
    install(tmp_path / "site", "bankwise_first_fit", source.read_text())
    install(tmp_path / "site", "bankwise_bad", "1 / 0\n")
    sets = ("policy=[paged, first-fit]", "requests=20", "warmup_requests=5")
    words = [word for each in sets for word in ("--set", each)]
    done = subprocess.run(
        [sys.executable, "-m", "sweeps.cli.main", "run", "smoke", "--out", "r", *words],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "first-fit" in done.stdout
    assert "bankwise_first_fit.py" in (tmp_path / "r/provenance.json").read_text()
    said = "plug-in it of bankwise_bad is left out: "
    assert any(line.startswith(said) for line in done.stderr.splitlines()), done.stderr
    assert "Traceback" not in done.stderr


def test_blocks_that_are_moved_with_copies_keep_the_contract(tmp_path: Path) -> None:
    (tmp_path / "mover.py").write_text(MOVER)
    (said,) = check(tmp_path / "mover.py", {"bad": {"copied": True}})
    assert "alike and conserved" in said
