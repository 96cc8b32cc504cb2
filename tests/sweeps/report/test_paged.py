"""Are the effects of layout, capacity and bandwidth those that were planted, and are they told?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from hwmodel.measure.student import t_quantile
from sweeps.plan.experiment import Task
from sweeps.plan.odma_paper import OdmaPaperSpec, measure
from sweeps.plan.paged_findings import Effects
from sweeps.plan.sweep import load_sweep
from sweeps.report.contents import Report, read_report
from sweeps.report.findings_page import findings, main
from sweeps.report.markdown import markdown
from sweeps.run.store import RunDirectory
from tests.sweeps.made import PROVENANCE, RESULTS, made

CARDS = [
    ({"channels": 24}, "lpddr", 300.0),
    ({"channels": 48}, "lpddr", 600.0),
    ({"channels": 12, "memory": "hbm"}, "hbm", 600.0),
]
NOISE = (-0.01, 0.0, 0.01)
"""Of three replications, common to all policies, so that pairs do not show it."""
CONFIG: dict[str, Any] = {
    "kind": "sweep", "name": "planted", "summary": "", "question": "Why?", "measure": "odma_paper",
    "base": {"replications": 3, "assumption": {"name": "centre"}},
    "axes": {"dataset": [{"name": "alpaca"}], "device_set": [card for card, _, _ in CARDS]},
    "variants": {
        "analytic": {"role": "control", "set": {"serving.memory.fidelity": "analytic"}},
        "fast": {"role": "control", "set": {
            "serving.memory.fidelity": "analytic", "device_set.compute.fp16": "1PFLOPS",
        }},
    },
    "compare": "device_set",
}  # fmt: skip


def planted(
    path: Path,
    capacity: tuple[float, float, float] = (0.4, 0.1, 0.1),
    layout: tuple[float, float, float] = (-0.02, -0.02, -0.03),
    kv: float = 250.0,
    spread: float = 0.0,
    control: bool = True,
    flops: float = 0.0,
    assumed: str = "dma.window",
    fast: float | None = None,
) -> Report:
    """A run in which ln(paged / static) is capacity + layout on each card; paged's alone has
    `spread` from replication to replication on simulated memory. fast: capacity under a second
    control, which is otherwise not run."""
    run = RunDirectory(path)
    run.create(CONFIG, {**PROVENANCE, "assumed": {"card": {assumed: "0.5"}}}, {})
    names = ["", *(["analytic"] if control else []), *([] if fast is None else ["fast"])]
    places = [(name, i) for name in names for i in range(len(CARDS))]
    for point, (name, i) in enumerate(places):
        card, memory, gbps = CARDS[i]
        for replication, noise in enumerate(NOISE, 1):
            static = 1000 * (1 + i) * math.exp(noise)
            shift = capacity[i] + (0.0 if name else layout[i] + spread * (replication - 2))
            if name == "fast" and fast is not None:
                shift = fast
            metrics = {
                "card": {"memory": memory, "peak_gbps": gbps},
                "throughput": {"static": static, "paged": static * math.exp(shift)},
                "batch": {"static": 60.0, "paged": 120.0},
                "kv_gbps": {"static": 250.0, "paged": kv},
                "kv_time_share": {"static": 0.2, "paged": 0.3},
                "compute_share": {"static": 0.0, "paged": flops},
                "prefill_share": {"static": 0.0, "paged": 0.1},
            }
            run.append({
                "point": point, "control": name, "replication": replication, "metrics": metrics,
                "overrides": {"dataset": {"name": "alpaca"}, "device_set": card},
                "rate_per_s": None, "seed": [1, 99 + replication],
            })  # fmt: skip
    run.release()
    return read_report(path)


def cells(report: Report) -> list[dict[str, str]]:
    effects, _ = report.grids
    return [dict(zip(effects.columns, row, strict=True)) for row in effects.rows]


def effects(report: Report) -> list[Effects]:
    return [each for card in report.found.own.cards for each in card.effects]


def test_planted_effects_are_found_with_their_signs(tmp_path: Path) -> None:
    first, second, third = cells(planted(tmp_path / "run", kv=225.0))
    assert first["card"] == "lpddr, 300 GB/s" and first["paged over"] == "static"
    # noise that all share leaves no interval
    assert first["gap"] == "+0.380 (+0.380 to +0.380)"
    assert first["capacity"] == "+0.400 (+0.400 to +0.400)"
    assert first["layout"] == "-0.020 (-0.020 to -0.020)" and first["bandwidth"] == "–"
    # 0.3 of the time at 225 instead of 250 GB/s: ln(0.7 + 0.3 * 0.9) = ln 0.97
    assert first["KV bandwidth"].startswith("-0.030 ")
    assert second["bandwidth"].startswith("-0.300 ")  # 0.08 against 0.38
    assert third["bandwidth"].startswith("-0.310 ") and third["card"] == "hbm, 600 GB/s"


def test_the_interval_is_students(tmp_path: Path) -> None:
    found = cells(planted(tmp_path / "run", layout=(-0.02, 0, 0), spread=0.03))[0]
    half = t_quantile(2) * 0.03 / math.sqrt(3)  # the deviation of -0.03, 0, 0.03 is 0.03
    assert found["layout"] == f"-0.020 ({-0.02 - half:+.3f} to {-0.02 + half:+.3f})"
    assert found["capacity"] == "+0.400 (+0.400 to +0.400)"


def test_policies_are_set_beside_the_first_card(tmp_path: Path) -> None:
    _, grid = planted(tmp_path / "run").grids
    cells = {(row[1], row[2]): dict(zip(grid.columns, row, strict=True)) for row in grid.rows}
    assert cells["lpddr, 300 GB/s", "static"]["over the first card"] == "–"
    static = cells["lpddr, 600 GB/s", "static"]
    assert static["over the first card"] == "+100 % (100 to 100)" and static["batch"] == "60"
    assert cells["lpddr, 600 GB/s", "paged"]["over the first card"].startswith("+48 %")  # 2 / e^0.3


def test_effects_on_a_card_have_their_significance(tmp_path: Path) -> None:
    layout = (-0.02, -0.4, 0.0)
    first, second, _ = effects(planted(tmp_path / "a", capacity=(0.4, 0.1, 0.0), layout=layout))
    assert first.capacity is not None and first.capacity.mean == pytest.approx(0.4)
    assert (first.gap.sign, second.gap.sign, first.bandwidth) == (1, -1, None)
    wide = planted(tmp_path / "b", capacity=(0, 0, 0), layout=(0, 0, 0), spread=0.1)
    assert [each.gap.sign for each in effects(wide)] == [0, 0, 0]
    plain = planted(tmp_path / "c", control=False)
    assert {(each.capacity, each.layout) for each in effects(plain)} == {(None, None)}


def test_another_control_is_beside_the_analytic_one(tmp_path: Path) -> None:
    found = effects(planted(tmp_path / "fast", fast=0.2))
    assert [each.others["fast"].mean for each in found] == [pytest.approx(0.2)] * 3
    again = cells(planted(tmp_path / "again", fast=-0.2))
    assert again[0]["capacity, fast"] == "-0.200 (-0.200 to -0.200)"
    assert not any(each.others for each in effects(planted(tmp_path / "none")))


def test_the_findings_page_is_the_report_without_its_charts(tmp_path: Path) -> None:
    report = planted(tmp_path / "planted")
    other = made(tmp_path / "made")
    page = findings([report.table.path, other])
    assert page.startswith("# Findings\n")
    for text in report.sentences:
        assert f"- {text}\n" in page
    assert (
        page.index("- planted: The gap of paged") < page.index("## planted") < page.index("## made")
    )
    assert "| alpaca | lpddr, 300 GB/s | static | +0.380 (+0.380 to +0.380) |" in page
    whole = markdown([report.section])
    for line in page.split("## planted\n")[1].split("\nFrom bankwise")[0].splitlines():
        assert line.removeprefix("#") in whole
    chart = "**alpaca: factors of paged's output tokens/s over another's**"
    assert chart in whole and chart not in page
    assert "| policy | output tokens/s |" in page and "Assumed numbers" not in page
    assert "commit: abc" in page
    changed = planted(tmp_path / "changed", capacity=(0.01, 0, 0), layout=(-0.3, -0.2, -0.1))
    assert "is layout, not capacity" in findings([changed.table.path])


def test_the_findings_of_nothing_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["findings", str(tmp_path / "nothing")])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    shown = capsys.readouterr()
    assert "no such directory" in shown.err and not shown.out


@pytest.mark.long
def test_the_shipped_sweep_serves_the_same_requests_on_every_card() -> None:
    points = load_sweep(
        RESULTS / "odma-paper-paged.yaml", ["requests=60", "warmup_requests=20"]
    ).points
    analytic = [point.experiment for point in points if point.control == "analytic"]
    specs = [each for each in analytic if each.assumption.name == "centre"][:2]
    found = []
    for spec in specs:
        assert isinstance(spec, OdmaPaperSpec)
        found.append(measure(Task(spec, 1, None)))
    assert [each["card"]["peak_gbps"] for each in found] == pytest.approx([307.2, 614.4])
    for each in found:
        assert list(each["throughput"]) == ["odma", "static", "odma in hard pools", "paged"]
    for key in ("scale", "spread", "accuracy"):
        assert found[0][key] == found[1][key]
    assert found[1]["throughput"]["static"] > 1.5 * found[0]["throughput"]["static"]
