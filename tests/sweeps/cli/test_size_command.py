"""Are mistakes of `bankwise size` answered by a line?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweeps.cli.test_mistakes import mistakes

BASE = ["size", "--model", "llama-3.2-3b", "--workload", "azure-conv"]
SLO = ["--slo", "ttft=2s,tpot=100ms"]


@pytest.mark.parametrize(("arguments", "line"), [
    (["--slo", "ttft=2s,tpott=100ms"], "--slo: tpott: unknown key; did you mean 'tpot'?"),
    (["--slo", "ttft=2"], "--slo: "),
    ([], "size: expected --slo, --tokens-per-s, or both instead of --rate"),
    (["--rate", "2", "--tokens-per-s", "10"], "--rate: needs --slo"),
    ([*SLO, "--rate", "0"], "--rate: expected more than 0; got 0"),
    ([*SLO, "--vary", "rtx-4091"], "no shipped device 'rtx-4091'; did you mean 'rtx-4090'?"),
    ([*SLO, "--devices", "rtx-4090,l41"], "no shipped device 'l41'"),
    ([*SLO, "--devices", "l4", "--price", "l40=3"], "--price: no device 'l40' is asked about"),
    ([*SLO, "--devices", "l4", "--price", "l4=no"], "--price: expected NAME=AMOUNT, above 0"),
    ([*SLO, "--devices", "l4", "--watts", "l40=3"], "--watts: no device 'l40' is asked about"),
    ([*SLO, "--devices", "l4", "--watts", "l4=-1"], "--watts: expected NAME=AMOUNT, above 0"),
    ([*SLO, "--policy", "pagd"], "--policy: policy: unknown policy; did you mean 'paged'?"),
    ([*SLO, "--policy", "{name: paged, blok: 64}"], "--policy: policy.blok: unknown key"),
    ([*SLO, "--policy", "[paged"], "--set policy=[paged"),
    (["--users", "10"], "--users: needs --slo, and neither --rate nor --tokens-per-s"),
    ([*SLO, "--users", "10", "--rate", "1"], "--users: needs --slo, and neither --rate"),
    ([*SLO, "--users", "0"], "--users: expected more than 0; got 0"),
    ([*SLO, "--think", "10"], "--think: needs --users"),
    ([*SLO, "--users", "10", "--think", "-1"], "--think: expected 0 or more seconds; got -1"),
    (["--tokens-per-s", "100", "--confirm"], "--confirm: needs --slo"),
    ([*SLO, "--pools", "nixl-cuda-ipc"], "--pools: needs --device and --slo"),
    ([*SLO, "--device", "l4", "--pools", "nixl-cuda-ip"], "no shipped link 'nixl-cuda-ip'"),
    ([*SLO, "--device", "l4", "--pools", "nvme-4x", "--kv", "fp7"], "no shipped format 'fp7'"),
    ([*SLO, "--device", "l41", "--pools", "nixl-cuda-ipc"], "no shipped device 'l41'"),
    ([*SLO, "--device", "l4", "--pools", "nvme-4x", "--confirm"], "--confirm: does not go"),
    ([*SLO, "--kv", "fp7"], "no shipped format 'fp7'"),
    ([*SLO, "--workload", "azure"], "--workload: given twice; it has one value"),
])  # fmt: skip
def test_mistakes_are_one_line(tmp_path: Path, arguments: list[str], line: str) -> None:
    found = mistakes(tmp_path, *BASE, *arguments)
    assert found[0].startswith(line)
