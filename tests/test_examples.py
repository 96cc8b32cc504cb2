"""Do the scripts of `examples/` run, print what they say, and stay short?"""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rotation import long

ROOT = Path(__file__).resolve().parents[1]
FEW = ("requests=20", "warmup_requests=5")
THIRTY = ("requests=30", FEW[1])
PRINTED = {
    "random_access": ((), r"sequential .* GB/s  100\.0% .*\nrandom_64B [^\n]*%.*nine tenths of"),
    "which_allocator": (("rtx-4090", *FEW), r"^which-allocator: .*\nstatic .*\npaged .* tok/s"),
    "own_allocator": (FEW, r"paged: \d+ tok/s, \d+ preempted\nroom: \d+ tok/s, \d+ preempted"),
    "own_pages": (FEW, r"static: \d+ tok/s\npaged: \d+ tok/s\nshuffled: \d+ tok/s\n"),
    "own_scheduler": (FEW, r"v1: p99 TTFT \d+ ms, .*\ncapped: p99 TTFT \d+ ms, TPOT [\d.]+ ms"),
    "own_predictor": (FEW, r"1 times: \d+ tok/s, [\d.]+ at once\n2 times: .*\n4 times: .*\n"),
    "own_connector": (THIRTY, r"alone: .* 0 tok.*\nwith it: .* s, \d{4,} tokens"),
    "own_controller": (("requests=100", FEW[1]), r"alone: .* s, 0 r.*\nwith it: .* s, [1-9]\d* r"),
    "own_controller_rule": ((), r"^without: \d\.\d\d GB/s\nwith it: \d\.\d\d GB/s\n$"),
    "own_measure": ((), r"l4: 42,240 token slots\na100-80gb: [\d,]+ token slots"),
    "own_verdict_rule": ((), r"(paged|static) is never more than [\d.]+ % behind the best"),
    "own_router": (THIRTY, r"round_robin: .*\ntwo_choices: p99 TPOT \d+ ms.*\nleast_requests"),
    "own_study": (FEW, r"^trial \d: \[[\d.]+\] with \{'serving.policy.block': \d+"),
    "what_if": (FEW, r"as described .* \+0\.0%\n.*\nHBM2E .*\+"),
    "event_loop": ((), r" 1 cores +\d.* GB/s, +\d.* ns a read\n 4 cores .*\n16 cores .*read\n"),
    "jitted_host": ((), r"^\d+\.\d ns a hop\n$"),
    "replay_trace": ((), r"of 12\.80 GB/s\nrow hits: .*%\n[\d,]+ commands, 0 violations"),
}  # fmt: skip
"""Example -> its arguments, which make it quick, and what it then prints."""


def test_each_example_is_tried() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == PRINTED.keys()


SLOW = ("what_if", "own_connector", "own_controller", "own_controller_rule", "own_router")
"""The classes of the last three are served in `tests/policies/serving/test_plugins.py` too."""


@pytest.mark.parametrize("name", [*(name for name in PRINTED if name not in SLOW), *long(*SLOW)])
@pytest.mark.usefixtures("unplugged")
def test_an_example_prints_its_answer(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, printed = PRINTED[name]
    file = str(ROOT / f"examples/{name}.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [file, *arguments])
    if name == "own_controller_rule":  # is compiled into the kernels, which others have loaded
        said = subprocess.run([sys.executable, file], capture_output=True, text=True).stdout
    else:
        runpy.run_path(file, run_name="__main__")
        said = capsys.readouterr().out
    assert re.search(printed, said, re.DOTALL), said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_is_short_and_says_what_it_answers(name: str) -> None:
    text = (ROOT / f"examples/{name}.py").read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text)) or ""
    assert len(text.splitlines()) < (
        {"own_connector": 130, "own_controller_rule": 110}.get(name, 60)
    )
    assert "?" in said and "Prints" in said and f"python examples/{name}.py" in said
