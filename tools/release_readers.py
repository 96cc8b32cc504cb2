"""What the release run takes of a run by more than a metric's path: functions of its folder."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hwmodel.description.library import names
from hwmodel.description.yaml_reader import load
from policies.memory.measured import compare, load_measurements
from policies.memory.measured_cells import ComparedCell, Skipped
from sweeps.analyse.statistics import Interval, interval
from sweeps.ask import validation
from sweeps.ask.restore import RestoreQuestion
from sweeps.run import explanation, next_answer
from sweeps.run.store import RunDirectory
from sweeps.study.by_device import counts
from tools.claims import verdicts
from tools.figures import ROOT, SECOND, read_results

Read = Callable[[Path], dict[str, Any]]
RECORDED = Path(__file__).resolve().parents[1] / "tests/reference"
LAST = Path(__file__).resolve().parents[1] / "docs/release/last/accuracy.yaml"
"""Errors of the last release."""


def of_logs(found: Interval) -> list[float]:
    """A ratio of its logarithm."""
    return [math.exp(each) for each in (found.mean, found.low, found.high)]


def of_gain(found: dict[str, float]) -> list[float]:
    """A ratio of the gain over one."""
    return [1 + found[each] for each in ("mean", "low", "high")]


def why(folder: Path) -> dict[str, Any]:
    """The causes of the gap to odma, as factors that multiply to it."""
    return {
        f"why/{part.words}": {
            "one after another": of_logs(part.forward), "in reverse order": of_logs(part.reverse)
        }
        for each in explanation.read(folder) if each.loser == "odma" for part in each.parts
    }  # fmt: skip


def next_question(folder: Path) -> dict[str, Any]:
    """A gap with one thing after another changed."""
    (answer,) = next_answer.read(folder)
    rows = [("as described", of_logs(answer.total))]
    rows += [(reply.change, of_logs(gap)) for reply, gap in answer.known]
    least, most = answer.known[0], answer.known[-1]
    return {
        "changes": {name: {f"{answer.winner} over {answer.loser}": gap} for name, gap in rows},
        "counts": {
            "changes": len(answer.replies), "winner leads": len(answer.with_sign(1)),
            "loser leads": len(answer.with_sign(-1)),
        },
        "least": of_logs(least[1]), "least with": least[0].change,
        "most": of_logs(most[1]), "most with": most[0].change,
    }  # fmt: skip


def crossing_map(folder: Path) -> dict[str, Any]:
    """Who wins how many of the combinations of a map, and by how much."""
    found = json.loads((folder / "findings.json").read_text(encoding="utf-8"))["verdicts"]
    own = [each for each in found if ", as described" in each["title"]]
    won = [each for each in own if each["outcome"] == "won"]
    leads = sorted(
        (of_gain(each["gaps"][0]["total"]) for each in won if each["leader"] == "paged"),
    )
    return {
        "combinations": len(own), "paged wins": len(leads),
        "another wins": len(won) - len(leads), "no winner": len(own) - len(won),
        "least lead": leads[0], "largest lead": leads[-1],
    }  # fmt: skip


def crossings(folder: Path) -> dict[str, Any]:
    """By device: the gap as described, and the share of contiguous bandwidth that scattered KV
    must be read at for the two to tie."""
    own = json.loads((folder / "findings.json").read_text(encoding="utf-8"))["own"]
    rows = {}
    for search in own["searches"]:
        ((found,), now) = search["numbers"], search["now"]
        gap = [math.exp(now[each]) for each in ("mean", "low", "high")]
        tie = "none between 0.1 and 1"
        if at := found["crossing"]:
            low, high = (1 / (at[each] or end) for each, end in (("high", 10), ("low", 1)))
            tie = f"{1 / at['at']:.2f} ({low:.2f} to {high:.2f})"
        rows[search["name"]] = {
            f"{own['ours']} over {own['theirs'][0]}": gap,
            "they tie where scattered KV is read at": tie,
        }  # fmt: skip
    return {"devices": rows}


def bursts(folder: Path) -> dict[str, Any]:
    """How many times sooner the 99th percentile of first tokens comes with dropping, by burst."""
    p99: dict[tuple[int, bool], float] = {}
    for record in RunDirectory(folder).records():
        cluster = record["overrides"].get("serving.cluster")
        if record["overrides"].get("case", "").endswith("keep KV") and cluster in BURSTS:
            key = (record["replication"], "dropping" in cluster)
            p99[key] = record["metrics"]["ttft_s"]["p99"]
    seeds = sorted({seed for seed, _ in p99})
    times = [p99[seed, False] / p99[seed, True] for seed in seeds]
    return {"times by burst": ", ".join(f"{each:.2g}" for each in times)}


def attention_times(folder: Path) -> dict[str, Any]:
    """What attention takes of a step for each request that runs, in 4.8 bits over fp16 on the same
    card, by requests at once, and the mean over these."""
    times: dict[tuple[str, int, bool], float] = {}
    for record in RunDirectory(folder).records():
        overrides, metrics = record["overrides"], record["metrics"]
        if (device := overrides["device"]) in ("oaken-lpddr", "LPDDR, fp16"):
            key = (overrides["case"], record["replication"], device == "oaken-lpddr")
            a_step = metrics["step_s"] * metrics["phase_share"]["attention"]
            times[key] = a_step / metrics["batch"]
    cases = dict.fromkeys(case for case, *_ in times if case.endswith("at once"))
    count = max(replication for _, replication, _ in times)
    logs = {
        case.removesuffix(" at once"): [
            math.log(times[case, each, True] / times[case, each, False])
            for each in range(1, count + 1)
        ]
        for case in cases
    }
    means = [math.fsum(each) / len(logs) for each in zip(*logs.values(), strict=True)]
    found = {name: of_logs(interval(each)) for name, each in {**logs, "mean": means}.items()}
    return {"attention over fp16": found}


def claims(folder: Path) -> dict[str, Any]:
    """The verdicts on claims of papers, under two seeds."""
    return verdicts(ROOT, read_results(), read_results(folder=SECOND))


BURSTS = ({"cards": 4}, {"cards": 4, "dropping": {"link": "rdma-200"}})


def devices(folder: Path) -> dict[str, Any]:
    """The best buckets and pool of a study on each device, what its families bring, and on how many
    devices that is so: one family (Holm), more than 1 %, those whose memory is given apart."""
    found = json.loads((folder / "devices.json").read_text(encoding="utf-8"))
    rows = {
        each["device"]: {
            "model": each["model"], "buckets": str(len(each["bounds"])),
            "first and last bound, tokens": f"{each['bounds'][0]:,} to {each['bounds'][-1]:,}",
            "pool": f"{each['pool_share']:.0%}", "tokens a second": each["mean"],
            **{f"over {name}": of_gain(gap) for name, gap in each["over"].items() if gap},
            **{f"{name}, over the best other": of_gain(family["gain"])
               for name, family in each["families"].items() if family["gain"]},
            "proposed by": f"{each['phase']}, {each['best']}",
            "binds": each["binds"],
        }
        for each in found
    }  # fmt: skip
    memories = {"simulated": True, "given": False}
    return {"devices": rows, "counts": {
        name: _counted([each for each in found if (each["fidelity"] == "sampled") is simulated])
        for name, simulated in memories.items()
    }}  # fmt: skip


def _counted(found: list[dict[str, Any]]) -> dict[str, int]:
    """On how many of these devices the best serves more than each, and less, and what else is so
    there."""
    held: dict[str, int] = {"devices": len(found)}
    pairs = {
        **{name: {e["device"]: e["over"].get(name) for e in found}
           for name in ("paper", "odma-best", "paged", "static")},
        **{name: {e["device"]: e["families"].get(name, {}).get("gain") for e in found}
           for name in ("a pool", "own quantiles", "partitioned pools")},
    }  # fmt: skip
    for name, gaps in pairs.items():
        of = counts((device, gap and Interval(**gap)) for device, gap in gaps.items())
        held |= {f"{name}, more": of.more, f"{name}, less": of.less}
    held["keep a pool"] = sum(each["pool_share"] > 0 for each in found)
    held["proposed by arithmetic"] = sum(each["phase"] == "first" for each in found)
    close = [abs(each["over"]["odma-best"]["mean"]) <= 0.03 for each in found]
    return {**held, "within 3 % of odma-best": sum(close)}


def measurements(_: Path) -> dict[str, Any]:
    """The model beside all measurements that ship; those whose log is not here are left out."""
    found: validation.Found = {}
    for name in validation.sources():
        try:
            found[name] = validation.compared(validation.loaded(name))
        except Skipped as why:
            print(f"{name} is left out: {why}", file=sys.stderr)
            found[name] = []
    return validation.figures(found)


def servers(_: Path) -> dict[str, Any]:
    """Whole servers beside our serving."""
    from sweeps.ask.published_servers import summary

    return summary(_served())


@cache
def _served() -> list[Any]:
    """Whole servers beside our serving, served once."""
    from sweeps.ask.published_servers import each, possible

    return list(each(possible()))


def accuracy_of_times(_: Path) -> dict[str, Any]:
    """Times of steps and servers by class, beside those of the last release."""
    from sweeps.ask.accuracy import compared_with, figures, of_servers, steps

    found: list[ComparedCell] = []
    for name in names("measurements"):
        spec = load_measurements(name)
        timed = [
            cell for cell in spec.cells
            if cell.measured is not None and (cell.decode is not None or cell.prefill is not None)
        ]  # fmt: skip
        found += compare(spec.model_copy(update={"cells": timed}))
    times, last = steps(found) + of_servers(_served()), load(LAST).data
    beside = compared_with(times, last["version"], last["errors"])
    return (
        figures(times, [name for name in names("kernels") if name != "ideal"])
        | beside
        | {"outside": last["outside"]}
    )


def laws(_: Path) -> dict[str, Any]:
    """What each law brings over public cells, alone and beside the others."""
    from sweeps.ask.laws import ablation

    return ablation()


def memory_map(folder: Path) -> dict[str, Any]:
    """Prices of HBM at which another card serves more, and the picture."""
    from tools.memory_map import taken

    return taken(folder)


def burst_map(folder: Path) -> dict[str, Any]:
    """Nothing beside the values of the part; draws them into `bursts.svg` in its folder."""
    from tools.burst_map import draw
    from tools.release import parts, taken

    draw(taken(parts()[folder.name]["values"], folder), folder / "bursts.svg")
    return {}


def schedules(folder: Path) -> dict[str, Any]:
    """How many steps of the recorded schedules that ship the engines take alike, by server."""
    from policies.engines.schedule_cases import read_cases
    from policies.engines.schedule_check import check
    from tests.policies.engines import test_sglang as sglang

    vllm = [
        check(case) for file in sorted(RECORDED.glob("vllm_*schedules*.json.gz"))
        for case in read_cases(file)
    ]  # fmt: skip
    cases = sglang.cases()
    return {
        "vLLM": {
            "schedules": len(vllm), "steps": sum(each.steps for each in vllm),
            "alike": sum(each.agreeing for each in vllm),
        },
        "SGLang": {
            "schedules": len(cases), "steps": sum(len(case["steps"]) for case in cases),
            "schedules alike": sum(not sglang.difference(case) for case in cases),
        },
    }  # fmt: skip


def speed(folder: Path) -> dict[str, Any]:
    """Speed beside other simulators, as it was last measured where they are built."""
    kept = Path(__file__).resolve().parents[1] / "docs/release"
    memories = json.loads((kept / "speed.json").read_text(encoding="utf-8"))
    serving = json.loads((kept / "serving-speed.json").read_text(encoding="utf-8"))
    loads = sorted([*memories["loads"], *serving.pop("loads")])
    return {
        "machine": memories["machine"], "rounds": memories["rounds"],
        "rounds of serving": serving["rounds"],
        "load": [loads[len(loads) // 2], loads[0], loads[-1]],
        "memory": {
            f"{pair}, {stream}": found for pair, streams in memories["pairs"].items()
            for stream, found in streams.items()
        },
        "serving": {key: found for key, found in serving.items() if isinstance(found, dict)},
    }  # fmt: skip


def windows(_: Path) -> dict[str, Any]:
    """Short probes beside long ones, as they were last measured (tools.windows)."""
    from hwmodel.specs.device import load_device

    kept = Path(__file__).resolve().parents[1] / "docs/release/windows.csv"
    with kept.open(encoding="utf-8") as file:
        cells = list(csv.DictReader(file))

    def by(column: str) -> dict[str, Any]:
        kinds = dict.fromkeys(cell[column] for cell in cells)
        return {kind: _windows([c for c in cells if c[column] == kind]) for kind in kinds}

    every = _windows(cells) | {"devices": len({cell["device"] for cell in cells})}
    usual = [cell for cell in cells if "postponed" not in cell["mode"]]
    fast = [cell for cell in usual if load_device(cell["device"]).peak_gbps > FAST_GBPS]
    return every | {
        "not postponed": _windows(usual), "not postponed, above 4 TB/s": _windows(fast),
        "modes": by("mode"), "probes": by("probes"),
    }  # fmt: skip


def capacities(_: Path) -> dict[str, Any]:
    """Capacities of short runs beside those of long ones, by pair."""
    from tests.answers.coverage import covered

    every = list(covered())
    pairs = {
        ", ".join(each.pair): {
            "requests a second": each.per_s, "runs": each.runs, "held": each.held,
            "refused": each.refused, "worst missed by": each.missed,
        }
        for each in every
    }  # fmt: skip
    held, runs = sum(each.held for each in every), sum(each.runs for each in every)
    worst = max(each.missed for each in every)
    return {"runs": runs, "held": held, "worst missed by": worst, "pairs": pairs}


def _windows(cells: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Of these cells how many, how many within 2 %, and so on."""
    off = [abs(float(cell["off"])) for cell in cells]
    found: dict[str, Any] = {
        "cells": len(cells), "within 2 %": sum(each <= 0.02 for each in off), "farthest": max(off),
        "interval of 3 % at most": sum(float(cell["half"]) <= 0.03 for cell in cells),
        "covered": sum(cell["covers"] == "yes" for cell in cells),
    }  # fmt: skip
    former = [abs(float(cell["former_off"])) for cell in cells if cell["former_off"]]
    if former:
        within = sum(each <= 0.02 for each in former)
        found |= {"cells with 0.3.0 beside": len(former), "0.3.0 within 2 %": within,
                  "farthest of 0.3.0": max(former)}  # fmt: skip
    return found


def kv_layouts(_: Path) -> dict[str, Any]:
    """Tokens over heads outermost by device and map: what each kind of read keeps of the rate."""
    from policies.memory.layout_read import Geometry
    from policies.memory.measured import compare, load_measurements
    from sweeps.ask.memory_layouts import READS
    from sweeps.ask.memory_layouts import kv_layouts as read

    cells = compare(load_measurements("strix-halo-layout"))
    said = {each.cell.what.replace(":", ","): each.model for each in cells}
    found: dict[str, Any] = {"kept": {}, "tokens outermost": {}, "strix-halo": said}
    for name in LAID_OUT:
        each = read(name, geometries=[Geometry(4, 128), Geometry(8, 128)])
        for how in each.maps:
            kept = {kind: each.cost(how, kind)[0] for kind in READS}
            found["kept"][f"{name}, {how}"] = kept | {
                "prefill, pad of 16 B": each.cost(how, "prefill", padded=True)[0]
            }
        for row in each.rows:
            if row.map == "as described" and row.order == "tokens":
                shape = f"{name}, {row.geometry.kv_heads} x {row.geometry.head_dim}"
                found["tokens outermost"][shape] = {
                    "channels of a head": row.channels, **row.gbps, "prefill, pad of 16 B":
                    row.padded["prefill"],
                }  # fmt: skip
    return found


def hcache(_: Path) -> dict[str, Any]:
    """What restoring a context from hidden states takes, beside the other ways, on the paper's card
    and drives, and the most that it saves; OPT-30B takes a card with more memory."""
    found: dict[str, Any] = {}
    for model, name, device, tokens in (
        ("llama-2-7b", "Llama-2-7B", "a100-40gb", (1024, 4096)),
        ("llama-2-13b", "Llama-2-13B", "a100-40gb", (1024, 4096)),
        ("opt-30b", "OPT-30B", "a100-80gb", (1024, 2048)),
    ):
        asked = RestoreQuestion(link="nvme-4x", model=model, device=device, tokens=tokens).answer()
        for context in asked.contexts:
            ways = context.ways
            found[f"{name}, {context.tokens:,} tokens"] = {
                "fetching over it": ways["fetch KV"].ms / ways["HCache"].ms,
                "computing again over it": ways["recompute"].ms / ways["HCache"].ms,
                "bytes of KV over its": ways["fetch KV"].bytes / ways["HCache"].bytes,
            }
    columns = next(iter(found.values()))
    most = {column: max(row[column] for row in found.values()) for column in columns}
    return {"restored": found, "at most": most}


def recomputed(_: Path) -> dict[str, Any]:
    """How long a request that moves would be computed again, in part migration's case."""
    asked = RestoreQuestion(
        link="ethernet-64", model="llama-3.1-8b", device="a10g", tokens=(256, 8192)
    ).answer()
    found = {
        f"{each.tokens:,} tokens": {"s": each.ways["recompute"].ms / 1e3} for each in asked.contexts
    }
    return found


def h3(_: Path) -> dict[str, Any]:
    """H3's three ratios."""
    from tools.h3 import ratios

    return ratios()


FAST_GBPS = 4000.0
"""Cards whose layers of three refresh intervals are far longer than what is simulated whole."""
LAID_OUT = ("strix-halo", "mlu370-x4", "dgx-spark-gb10", "m2-ultra", "a100-80gb", "h100-sxm")
"""Devices of docs/layout.md."""
READERS: dict[str, Read] = {
    "why": why, "next_question": next_question, "crossing_map": crossing_map, "devices": devices,
    "attention_times": attention_times, "crossings": crossings, "bursts": bursts,
    "burst_map": burst_map, "memory_map": memory_map,
    "h3": h3, "hcache": hcache, "recomputed": recomputed,
    "measurements": measurements, "servers": servers, "accuracy_of_times": accuracy_of_times,
    "laws": laws, "schedules": schedules, "speed": speed,
    "kv_layouts": kv_layouts, "windows": windows, "capacities": capacities,
    "claims": claims,
}  # fmt: skip
