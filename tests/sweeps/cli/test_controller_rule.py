"""Is a rule of the memory controller a plug-in like any other: simulated, replayed, audited?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hwmodel.kernel.mechanism import of_rule
from hwmodel.specs.controller_rule import ControllerRule
from policies.serving.plugins import KINDS
from sweeps.cli.options import take_up_rules
from tests.rotation import long

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


def said(code: str, *paths: Path) -> list[str]:
    """Lines that a new process prints."""
    own = os.pathsep.join(map(str, [ROOT, *paths]))
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                          env={**os.environ, "PYTHONPATH": own})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_hook_of_a_rule_is_the_mechanisms() -> None:
    names = ("first", "opened", "closed", "due", "offer", "done")
    rule = type("Rule", (ControllerRule,), {name: staticmethod(print) for name in (*names, "on")})
    mechanism = of_rule(rule)
    assert all(getattr(mechanism, name) is print for name in names)
    assert mechanism.passed is mechanism.table is None


def test_a_rule_of_an_installed_package_is_in_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "gap_rule.py").write_text(Path(FILE).read_text())
    info = tmp_path / "gap_rule-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gap-rule\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bankwise.plugins]\ngap = gap_rule\n")
    code = """
        from policies.serving.plugins import KINDS, LOADED
        from hwmodel.kernel.hooks import MECHANISMS
        print('activation_gap' in MECHANISMS, *KINDS['rule'].known, *LOADED)"""
    assert said(textwrap.dedent(code), tmp_path) == ["True activation_gap gap_rule.py"]


def test_a_worker_elsewhere_has_a_rule_before_its_kernels() -> None:
    code = f"""
        import pickle, sys
        from sweeps.run.dask_worker import attempt_sent
        print('hwmodel.kernel.hooks' in sys.modules)
        text = open({FILE!r}).read()
        found = attempt_sent([({FILE!r}, text)], pickle.dumps((len, [(3, 'four')])))[0]
        from hwmodel.kernel.hooks import MECHANISMS
        print(found.index, found.value, 'activation_gap' in MECHANISMS)"""
    assert said(textwrap.dedent(code)) == ["False", "3 4 True"]


def test_the_contract_kit_takes_up_a_rule_before_the_kernels() -> None:
    code = """
        import sys, bankwise.testing
        print('hwmodel.kernel.hooks' in sys.modules)"""
    assert said(textwrap.dedent(code)) == ["False"]


@pytest.mark.long
def test_the_contract_kit_audits_a_rule() -> None:
    code = f"""
        from bankwise.testing import check
        print(*check({FILE!r}, {{'activation_gap': {{'activations': 8, 'gap': '500ns'}}}}))"""
    (line,) = said(textwrap.dedent(code))
    assert line.startswith("rule activation_gap: ") and line.endswith("commands, audited")


@pytest.mark.long
def test_a_run_has_a_rule_on_workers_here_and_elsewhere(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra `cluster` is missing")
    slow = "device_set.controller.rules={activation_gap: {activations: 8, gap: 5us}}"
    one = ("run", "smoke", "--set", "replications=1", "--set", slow, "--plugin", FILE)
    here = bankwise(*one, "--out", "here", cwd=tmp_path)
    assert here.returncode == 0, here.stderr
    with distributed.SubprocessCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0",
        worker_class="distributed.Worker",
    ) as found:  # fmt: skip
        there = bankwise(*one, "--out", "there", "--cluster", found.scheduler_address, cwd=tmp_path)
    assert there.returncode == 0, there.stderr
    metrics = []
    for folder in ("here", "there"):
        lines = (tmp_path / folder / "results.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        metrics.append(sorted(each["metrics"]["output_tokens_per_s"] for each in records))
    assert metrics[0] == metrics[1] and metrics[0]


def test_rules_are_taken_up_before_a_verb_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[str]] = []
    monkeypatch.setattr("hwmodel.specs.controller_rule.read_and_announce", taken.append)
    take_up_rules(["memory", "hbm2e", "--plugin", "a.py", "--plugin=b.py"])
    take_up_rules(["memory", "hbm2e"])
    assert taken == [["a.py", "b.py"]]


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
