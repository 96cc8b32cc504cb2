"""What ships: devices with their peaks, capacities and bounds; names and summaries of the rest."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hwmodel.description.description import DescriptionError, nearest
from hwmodel.description.library import find, names
from hwmodel.description.yaml_reader import load
from hwmodel.measure.bounds import BURSTS_PER_ROW, bounds
from hwmodel.specs.device import Device, device_names, load_device
from hwmodel.specs.transformer import load_model
from sweeps.run.progress import Progress
from sweeps.sections.section import Block, Grid, Say, Section

SMALL = ("llama-3.2-3b", "q4_k_m")
"""A small model in a small format: what on-chip memory is held against."""
_FOLDERS = {"devices": ("accelerators", "memories"), "sweeps": ("sweeps", "studies")}
"""Folders of the library of a kind that has several."""


_OF_TESTS = ("smoke", "quick")
"""A sweep and a study of the machinery: whether they run is all that they ask."""


def names_of(kind: str) -> list[str]:
    """What ships of a kind for a user."""
    return [name for name in _every(kind) if kind != "sweeps" or name not in _OF_TESTS]


def _every(kind: str) -> list[str]:
    if kind == "allocators":
        from policies.allocators.registry import POLICIES  # heavy

        return sorted(POLICIES)
    return [name for folder in _FOLDERS.get(kind, (kind,)) for name in names(folder)]


def entries(kind: str, chosen: list[str]) -> list[dict[str, Any]]:
    """Name, kind and summary of each that ships, or of the chosen ones; what of a sweep's or a
    study's question there is, and how many timings of a memory have each confidence. Raises
    DescriptionError for a name that is none."""
    known = _every(kind)
    for name in chosen:
        if name not in known:
            raise DescriptionError(f"no {name!r} among the {kind}; {nearest(name, known)}")
    if kind == "allocators":
        from policies.allocators.registry import POLICIES  # heavy

        return [
            {"name": name, "kind": "allocator", "summary": POLICIES[name].reading}
            for name in chosen or names_of(kind)
        ]
    found = []
    for folder in _FOLDERS.get(kind, (kind,)):
        for name in (each for each in names(folder) if each in (chosen or names_of(kind))):
            data = load(find(folder, name)).data
            keys = ("name", "kind", "summary", "question", "stores")
            found.append({key: data[key] for key in keys if key in data})
            if kind == "memories":
                stated = load_device(name).confidence.items()
                count = Counter(letter for path, letter in stated if path.startswith("timing."))
                found[-1]["timings"] = dict(sorted(count.items()))
    return found


def devices(overrides: list[str], chosen: list[str] | None = None) -> dict[str, Any]:
    """`devices`: the chosen ones, or all that ship; `left_out`: those that overrides do not fit,
    with the reason. Raises DescriptionError when that leaves none."""
    found: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for name in chosen or device_names():
        try:
            found.append(_entry(load_device(name, overrides)))
        except DescriptionError as error:
            if chosen:
                raise
            left_out[name] = str(error)
            refused = error
    if not found:
        raise refused
    return {"devices": found, "left_out": left_out}


def _entry(device: Device) -> dict[str, Any]:
    spec = device.accelerator or device.memory
    memory = device.described
    return {
        "name": device.name,
        "kind": spec.kind,
        "summary": spec.summary,
        "memory": "given" if memory is None else memory.name,
        "channels": None if memory is None else device.channels,
        "peak_gbps": device.peak_gbps,
        **_published(device),
        "capacity_bytes": device.capacity_bytes,
        "bounds": {
            name: {"gbps": bound.gbps * device.channels, "binding": list(bound.binding)}
            for name, bound in ({} if memory is None else bounds(memory)).items()
        },
        "assumed": len(device.assumed),
        "plausible": {name: variant.why for name, variant in device.plausible.items()},
    }


def _published(device: Device) -> dict[str, Any]:
    """The peak that is sold, and what on-chip memory does to a small model's traffic."""
    spec, (name, weights) = device.accelerator, SMALL
    found: dict[str, Any] = {"published_gbps": None, "on_chip": None}
    if spec is not None and spec.bus is not None:
        found["published_gbps"] = spec.bus.peak / 1e9
    if spec is not None and (before := spec.before_memory) is not None:
        step = load_model(name).stored_as(weights, None).step_weight_bytes
        found["on_chip"] = before.remark(f"{name} in {weights}", step)
    return found


def add_simulated(catalogue: dict[str, Any], overrides: list[str]) -> None:
    """Give each memory of a catalogue its `simulated` figures, GB/s of one channel by pattern."""
    from hwmodel.measure.bandwidth import measure_patterns  # heavy
    from hwmodel.measure.grid import measured

    memories = {each["name"]: each for each in catalogue["devices"] if each["kind"] == "memory"}

    def simulate(name: str) -> dict[str, float]:
        device = load_device(name, overrides)
        burst = device.memory.organisation.burst_bytes
        sizes = [burst * n for n in BURSTS_PER_ROW.values() if n]
        found = measure_patterns(device, ["sequential"], sizes)
        return {
            form: each["bandwidth_gbps"] for form, each in zip(BURSTS_PER_ROW, found, strict=True)
        }

    for name, gbps in measured(simulate, list(memories), Progress().through("memories")).items():
        memories[name]["simulated"] = gbps


def show_names(every: dict[str, list[str]]) -> None:
    """A paragraph a kind."""
    for kind, found in every.items():
        print(f"{kind}: {', '.join(found)}")
    print("\nbankwise list KIND says what each is.")


def entries_sheet(records: list[dict[str, Any]]) -> Section:
    """A line each: its summary, or the question of a sweep or a study; of a memory, how many of
    its timings have two open sources (A), one (B), are derived (C) or assumed (D)."""
    rows = [
        [each["name"], each["kind"], each.get("question") or each["summary"]] for each in records
    ]
    kinds = {each["kind"] for each in records}
    columns = ["name", "kind", "question"]
    if len(kinds) == 1:
        columns, rows = ["name", "summary"], [[name, text] for name, _, text in rows]
    if kinds == {"memory"}:
        columns = ["name", "timings by confidence", "summary"]
        rows = [
            [name, " ".join(f"{letter}:{count}" for letter, count in each["timings"].items()), text]
            for each, (name, text) in zip(records, rows, strict=True)
        ]
    return Section("What ships", [Grid("", columns, rows, text=True)])


def devices_sheet(result: dict[str, Any], details: bool) -> Section:
    """A line a device, with details the remarks on each; what of its memory was simulated."""
    patterns = list(
        dict.fromkeys(name for device in result["devices"] for name in device["bounds"])
    )
    rows = []
    for device in result["devices"]:
        bounds = [device["bounds"].get(name) for name in patterns]
        rows.append(
            [
                device["name"], device["kind"], str(device["channels"] or "given"),
                f"{device['peak_gbps']:,.1f}", _sold(device),
                f"{device['capacity_bytes'] / 2**30:,.2f}",
                *(f"{bound['gbps']:,.1f}" if bound else "–" for bound in bounds),
            ]
        )  # fmt: skip
    fixed = ["device", "kind", "channels", "peak GB/s", "sold as", "GiB"]
    table = Grid("", [*fixed, *(name.replace("_", " ") for name in patterns)], rows)
    blocks: list[Block] = [table]
    blocks += [Say(f"left out: {name}, {why}") for name, why in result["left_out"].items()]
    more = "" if details else " bankwise list devices NAME adds remarks and plausible variants."
    blocks.append(Say(f"After GiB: closed-form bounds, GB/s.{more}"))
    for device in result["devices"] if details else ():
        text = f"{device['name']}: {device['summary']}; {device['assumed']} assumed numbers."
        blocks.append(Say(f"{text} {device['on_chip'] or ''}".strip()))
        if rows := [[name, why] for name, why in device["plausible"].items()]:
            blocks.append(Grid("", ["plausible variant", "why"], rows, text=True))
    return Section("Devices", [*blocks, *_simulated(result)])


def _sold(device: dict[str, Any]) -> str:
    """The published peak, and how far the described one is from it."""
    if (sold := device["published_gbps"]) is None:
        return "–"
    gap = 100 * (device["peak_gbps"] / sold - 1)
    return f"{sold:,.1f}" + (f" ({gap:+.1f} %)" if abs(gap) >= 0.05 else "")


def _simulated(catalogue: dict[str, Any]) -> list[Grid]:
    """A line a pattern of each memory: its bound, what binds, and the simulated figures."""
    rows = []
    for device in catalogue["devices"]:
        for name, gbps in device.get("simulated", {}).items():
            bound = device["bounds"][name]
            reached = [f"{bound['gbps']:,.2f}", f"{gbps:,.2f}"]
            rows.append([device["name"], name.replace("_", " "), *reached,
                         ", ".join(bound["binding"])])  # fmt: skip
    title = "Reads of one channel, GB/s, in address order or at places drawn at random:"
    heads = ["memory", "pattern", "bound", "simulated", "bound by"]
    return [Grid(title, heads, rows)] if rows else []
