"""Are published servers asked for what they could do, as they were asked?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from sweeps.ask import published_servers as published
from sweeps.ask.published_servers import (
    ROWS,
    Laws,
    PublishedRow,
    each,
    flops_share,
    formats,
    later_ms,
    possible,
    summary,
    waited_steps,
)
from sweeps.ask.validate_servers import sheet
from sweeps.cli.main import app

SMALL = PublishedRow("h200", "llama-3.1-8b", "trtllm", "fp8", 64, 16, 2, 10.0, 5.0)
NEVER = SMALL._replace(prompt=100_000, ttft_ms=1.0)


def test_rows_that_no_card_can_do_are_left_out() -> None:
    """By their tokens, twice the parameters, and the peak of H200 in fp8."""
    out = [row for row in ROWS if row not in possible()]
    assert [(row.prompt, row.output, row.server) for row in out] == [
        (1000, 100, "vllm"), (4000, 100, "vllm"), (8000, 100, "vllm")
    ]  # fmt: skip
    row = out[0]
    seconds = (row.ttft_ms + 99 * row.tpot_ms) / 1e3
    by_hand = 112 * 1100 / seconds * 2 * 8.03e9 / 1979e12
    assert flops_share(row) == pytest.approx(by_hand, rel=0.01)


def test_sglang_keeps_kv_in_bf16() -> None:
    kept = {row.server: formats(row)[1] for row in ROWS if row.precision == "fp8"}
    assert kept == {"vllm": "fp8", "trtllm": "fp8", "sglang": None}


def test_a_step_of_tensorrt_has_its_servers_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(published, "efficiency", lambda _: 0.9)
    monkeypatch.setattr(published, "serve", lambda *a, **_: asked.append(a[2]) or 1 / 0)
    published.engine_times.cache_clear()
    for row in (SMALL, SMALL._replace(server="vllm")):
        with pytest.raises(ZeroDivisionError):
            published.served(row)
    assert [spec.engine.max_num_batched_tokens for spec in asked] == [2 + 64 + 1500, 8192]


def test_a_limit_of_inference_x_is_its_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(published, "efficiency", lambda _: 0.9)
    monkeypatch.setattr(published, "serve", lambda *a, **_: asked.append(a[2]) or 1 / 0)
    for laws in (Laws(), Laws(token_limits=False)):
        with pytest.raises(ZeroDivisionError):
            published.served(SMALL._replace(prompt=1024, output=8192, model="llama-3.1-8b"), laws)
    limits = [spec.engine.max_num_batched_tokens for spec in asked]
    assert limits == [16384, 2 + 1024 + 1500]


def test_a_first_token_comes_later_by_steps_and_a_client() -> None:
    """Alone a prompt waits 20 steps for others; where 20 come meanwhile, 20 / 2 and a little."""
    trt = SMALL._replace(prompt=1024, output=1024, at_once=1)
    assert waited_steps(trt) == pytest.approx(20, rel=0.02)
    many = trt._replace(at_once=922)  # one a step
    assert waited_steps(many) == pytest.approx((20 + 20 * 10) / 21, rel=0.01)
    assert waited_steps(trt._replace(output=8192)) == waited_steps(trt._replace(server="vllm")) == 0
    vllm = trt._replace(server="vllm")
    assert later_ms(vllm, 10.0) == 18 and later_ms(vllm, 10.0, Laws(ahead=False)) == 8
    none = Laws(ahead=False, batch_wait=False, client=False)
    assert later_ms(trt, 10.0, none) == 0


def test_the_verb_shows_each_and_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "ROWS", [SMALL, NEVER])
    monkeypatch.setattr(published, "efficiency", lambda _: 0.9)
    found = list(each(possible()))
    assert [one.row for one in found] == [SMALL] and 0 < found[0].tpot_ms < 20
    told = summary(found)
    assert (told["rows"], told["left out"]) == (1, 1)
    grid, said = sheet(found, [NEVER], told).blocks
    assert len(grid.rows) == 1 and "100,000 + 16" in said.text  # type: ignore[union-attr]
    done = CliRunner().invoke(app, ["validate", "servers", "llama", "--json"])
    record = json.loads(done.stdout)
    assert record["servers"][0]["simulated_tpot_ms"] == pytest.approx(found[0].tpot_ms)
    assert record["not_possible"][0]["prompt"] == 100_000
