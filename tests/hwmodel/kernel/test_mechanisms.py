"""A stranger's trial: is a mechanism of the controller one file and one line (PRAC's taken away, a
rule added), a format of traces another, and a standard one YAML file?"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.hooks import MECHANISMS
from hwmodel.kernel.timing import lower
from hwmodel.specs.device import load_device
from tests.hwmodel.one_channel import simulate_channel
from tests.hwmodel.oracle.toy import TOY

ROOT = Path(__file__).resolve().parents[3]
RULE = Path(__file__).with_name("activation_gap.py")
FORMAT = Path(__file__).with_name("words_format.py")
MANAGED = ["controller.refresh_management=rfm", "refresh.management.RAAIMT=16"]
SCRIPT = """
import importlib, json, pkgutil, sys
import numpy as np
for each in pkgutil.walk_packages(importlib.import_module("hwmodel").__path__, "hwmodel."):
    importlib.import_module(each.name)
from hwmodel.description.description import DescriptionError
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.oracle.audit import audit
from hwmodel.oracle.command_log import CommandLog
from hwmodel.specs.device import load_device

def run(name, *settings):
    memory, logs = load_device(name, settings).memory, []
    loop = OpenLoop(memory, log=lambda channel, log: logs.append(log))
    other = min(1 << 20, memory.organisation.capacity_bytes // 2)
    loop.feed(0, np.resize(np.array([0, other]), 3000), np.zeros(3000, np.int64))
    loop.finish()
    log = CommandLog(*map(np.concatenate, zip(*logs)))
    assert audit(memory, log, end_tick=loop.end_tick) == []
    return log

def gaps(log):
    opened = log.tick[(log.command == 0) | (log.command == 1)]
    return np.diff(opened)

found = {"plain": run("lpddr5-6400-x16", *json.loads(sys.argv[1])).tick.tolist()}
never, slow = "controller.refresh=none", "controller.rules={activation_gap: GIVEN}"
slow = slow.replace("GIVEN", "{activations: 8, gap: 500ns}")
found["gaps"] = [gaps(run("lpddr5-6400-x16", never, *more)).tolist() for more in ([], [slow])]
found["standard"] = len(run("./toy.yaml", "controller.refresh=all_bank").tick)
from hwmodel.measure.replay import replay
from pathlib import Path
trace = Path("trace.txt")
trace.write_text("load 0\\nstore 4096\\nload 64\\n")
found["trace"] = replay(load_device("lpddr5-6400-x16"), trace)["requests"]
for key, settings in {
    "prac": ["controller.row_counting=prac"],
    "name": ["controller.rules={activation_gab: {gap: 1ns}}"],
    "key": ["controller.rules={activation_gap: {activation: 8, gap: 1ns}}"],
}.items():
    try:
        run("ddr5-4800-x32-prac", *settings)
    except DescriptionError as error:
        found[key] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a tree does that has a stranger's rule in the place of PRAC."""
    root = tmp_path_factory.mktemp("tree")
    for package in ("hwmodel", "yaml"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, root / package, ignore=ignored, copy_function=os.link)
    kernel = root / "hwmodel/kernel"
    (kernel / "mechanisms/prac.py").unlink()
    shutil.copy(RULE, kernel / "mechanisms/activation_gap.py")
    lines = (kernel / "hooks.py").read_text(encoding="utf-8").splitlines(keepends=True)
    (kernel / "hooks.py").unlink()  # the copy is of links
    text = "".join(line for line in lines if "mechanisms.prac" not in line)
    text = text.replace('"prac": PRAC', '"activation_gap": GAP')
    last = "from hwmodel.kernel.mechanisms.rfm"
    mine = "from hwmodel.kernel.mechanisms.activation_gap import MECHANISM as GAP\n"
    (kernel / "hooks.py").write_text(text.replace(last, mine + last), encoding="utf-8")
    measure = root / "hwmodel/measure"
    shutil.copy(FORMAT, measure / "trace_formats/words_format.py")
    text = (measure / "simulator_traces.py").read_text(encoding="utf-8")
    (measure / "simulator_traces.py").unlink()
    last = "from hwmodel.specs.device"
    mine = "from hwmodel.measure.trace_formats.words_format import FORMAT as WORDS\n"
    text = text.replace(last, mine + last, 1).replace("DRAMSIM3, GEM5)", "DRAMSIM3, GEM5, WORDS)")
    (measure / "simulator_traces.py").write_text(text, encoding="utf-8")
    (root / "toy.yaml").write_text(TOY, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(MANAGED)], cwd=root, text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_without_prac_all_else_runs_as_before(found: dict[str, object]) -> None:
    memory = load_device("lpddr5-6400-x16", MANAGED).memory
    address, nothing = np.resize(np.array([0, 1 << 20]), 3000), np.zeros(3000, np.int64)
    assert (
        simulate_channel(memory, nothing, address, nothing).commands.tick.tolist()
        == (found["plain"])
    )


def test_a_memory_that_needs_it_is_told(found: dict[str, object]) -> None:
    assert str(found["prac"]).startswith("controller: there is no mechanism 'prac'; ")


def test_a_rule_of_a_strangers_file_keeps_its_gap(found: dict[str, object]) -> None:
    plain, slow = found["gaps"]  # type: ignore[misc]
    ticks = 500 / load_device("lpddr5-6400-x16").memory.tick_clock.ns_of_ticks(1)
    assert max(plain) < ticks
    assert max(slow[:7]) < ticks <= min(slow[7:])


def test_a_standard_of_a_yaml_file_and_a_format_of_a_file_are_read(
    found: dict[str, object],
) -> None:
    assert isinstance(found["standard"], int) and found["standard"] > 3000
    assert found["trace"] == 3


def test_mistakes_in_its_options_are_answered(found: dict[str, object]) -> None:
    assert found["name"] == (
        "controller: there is no mechanism 'activation_gab'; did you mean 'activation_gap'?; one of"
        " a file of yours: --plugin FILE.py"
    )
    assert re.match(
        r"controller\.rules\.activation_gap: activation: .*'activations'", str(found["key"])
    )


def test_a_rule_that_is_not_there_is_refused() -> None:
    with pytest.raises(DescriptionError, match="no mechanism 'activation_gap'"):
        lower(load_device("lpddr5-6400-x16", ["controller.rules={activation_gap: {}}"]).memory)
    assert list(MECHANISMS) == ["rfm", "prac", "periodic"]
