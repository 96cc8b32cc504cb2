"""Are mistakes of `bankwise size` answered by a line?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweeps.cli.test_mistakes import mistakes

BASE = ["--model", "llama-3.2-3b", "--workload", "azure-conv"]
SLO = ["--slo", "ttft=2s,tpot=100ms"]


@pytest.mark.parametrize(("verb", "arguments", "line"), [
    ("", ["--slo", "ttft=2s,tpott=100ms"], "--slo: tpott: unknown key; did you mean 'tpot'?"),
    ("", ["--slo", "ttft=2"], "--slo: "),
    ("", [], "--slo: is needed; without it --rate is of output tokens: 2000tokens/s"),
    ("", ["--rate", "2"], "--slo: is needed"),
    ("", [*SLO, "--rate", "0"], "--rate: expected more than 0, as 2 or 2000tokens/s; got 0"),
    ("", [*SLO, "--rate", "fast"], "--rate: expected more than 0"),
    ("", ["rtx-4090", "l41", *SLO], "no shipped device 'l41'"),
    ("", ["l4", *SLO, "--price", "l40=3"], "--price: no device 'l40' is asked about"),
    ("", ["l4", *SLO, "--price", "l4=no"], "--price: expected NAME=AMOUNT, above 0"),
    ("", ["l4", *SLO, "--watts", "l40=3"], "--watts: no device 'l40' is asked about"),
    ("", ["l4", *SLO, "--watts", "l4=-1"], "--watts: expected NAME=AMOUNT, above 0"),
    ("", [*SLO, "--policy", "pagd"], "--policy: policy: unknown policy; did you mean 'paged'?"),
    ("", [*SLO, "--policy", "{name: paged, blok: 64}"], "--policy: policy.blok: unknown key"),
    ("", [*SLO, "--policy", "[paged"], "--set policy=[paged"),
    ("", [*SLO, "--kv", "fp7"], "no shipped format 'fp7'"),
    ("", [*SLO, "--workload", "azure"], "--workload: given twice; it has one value"),
    ("users", ["10"], "bankwise size users: missing option '--slo'"),
    ("users", ["0", *SLO], "USERS: expected 1 or more; got '0'"),
    ("users", ["10", *SLO, "--think", "-1"], "--think: expected 0 or more; got '-1'"),
    ("memory", ["rtx-4091", *SLO], "no shipped device 'rtx-4091'; did you mean 'rtx-4090'?"),
    ("memory", ["l4", *SLO, "--users", "10", "--rate", "1"], "--users: does not go with --rate"),
    ("memory", ["l4", *SLO, "--think", "10"], "--think: needs --users"),
    ("confirm", ["l4", "--rate", "2"], "bankwise size confirm: missing option '--slo'"),
    ("pools", ["l4", *SLO], "bankwise size pools: missing option '--link'"),
    ("pools", ["l4", *SLO, "--link", "nixl-cuda-ip"], "no shipped link 'nixl-cuda-ip'"),
    ("pools", ["l4", *SLO, "--link", "nvme-4x", "--kv", "fp7"], "no shipped format 'fp7'"),
    ("pools", ["l41", *SLO, "--link", "nixl-cuda-ipc"], "no shipped device 'l41'"),
])  # fmt: skip
def test_mistakes_are_one_line(tmp_path: Path, verb: str, arguments: list[str], line: str) -> None:
    found = mistakes(tmp_path, "size", *verb.split(), *arguments, *BASE)
    assert found[0].startswith(line)


@pytest.mark.parametrize(("option", "line"), [
    ("--device", "is now a verb: `bankwise size settings DEVICE`"),
    ("--vary", "is now a verb: `bankwise size memory DEVICE`"),
    ("--users", "is now a verb: `bankwise size users USERS`"),
    ("--at-once", "is now a verb: `bankwise size batch`"),
    ("--pools", "is now a verb: `bankwise size pools DEVICE --link LINK`"),
    ("--tokens-per-s", "is now `--rate 2000tokens/s`"),
])  # fmt: skip
def test_a_former_option_answers_with_its_successor(tmp_path: Path, option: str, line: str) -> None:
    assert mistakes(tmp_path, "size", *BASE, option)[0] == f"{option}: {line}"
