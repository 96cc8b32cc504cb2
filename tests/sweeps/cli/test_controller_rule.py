"""Is a rule of the memory controller a plug-in like any other: simulated, replayed, audited?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from policies.serving.plugins import KINDS
from tests.rotation import long
from tests.sweeps.cli.test_mistakes import mistakes

ROOT = Path(__file__).resolve().parents[3]
FILE = str(ROOT / "examples/own_controller_rule.py")
RULE = "controller.rules={activation_gap: {activations: 8, gap: 500ns}}"
PLUGGED = ("--plugin", FILE, "--set", RULE)


def bankwise(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a rule comes before the kernels are loaded."""
    return subprocess.run(
        [sys.executable, "-m", "sweeps.cli.main", *words], cwd=cwd, text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_rules_are_a_kind_of_plug_in() -> None:
    assert KINDS["rule"].base.__name__ == "ControllerRule"
    assert KINDS["rule"].lacks(KINDS["rule"].base) == ["lower", "name"]


@pytest.mark.parametrize("verb", long("memory, replay and audit"))
def test_a_rule_is_simulated_and_audited(verb: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    lines = [f"R {hex((i * 7919 % 1000) << 20)}" for i in range(2000)]
    trace.write_text("\n".join(lines) + "\n")
    cycles = {}
    for name, more in (("plain", ()), ("slow", PLUGGED)):
        done = bankwise("replay", "lpddr5-6400-x16", "trace.txt", "--commands", f"{name}.csv",
                        "--json", *more, cwd=tmp_path)  # fmt: skip
        assert done.returncode == 0, done.stderr
        cycles[name] = json.loads(done.stdout)["cycles"]
    assert cycles["slow"] > 1.5 * cycles["plain"]
    clean = bankwise("audit", "lpddr5-6400-x16", "slow.csv", *PLUGGED, cwd=tmp_path)
    assert clean.returncode == 0, clean.stdout
    broken = bankwise("audit", "lpddr5-6400-x16", "plain.csv", *PLUGGED, cwd=tmp_path)
    assert broken.returncode == 1 and "activation_gap" in broken.stdout
    one = ("memory", "lpddr5-6400-x16", "--pattern", "random_64B", "--json")
    plain, slow = (
        json.loads(bankwise(*one, *more, cwd=tmp_path).stdout)[0]["bandwidth_gbps"]
        for more in ((), PLUGGED)
    )
    assert slow < 0.5 * plain


def test_a_rule_that_nobody_named_is_refused(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "memory", "lpddr5-6400-x16", "--set", RULE)
    assert "no mechanism 'activation_gap'" in found and "--plugin" in found
    (tmp_path / "log.csv").write_text("cycle,command,rank,bankgroup,bank,row,column\n")
    (found,) = mistakes(tmp_path, "audit", "lpddr5-6400-x16", "log.csv", "--set", RULE)
    assert found.startswith("controller.rules: no rule 'activation_gap' is loaded")
