"""Does `export` write what a run's steps move, in every format, and answer mistakes?"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.allocators.registry import POLICIES
from policies.memory.step_streams import PHASES
from sweeps.plan.experiment import Task
from sweeps.plan.sweep_spec import Point
from sweeps.run import timeline_export, trace_export
from sweeps.run.one_point import point_of
from sweeps.run.trace_export import _format, _phases, _span
from tests.rotation import shared
from tests.sweeps.cli.test_command_line import bankwise
from tests.sweeps.cli.test_memory_commands import found
from tests.sweeps.cli.test_mistakes import mistakes

FORMATS = ("ramulator", "ramulator-vector", "dramsim3", "gem5")
SMALL = (
    "--jobs", "1", "--set", "serving.memory.efficiency=1", "--set", "model_set.layers=2",
    "--set", "warmup_requests=0", "--set", "requests=10",
)  # fmt: skip
ONE = ("smoke", *SMALL, "--set", "policy=paged", "--set", "load={rate_per_s: 100}")
FEW = (
    "smoke", "--jobs", "1", "--set", "serving.memory.efficiency=1", "--set", "warmup_requests=0",
    "--set", "requests=4", "--set", "load={rate_per_s: 2000}", "--set", "model_set.layers=4",
    "--set", "workload_set.lengths.constant={prompt_tokens: 40, output_tokens: 12}",
)  # fmt: skip
"""Short enough that a whole layer of a step replays in a moment."""
PAGED = (*FEW, "--set", "policy=paged")
REPLAY_ALIKE = ("requests", "bytes", "cycles", "row_hits", "row_misses", "row_conflicts")


@pytest.mark.long
def test_each_format_of_a_step_replays_alike(tmp_path: Path) -> None:
    asked = (*ONE, "--steps", "30", "--channel", "5")
    ours = found("export", *asked, "--out", tmp_path / "ours.npz")
    assert (ours["device"], ours["channel"], ours["format"]) == ("mlu370-x4", 5, "bankwise")
    assert [step["step"] for step in ours["steps"]] == [30]
    replayed = found("replay", "mlu370-x4", tmp_path / "ours.npz", "--channel", "--at-once")
    assert replayed["requests"] == ours["accesses"]
    for name in FORMATS:
        file = tmp_path / f"{name}.trace.gz"
        other = found("export", *asked, "--format", name, "--out", file)
        same = ("accesses", "writes", "bytes", "memory_ns", "steps")
        assert [other[key] for key in same] == [ours[key] for key in same]
        again = found("replay", "mlu370-x4", file, "--channel", "--at-once")
        assert [again[key] for key in REPLAY_ALIKE] == [replayed[key] for key in REPLAY_ALIKE]


def test_a_step_of_a_run_is_mapped_by_bank(tmp_path: Path) -> None:
    """`export`, then `replay --banks`: which channels and banks a decode step opens rows in."""
    done = found("export", *PAGED, "--steps", "3", "--out", tmp_path / "step.npz")
    replayed = found("replay", "mlu370-x4", tmp_path / "step.npz", "--banks")
    assert replayed["requests"] == done["accesses"]
    banks = replayed["banks"]
    activations, conflicts = (np.array(banks[name]) for name in ("activations", "conflicts"))
    assert activations.shape == conflicts.shape == (24, 16)
    assert activations.sum() == replayed["commands"]["ACT2"]
    assert conflicts.sum() == pytest.approx(replayed["row_conflicts"], rel=0.1)
    assert activations.all()  # KV in the order of vLLM lies in every bank


def test_a_step_moves_what_its_sequences_have_stored(tmp_path: Path) -> None:
    done = found("export", *PAGED, "--steps", "3:5", "--out", tmp_path / "a.npz")
    each = 2 * 32 * 128 * 2  # bytes of K and V of a token in a layer of llama-2-7b
    tokens = sum(step["context_tokens"] + step["decode"] for step in done["steps"])
    assert done["bytes"] == tokens * each and done["lacks"] == "nothing"
    assert done["writes"] * 32 == sum(step["decode"] for step in done["steps"]) * each
    with np.load(tmp_path / "a.npz") as arrays:
        assert len(np.unique(arrays["address"][arrays["write"] == 1])) == done["writes"]
        assert (np.diff(arrays["picosecond"]) >= 0).all() and arrays["picosecond"][0] > 0


LINK = "mooncake-rdma-400"
ARRANGED: dict[str, tuple[str, ...]] = {
    "found prefixes": ("policy={name: paged, prefix_caching: true}",),
    "tiers": (
        "policy=paged", "serving.tiers={host: {link: pcie5-h100-batched, cpu_bytes_to_use: 1GB}}",
    ),
    "prefill": ("policy=paged", f"serving.pools={{prefill: {{}}, decode: {{}}, link: {LINK}}}"),
    "TP2": ("policy=paged", "serving.tensor_parallel=2"),
    "second replica": ("policy=ideal", "serving.cluster={cards: 2}", "--replica=1"),
    "third of two cells": ("policy=paged", "serving.cluster={cards: 4, cells: 2}", "--replica=2"),
    "stages": ("policy=paged", "serving.cluster={stages: 2}"),
    "drafts": (
        "policy=paged",
        "serving.speculation={method: ngram, tokens: 2, acceptance: [0.7, 0.4]}",
    ),
    "states": (
        "policy=paged", "device=h100-sxm", "model=qwen3-next-80b-a3b", "serving.tensor_parallel=4",
    ),
    "windows": ("policy=paged", "device=h100-sxm", "model=gpt-oss-20b"),
    "scales apart": ("policy=paged", "serving.kv=oaken", "serving.kv_layout=layer_kv_head_block"),
    **{name: (f"policy={name}",) for name in POLICIES},
}  # fmt: skip


@pytest.mark.parametrize("name", shared(ARRANGED, first=6, every=20))
def test_a_replayed_stream_takes_the_cycles_that_it_took(name: str, tmp_path: Path) -> None:
    options = [each for each in ARRANGED[name] if each.startswith("--")]
    sets = [part for each in ARRANGED[name] if each not in options for part in ("--set", each)]
    phase = "prefill" if name == "prefill" else "attention"
    asked = (*FEW, *sets, *(part for each in options for part in each.split("=")))
    steps = "0" if phase == "prefill" else "3"
    file = tmp_path / "a.npz"
    done = found("export", *asked, "--steps", steps, "--phase", phase, "--out", file)
    again = found("replay", done["device"], file)
    assert again["requests"] == done["accesses"] > 0
    assert again["cycles"] * again["tck_ns"] == pytest.approx(done["memory_ns"], abs=1e-6)


@pytest.mark.long
def test_a_replica_of_a_pool_moves_what_its_sequences_have_stored(tmp_path: Path) -> None:
    pools = ("--set", "serving.pools={prefill: {}, decode: {}, link: mooncake-rdma-400}")
    asked = (*ONE, *pools, "--steps", "20", "--replica", "1")
    done = found("export", *asked, "--out", tmp_path / "a.npz")
    tokens = sum(step["context_tokens"] + step["decode"] for step in done["steps"])
    assert done["bytes"] == tokens * 2 * 32 * 128 * 2 and done["steps"][0]["decode"] > 0
    said = mistakes(tmp_path, "export", *asked[:-1], "2", "--out", "b.npz")
    assert "--replica: there are replicas 0 to 1; got 2" in said[0]


def test_weights_go_round_the_channels_and_times_may_be_left_out(tmp_path: Path) -> None:
    asked = (
        "--phase",
        "weights",
        "--channel",
        "0",
        "--at-once",
        "--format",
        "gem5",
        "--steps",
        "1",
    )
    done = found("export", *ONE, *asked, "--out", tmp_path / "w")
    weights = load_model("llama-2-7b").layer_weight_edges[1]
    assert done["bytes"] == pytest.approx(weights / 24, rel=1e-3) and done["writes"] == 0
    lines = (tmp_path / "w").read_text().splitlines()
    assert {line.split(",")[3] for line in lines} == {"0"}
    assert sum(int(line.split(",")[2]) for line in lines) == done["bytes"]


def test_a_peers_mapper_is_named_and_a_linear_one_warned_of(tmp_path: Path) -> None:
    asked = (*ONE, "--steps", "1", "--channel", "5", "--format", "ramulator")
    plain = bankwise("export", *asked, "--out", tmp_path / "plain")
    assert plain.returncode == 0 and "bank hashes and split fields" in plain.stderr
    encoded = bankwise("export", *asked, "--mapper", "RoBaRaCoCh", "--out", tmp_path / "encoded")
    assert (encoded.returncode, encoded.stderr) == (0, "")
    assert "for the mapper RoBaRaCoCh, not for bankwise replay" in encoded.stdout
    one, other = ((tmp_path / name).read_text().splitlines() for name in ("plain", "encoded"))
    assert len(one) == len(other) and one != other


@pytest.mark.long
def test_a_run_directory_offers_what_its_run_offered(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert bankwise("run", "smoke", *SMALL, "--set", "replications=1", "--out", run).returncode == 0
    lines = (run / "results.jsonl").read_text().splitlines()
    assert all(json.loads(line)["rate_per_s"] > 0 for line in lines)
    of: dict[str, Any] = {}
    for name, given in (("run", (run,)), ("sweep", ("smoke", *SMALL))):
        of[name] = found("export", *given, "--point", "1", "--out", tmp_path / "t.gz")
    assert of["run"] == of["sweep"]


@pytest.mark.parametrize(
    ("text", "steps"),
    [("0", [0]), ("8", [8]), ("2:5", [2, 3, 4]), ("6:", [6, 7, 8]), (":3", None), ("9", None),
     ("5:5", None), ("2:10", None), ("all", range(9)), ("-1", None)],
)  # fmt: skip
def test_what_a_span_means(text: str, steps: list[int] | None) -> None:
    """Of nine steps."""
    if steps is not None:
        assert list(_span(text, "--steps", 9)) == list(steps)
        return
    with pytest.raises(DescriptionError, match="expected"):
        _span(text, "--steps", 9)


@pytest.mark.parametrize(
    ("form", "writes", "channel", "mapper", "warned"),
    [
        ("bankwise", 3, None, None, ""),
        ("ramulator-vector", 3, None, None, "leaves writes without an address"),
        ("ramulator-vector", 0, None, None, ""),
        ("ramulator", 3, None, None, "a channel hash and 24 channels, .*; use --mapper"),
        ("dramsim3", 0, None, None, "24 channels"),
        ("gem5", 0, None, None, "use --format ramulator or dramsim3 and --mapper"),
        ("ramulator", 3, None, "RoBaRaCoCh", ""),
        ("ramulator", 3, 5, None, "has bank hashes and split fields, which"),
    ],
)
def test_what_a_peer_would_get_wrong_in_silence_is_said(
    form: str, writes: int, channel: int | None, mapper: str | None, warned: str
) -> None:
    exported = SimpleNamespace(writes=writes, channel=channel, mapper=mapper)
    card = load_device("mlu370-x4")
    said = trace_export._warnings(cast(Any, exported), _format(form, Path("a.txt")), card)
    assert len(said) == bool(warned) and all(re.search(warned, each) for each in said)


WHOLE = range(2, 1 << 62)


@pytest.mark.parametrize(
    ("passed", "steps", "accesses", "refused"),
    [
        (5, range(2, 5), 1, ""),
        (3, WHOLE, 1, ""),
        (4, range(2, 5), 1, r"--steps: the run has 4 steps, 0 to 3; got 2:5"),
        (2, WHOLE, 1, "the run has 2 steps"),
        (
            5,
            range(2, 5),
            0,
            "--phase: steps 2:5 move nothing .* on channel 7; got weights",
        ),
    ],
)
def test_steps_that_are_not_there_or_move_nothing_are_refused(
    passed: int, steps: range, accesses: int, refused: str
) -> None:
    wanted = trace_export.WantedTrace(steps="2:5", phase="weights", channel=7)
    writer = cast(Any, SimpleNamespace(accesses=accesses))
    if not refused:
        trace_export._refuse_nothing(passed, steps, writer, wanted)
        return
    with pytest.raises(DescriptionError, match=refused):
        trace_export._refuse_nothing(passed, steps, writer, wanted)


def test_which_formats_are_there(tmp_path: Path) -> None:
    for name, file, why in (
        ("ramulato", "a", "did you mean 'ramulator'"), ("gem5", "a.npz", "of format bankwise"),
        ("gem5", "", "is a directory"),
    ):  # fmt: skip
        with pytest.raises(DescriptionError, match=why):
            _format(name, tmp_path / file)
    assert _format("gem5", tmp_path / "a").name == "gem5"
    point = Point(0, {"device": "/a/card.yaml", "batch": 8}, "", cast(Any, None))
    card = load_device("mlu370-x4")
    told = trace_export._remark(card, point, trace_export.WantedTrace(channel=3))
    assert told.startswith("mlu370-x4: card, 8; steps 100, layers 0, attention; channel-3 addr")
    bare = trace_export._remark(card, Point(0, {}, "", cast(Any, None)), trace_export.WantedTrace())
    assert bare.startswith("mlu370-x4: one point;") and "; device addresses" in bare


def test_all_phases_or_one() -> None:
    with pytest.raises(DescriptionError, match="did you mean 'weights'"):
        _phases("weight")
    assert _phases("all") == PHASES and all(_phases(name) == (name,) for name in PHASES)


@pytest.mark.parametrize("many", [2, 12, 13, 40])
def test_a_point_is_asked_for_where_there_are_several(many: int) -> None:
    points = [Point(at, {"requests": at + 500}, "", cast(Any, None)) for at in range(many)]
    sweep = cast(Any, SimpleNamespace(points=points))
    assert point_of(sweep, many - 1) is points[-1]
    for wrong in (None, many, -1):
        with pytest.raises(DescriptionError) as error:
            point_of(sweep, wrong)
        told = str(error.value)
        assert all(f"{at} is {at + 500}" in told for at in range(min(many, 12)))
        assert told.endswith(f"and so on to {many - 1}") == (many > 12)


def test_a_run_is_a_timeline_of_steps_and_requests(tmp_path: Path) -> None:
    few = ("--set", "requests=8", "--set", "warmup_requests=2", "--point", "0")
    for name in ("a.json", "a.json.gz"):
        out = tmp_path / name
        done = bankwise("export", "smoke", "--format", "perfetto", "--out", out, *few)
        assert done.returncode == 0 and "open it in ui.perfetto.dev" in done.stdout
        text = out.read_bytes()
        text = gzip.decompress(text) if name.endswith(".gz") else text
        kinds = {event["ph"] for event in json.loads(text)["traceEvents"]}
        assert {"X", "b", "e", "M", "C"} <= kinds


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_timeline_is_of_the_point_and_replication_that_are_asked_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def measured(task: Task) -> None:
        asked.append((task.experiment.serving.policy.name, task.replication, task.rate_per_s))  # type: ignore[attr-defined]
        assert task.experiment.logs == ["trace"]  # type: ignore[attr-defined]
        Path(f"{task.logs}-trace.json.gz").write_bytes(gzip.compress(b"[7]"))

    monkeypatch.setattr(timeline_export, "measure", measured)
    out, sets = (
        tmp_path / name,
        ["policy=[paged, static]", "load={rate_per_s: 3}", "skip=[control]"],
    )
    told = timeline_export.export_timeline("smoke", out, sets, 1, 2, 1)
    assert told == {"point": 1, "overrides": {"serving.policy": "static"}, "control": "",
                    "replication": 2, "rate_per_s": 3.0}  # fmt: skip
    assert asked == [("static", 2, 3.0)]
    written = out.read_bytes()
    assert (gzip.decompress(written) if name.endswith("gz") else written) == b"[7]"
    for wrong, where in ((3, "--replication"), (0, "--replication")):
        with pytest.raises(DescriptionError, match=where):
            timeline_export.export_timeline("smoke", out, [*sets, "replications=2"], 1, wrong, 1)


def test_commands_are_a_trace_by_bank_and_time(tmp_path: Path) -> None:
    (tmp_path / "trace.txt").write_text("".join(f"R {64 * i}\n" for i in range(200)))
    out = tmp_path / "a.json"
    asked = ("replay", "lpddr5-6400-x16", tmp_path / "trace.txt", "--timeline", out)
    done = bankwise(*asked, "--clocks", "0:1000000")
    assert done.returncode == 0 and f"wrote {out}" in done.stdout
    events = json.loads(out.read_text())["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert sum(event["name"] == "ACT" for event in drawn) >= 1
    names = {e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    assert "data bus" in names and any("bank" in name for name in names)
    first, last = drawn[0]["ts"], max(event["ts"] + event["dur"] for event in drawn)
    assert 0 <= first < last
    text = bankwise(*asked[:-1], tmp_path / "a.txt").stderr
    assert ".json.gz" in text


def test_a_timeline_has_no_layers(tmp_path: Path) -> None:
    asked = ("export", "smoke", "--format", "perfetto", "--out")
    done = bankwise(*asked, tmp_path / "a.json", "--layers", "1")
    assert (done.returncode, done.stderr) == (2, "--layers: does not go with --format perfetto\n")
    done = bankwise(*asked, tmp_path / "a.txt")
    assert done.returncode == 2 and "expected a name that ends in .json or .json.gz" in done.stderr
    done = bankwise("export", "kv-extent", *asked[2:], tmp_path / "a.json", "--point", "0")
    assert done.returncode == 2 and "serves nothing" in done.stderr
