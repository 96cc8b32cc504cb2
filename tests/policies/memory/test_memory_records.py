"""Does a memory say what it said, and is it asked for the same bytes at the same places?

Small runs in each way of finding the time of memory are held against `memory.json`
(`tests.policies.records`): their steps, the seconds that they take, how often the memory was
simulated, and a checksum of every stream that it was asked for and of all that the run says.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.specs.device import Device, load_device
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.transformer import TransformerSpec
from policies.memory import (
    attention_read,
    contention,
    layout_read,
    measured,
    measured_cells,
    measured_steps,
)
from policies.requests.requests import Requests
from policies.serving.serving import serve
from sweeps.run.sweep_run import apart as without_walls
from tests.policies.checksum import checksum
from tests.policies.memory.test_flash_memory import device as flash
from tests.policies.memory.test_placed_memory import SHAPE
from tests.policies.memory.test_placed_memory import device as two_given
from tests.policies.memory.test_placed_memory import simulated as two_simulated
from tests.policies.memory.test_sparse import KEPT, KINDS
from tests.policies.memory.test_step_work import BESIDE, DRAFTS, HYBRID, ODMA
from tests.policies.memory.test_streams import SPREADS
from tests.policies.records import Records
from tests.policies.serving.features import prefixes, sessions
from tests.policies.small import EXPERTS, LATENT, MODEL, WINDOWS, FakeMemory, mixed, spec
from tests.policies.transfers.test_tiers import tiers

ENGINE = {"max_model_len": 1024, "max_num_batched_tokens": 96, "max_num_seqs": 16}
GUESSED = {"kind": "lognormal", "sigma": 1.5, "bias": -1}


class Noted(FakeMemory):
    """Keeps a checksum of all that it is asked, and counts commands as a memory would."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = self.many = 0

    def __call__(self, device: Device, d: Any, *, owed: Any = None, **window: Any) -> Any:
        found = super().__call__(device, d, **window)
        frames = window.pop("frames", None)
        for column in (*d, [] if owed is None else owed, [] if frames is None else frames.virtual):
            self.seen = zlib.crc32(np.asarray(column, np.int64).tobytes(), self.seen)
        times = [f"{each:.6g}" for each in window.values()]
        self.seen = zlib.crc32(repr(times).encode(), self.seen)
        self.many += 1
        self.calls.clear()
        many, nth = len(d.size), self.many
        # an even row of bad luck, so that means are not those of any one probe
        found.gbps *= 1 - 0.15 * (nth * 7 % 10) / 10
        found.elapsed_ns *= 1 + 0.15 * (nth * 3 % 10) / 10
        read = int(d.size[~d.write].sum()) // 16
        written = int(d.size[d.write].sum()) // 16
        found.row_hits, found.row_misses, found.row_conflicts = 3 * many, many + nth % 3, nth % 5
        found.commands = {"ACT": many, "ACT2": nth % 2, "RD": read, "WR": written,
                          "REFAB": nth % 4, "REFPB": many // 3}  # fmt: skip
        found.active_ns = found.elapsed_ns * (0.5 + nth % 4 / 10)
        return found


def paced(device: Device, own: Any, beside: Any = ()) -> float:
    """Stands in for the simulation of a step beside what moves."""
    noted = Noted()
    ns = float(noted(device, own, warmup_ns=0.0, measure_ns=np.inf).elapsed_ns)
    for each in beside:
        share = each.gbps / device.peak_gbps * (1 + 0.25 * float(each.write.mean()))
        ns *= 1 + share * (1 + len(each.start) % 7 / 20 + float(each.start.min() % 977) / 9770)
    return ns


def card(*settings: str) -> Device:
    """Of 8,192 slots."""
    capacity = (2 << 20) + 8192 * MODEL.kv_token_bytes
    return load_device("mlu370-x4", [f"capacity={capacity}B", *settings])


def served(
    model: TransformerSpec = MODEL, device: Callable[[], Device] = card, count: int = 4,
    stream: Callable[[Requests], Requests] | None = None, **changes: Any,
) -> str:  # fmt: skip
    given = mixed(count, seed=2)
    sampled = changes.get("memory", {}).get("fidelity") == "sampled"
    longest = changes.pop("longest", 40 if sampled else 15)
    given.output_tokens[:] = np.minimum(given.output_tokens, longest)
    fake = Noted()
    options = spec(**{"engine": ENGINE, **changes})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(contention, "issuing_ns", paced)
        found = serve(
            device(), model, options, stream(given) if stream else given, seed=1, simulate=fake,
            warmup_requests=changes.get("warmup", 2),
        )  # fmt: skip
    metrics, _ = without_walls(found.metrics)
    ends = found.finish_s[np.isfinite(found.finish_s)].max()
    what = checksum([found.finish_s, metrics, fake.seen])
    return f"{metrics['steps']} steps, {ends:.6g} s, {fake.many} simulations, {what}"


def compared(name: str) -> str:
    """A measurement beside the model, of which nothing is simulated."""
    even = FakeMemory()

    def once(device: Device, d: Any, **window: Any) -> Any:
        found = even(device, d, **{"warmup_ns": 0.0, "measure_ns": np.inf, **window})
        even.calls.clear()
        share = 1 - zlib.crc32(np.array(d, np.int64).tobytes()) % 1000 / 1e4
        found.gbps, found.elapsed_ns = found.gbps * share, found.elapsed_ns / share
        return found

    def pattern(device: Device, asked: Any) -> dict[str, float]:
        return {"bandwidth_gbps": device.peak_gbps / 4, "energy_nj": 16.0, "bytes": 500.0}

    with pytest.MonkeyPatch.context() as patched:
        for module in (attention_read, layout_read, measured_steps):
            patched.setattr(module, "simulate_once", once)
        patched.setattr(measured, "bandwidth", pattern)
        patched.setattr(measured_cells.Recorded, "value", lambda own: float(len(own.figure)))
        patched.setattr(measured, "channel_latency", lambda _, row: 40.0 + len(row))
        patched.setattr(measured, "device_latency", lambda _, window: 70.0 + window % 97)
        found = measured.compare(measured.load_measurements(name))
    verdicts = Counter(each.verdict for each in found)
    told = [
        [each.model, each.tolerance, each.share, each.error, each.verdict, each.derate, each.by]
        for each in found
    ]  # fmt: skip
    return f"{', '.join(f'{many} {what}' for what, many in verdicts.items())}, {checksum(told)}"


EVERY: dict[str, Any] = {"fidelity": "exhaustive"}
FULL: dict[str, Any] = {"fidelity": "full"}
NOW_AND_THEN: dict[str, Any] = {
    "fidelity": "sampled", "probe_bytes": "16KiB", "every_steps": 9, "calibrate": "24KiB",
}  # fmt: skip
STATES: dict[str, Any] = {"name": "paged", "states": "two_pools"}

SAID: dict[str, Callable[[], str]] = {
    **{f"{spread}, {'grouped' if grouped else 'apart'}": partial(
        served, memory=EVERY, kv_layout=order, device=partial(
            card, f"work.spread={spread}", f"work.grouped={str(grouped).lower()}",
            f"work.drift={grouped * 0.5}"))
       for (spread, grouped), order in zip(
           ((spread, grouped) for spread in SPREADS for grouped in (True, False)), LAYOUTS,
           strict=True)},
    **{f"{model.name}, {name}": partial(served, model, memory=memory, **changes)
       for model in (LATENT, WINDOWS, EXPERTS, HYBRID, BESIDE)
       for name, memory, changes in (
           ("every layer", EVERY, {}), ("a layer", FULL, {"policy": {"name": "static"}}),
           ("now and then", NOW_AND_THEN, {"predictor": GUESSED}),
           ("drafts", FULL, {"speculation": DRAFTS}))},
    **{f"moves, {model.name}": partial(
        served, model, memory=EVERY, policy=ODMA, predictor=GUESSED, count=6, longest=100)
       for model in (MODEL, HYBRID, WINDOWS)},
    **{f"{given['name']}, {given.get('choice') or given.get('heads') or nth}": partial(
        served, memory=EVERY, attention=given, policy={"name": "paged" if nth % 2 else "oracle"})
       for nth, given in enumerate((*KINDS, *KEPT))},
    "top_k, now and then": partial(served, memory=NOW_AND_THEN, attention=KINDS[0]),
    "states in two pools": partial(served, HYBRID, memory=EVERY, policy=STATES, speculation=DRAFTS),
    "states committed": partial(
        served, HYBRID, memory=EVERY, engine={"name": "sglang"}, speculation=DRAFTS),
    "frames": partial(served, memory=FULL, policy={"name": "vattention", "frame": "4KiB"}),
    "prefixes": partial(
        served, memory=FULL, stream=prefixes, policy={"name": "paged", "prefix_caching": True}),
    "experts, skewed": partial(
        served, EXPERTS, memory=FULL, routing={"skew": 1.2}, expert_parallel="balanced",
        tensor_parallel=2),
    "analytic": partial(served, memory={"fidelity": "analytic"}),
    "analytic, experts": partial(served, EXPERTS, memory={"fidelity": "analytic"}),
    "analytic, given in part": partial(
        served, memory={"fidelity": "analytic", "weights": 0.5, "prefill": 0.25}),
    "given in part": partial(served, EXPERTS, memory={**FULL, "weights": 0.5, "prefill": 0.25}),
    **{f"together, {name}": partial(served, model, memory={**memory, "phases": "together"})
       for name, model, memory in (
           ("every layer", MODEL, EVERY), ("a layer", HYBRID, FULL), ("experts", EXPERTS, FULL),
           ("now and then", MODEL, NOW_AND_THEN), ("windows", WINDOWS, NOW_AND_THEN))},
    **{f"now and then, {name}": partial(
        served, memory=NOW_AND_THEN | given, count=96 if name == "for long" else 24,
        device=partial(card, *settings))
       for name, given, settings in (
           ("refreshed", {}, ["controller.refresh=per_bank"]),
           ("all at once", {}, ["controller.refresh=all_bank"]),
           ("asleep", {}, ["controller.power_down_after=100ns", "derate=0.8"]),
           ("seldom", {"max_probes": 3, "again": 9.0}, []), ("narrow", {"precision": 9.0}, []),
           ("spaced", {"spacing": 0.5, "change": 0.05}, []),
           ("in windows of its own", {"warmup": "50ns", "measure": "200ns"}, []),
           ("for long", {"change": 0.5}, ["derate=0.8"]),
           ("with dear descriptors", {}, ["dma.descriptor_cost=20us", "dma.window=2KiB"]))},
    **{f"in motion, {name}": partial(
        served, memory=memory | {"phases": "together"}, tiers=tiers(contention="simulated"),
        stream=sessions, count=6, kv_layout=order, policy={"name": "paged"}, kv_tokens=1024, **more)
       for name, memory, order, more in (
           ("a layer", FULL, "layer_kv_token", {}),
           ("now and then", NOW_AND_THEN, "block_layer_kv_token", {}),
           ("in two memories", NOW_AND_THEN, "layer_kv_token", {
               "device": two_simulated, "model": SHAPE, "memories": {"name": "interleaved"}}))},
    **{f"{placed}, {overlap}": partial(
        served, SHAPE, partial(two_given, overlap, port="350GB/s"), memories=memories)
       for overlap, placed, memories in (
           ("step", "KV apart", {"kv": "far"}), ("phase", "weights apart", {"weights": "far"}),
           ("none", "interleaved", {"name": "interleaved", "by": {"main": 3, "far": 1}}),
           ("phase", "interleaved", {"name": "interleaved"}),
           ("step", "interleaved", {"name": "interleaved", "by": {"main": 1, "far": 1}}),
           ("phase", "by request", {"name": "by_request", "kv": "far", "share": 0.4}),
           ("step", "recent", {"name": "recent", "kv": "far", "tokens": 100, "moves": True}))},
    **{f"simulated {placed}, {memory['fidelity']}": partial(
        served, model, two_simulated, memories=memories, memory=memory)
       for memory, placed, model, memories in (
           (EVERY, "by layer", BESIDE, {"name": "by_layer", "kv": "far", "share": 0.5}),
           (NOW_AND_THEN, "by layer", BESIDE, {"name": "by_layer", "kv": "far", "share": 0.5}),
           (FULL, "interleaved", SHAPE, {"name": "interleaved"}),
           (NOW_AND_THEN, "interleaved", SHAPE, {"name": "interleaved"}),
           (FULL, "by heat", EXPERTS, {"name": "by_heat", "experts": "far"}),
           (FULL, "by request", SHAPE, {"name": "by_request", "kv": "far", "share": 0.1}),
           (EVERY, "recent", SHAPE, {
               "name": "recent", "kv": "far", "tokens": 100, "moves": True}))},
    "simulated together": partial(
        served, SHAPE, two_simulated, memories={"name": "interleaved", "by": {"main": 2, "far": 1}},
        memory={**FULL, "phases": "together"}),
    **{f"flash, {name}": partial(served, SHAPE, partial(flash, **of), memories=memories)
       for name, memories, of in (
           ("KV", {"kv": "far"}, {}), ("slow", {"kv": "far"}, {"planes": 40, "page": "16KiB"}),
           ("in part", {"name": "interleaved"}, {}),
           ("layers", {"name": "by_layer", "kv": "far", "share": 0.5}, {"page": "64KiB"}),
           ("aged", {"name": "recent", "kv": "far", "tokens": 100, "moves": True}, {}))},
    **{f"figures of {name}": partial(compared, name) for name in (
        "a100-80gb-streams", "attention-tables", "cards-of-2026", "gpt-fast-llama-3.1-8b",
        "dgx-spark-decode", "gpt-fast-narrow-and-experts", "llama-3-70b-decode",
        "m2-ultra-decode", "others-layout", "strix-halo-layout", "tenstorrent-endpoints",
        "u280-hbm2-channel")},
}  # fmt: skip
RECORDS = Records(Path(__file__).with_name("memory.json"), SAID, lambda name: SAID[name]())


@pytest.mark.parametrize("name", SAID)
def test_a_memory_says_what_it_said(name: str) -> None:
    RECORDS.check(name)


if __name__ == "__main__":
    RECORDS.write()
