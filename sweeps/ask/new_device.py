"""`bankwise new device`: a device file from public numbers, all else in it assumed and marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hwmodel.description.based_on import borrowed, complete
from hwmodel.description.description import DescriptionError, nearest
from hwmodel.description.library import find, names
from hwmodel.description.units import parse_quantity
from hwmodel.description.yaml_reader import load
from hwmodel.description.yaml_writer import to_yaml_flow
from hwmodel.specs.accelerator import GIVEN
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.memory_spec import MemorySpec
from sweeps.plan.software import programs_of

ASKED = {
    "memory": "memory kind (lpddr5x, hbm2e, ...), a shipped memory, or given",
    "rate": "data rate of a pin, such as 8533MT/s", "width": "bus width in bits",
    "capacity": "capacity, such as 64GiB", "flops": "dense 16-bit peak, such as 42.5TFLOPS",
    "engines": "cores or multiprocessors that read memory",
}  # fmt: skip
"""What a data sheet has, and how one is asked for it."""
RATES = (0.75, 1.25)
"""A shipped memory stands for rates between these times its own (assumed): its times in ns are
kept, those in clocks are its grade's."""
EFFICIENCY = 0.8
"""Of a memory that is not simulated (assumed: the shipped ones have 0.8 to 0.85)."""
KINDS = (
    "ddr3", "ddr4", "ddr5", "lpddr3", "lpddr4", "lpddr4x", "lpddr5", "lpddr5x", "lpddr6", "gddr5",
    "gddr5x", "gddr6", "gddr6x", "gddr7", "hbm", "hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4", "hbm4e",
    GIVEN,
)  # fmt: skip
"""Memories that are sold; one that does not ship is described by its bandwidth."""
SLOWEST, FASTEST = 100.0, 64_000.0
"""MT/s of a pin that are believed (assumed: GDDR7 is specified up to 48,000)."""
BASE = "a100-80gb"
"""Whose requesters a new device has where `--like` names none, whatever its memory."""
SOFTWARE: dict[str, dict[str, Any]] = {
    "kernels": {"class": "accelerator"},
    "compute": {"prefill_efficiency": 0.5, "decode_efficiency": 0.5, "overlap": "max"},
}  # fmt: skip
"""What programs reach on a device whose kernels nobody has measured (assumed, as of mlu370-x4). It
is never borrowed: two memories under one new card would otherwise be compared by the programs of
two other cards."""
_EFFICIENCIES = ("prefill_efficiency", "decode_efficiency", "overlap")
LPDDR_DERATE = 0.9
"""The median of streams over what is simulated on four LPDDR machines; others lose nothing."""
PIECE_BYTES = 512
"""Of consecutive addresses in a pseudo-channel (assumed, as of a100-80gb and mlu370-x4)."""
_CHOSEN = {
    ("compute", "fp16"): "the 16-bit peak that was given",
    ("compute", "bf16"): "the 16-bit peak that was given",
    ("dma", "port_bandwidth"): "twice an engine's share of the peak",
    ("host", "bandwidth"): "half of PCIe 4.0 x16", ("link", "latency"): "as mlu370-x4",
    ("derate", ""): "by the kind of memory (docs/memory-time.md)",
    ("interleave", ""): "512 B a pseudo-channel",
    ("kernels", "class"): "nobody has measured the kernels of a new device",
    **{("compute", key): "as mlu370-x4" for key in SOFTWARE["compute"]},
}  # fmt: skip
"""Why, where a value is neither typed nor borrowed."""
PROGRAMMED = "mlu370-x4"
"""A card whose cores set up each copy of their DMA engines."""
_RATE = re.compile(r"^(\d+(?:\.\d+)?)\s*(MT/s|GT/s|Gb/s|Gbps)?$")


class Written(NamedTuple):
    """A new file, what it describes, and what was checked or chosen in words."""

    file: Path
    device: Device
    notes: list[str]


def new_device(
    name: str, *, memory: str, rate: str, width: int, capacity: str, flops: Mapping[str, str],
    engines: int, link: str | None = None, like: str | None = None, out: str | Path = ".",
) -> Written:  # fmt: skip
    """Write NAME.yaml into `out` and check it. Raises DescriptionError; then nothing is left.

    flops: peaks by type (fp16, int8, ...), one of 16 bits among them. like: the shipped device
    whose undocumented numbers are borrowed.
    """
    file = file_for(name, out)
    if (sixteen := flops.get("fp16", flops.get("bf16"))) is None:
        raise DescriptionError(f"expected fp16=... or bf16=...; got {', '.join(flops)}", "--flops")
    given = {"memory": memory, "rate": rate, "width": width, "capacity": capacity}
    refuse(given | {"engines": engines, "flops": flops})
    mts = data_rate(rate)
    described, note = _memory(memory, mts, width, int(parse_quantity(capacity, "size")))
    peak = mts * width / 8000
    base = load(find("accelerators", like or BASE))
    complete(base)
    stated: dict[str, Any] = {"compute": {"fp16": sixteen, "bf16": sixteen, **flops}}
    if simulated := "memory: given" not in described:
        port = f"{2 * peak / engines:.4g}GB/s"
        stated["dma"] = {"engines": engines, "port_bandwidth": port}
    stated |= {"link": {"bandwidth": link, "latency": "10us"}} if link else {}
    merged = _merged(base, stated | {"host": {"bandwidth": "16GB/s"}}, simulated)
    merged |= _software(merged) | (_way(described, memory, merged) if simulated else {})
    typed = {("compute", key) for key in flops} | {("dma", "engines"), ("link", "bandwidth")}
    summary = f"{name}, {capacity} of {memory} on {width} bits, {peak:,.4g} GB/s"
    lines = [
        "kind: accelerator", f"name: {name}", f"summary: {to_yaml_flow(summary)}", "sources:",
        "  typed: numbers given to bankwise new device; name their data sheet here",
        "  computed: from the other numbers here", "  assumed: no public source; chosen here",
        *described, f"capacity: {{value: {capacity}, source: typed}}",
        *_lines(merged, typed, f"as {base.data['name']}"), *_plausible(merged),
    ]  # fmt: skip
    device = written(file, lines)
    return Written(file, device, [note, *_checked(device, mts, width),
                                  software_note(device),
                                  *_influential(merged, base.data["name"])])  # fmt: skip


def _software(merged: dict[str, Any]) -> dict[str, Any]:
    """The groups in which SOFTWARE stands instead of what the base has."""
    compute = {**merged["compute"], **SOFTWARE["compute"]}
    return {"compute": compute, "kernels": SOFTWARE["kernels"]}


def _way(described: list[str], memory: str, merged: dict[str, Any]) -> dict[str, Any]:
    """What hangs on the kind of memory, not on the base: what lies between DRAM and requesters, and
    refreshes of all banks where it has no others; described: the lines that name the memory."""
    shipped = load_device(described[0].removeprefix("memory: ")).memory
    piece = f"{PIECE_BYTES * shipped.organisation.pseudochannels}B"
    loss = LPDDR_DERATE if memory.lower().startswith("lpddr") else 1.0
    refresh = {} if shipped.refresh.per_bank else {"refresh": "all_bank"}
    controller = {"controller": merged["controller"] | refresh} if refresh else {}
    return {"interleave": piece, "derate": loss, **controller}


def software_note(device: Device) -> str:
    """Whose kernels a device runs, what is lost on the way, and the shares of its peak FLOPs."""
    said = programs_of(device)
    lost = "" if device.given is not None else f"derate {said['derate']:g}, "
    efficiencies = ", ".join(f"{key} {said[key]:g}" for key in _EFFICIENCIES)
    return (
        f"kernels of class {said['class']} ({said['program']}): weights {said['weights']:g}, kv"
        f" {said['kv']:g} of what is read; {lost}{efficiencies}"
    )


def file_for(name: str, out: str | Path) -> Path:
    """The new file of a description. Raises DescriptionError where there is one, or the name is
    none."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise DescriptionError(f"expected small letters, digits and hyphens; got {name!r}", "NAME")
    file = Path(out) / f"{name}.yaml"
    if file.exists():
        raise DescriptionError("exists; give another name, or remove it", file)
    return file


def written(file: Path, lines: Iterable[str]) -> Device:
    """The device or memory of a file with these lines, written and checked. Raises
    DescriptionError; then nothing is left."""
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    try:
        return load_device(str(file.resolve()))
    except BaseException:
        file.unlink()
        raise


def _influential(merged: dict[str, Any], base: str) -> Iterator[str]:
    """The assumption that decides most what scattered KV costs."""
    cost = merged.get("dma", {}).get("descriptor_cost")
    if cost is not None:
        yield (
            f"dma.descriptor_cost {cost}, as {base}, decides what scattered KV costs: threads that"
            " read by themselves pay nothing for an extent, programmed DMA engines pay for each;"
            " edit it, borrow with --like, or compare what is under plausible in the file"
        )


def refuse(given: Mapping[str, Any]) -> None:
    """Raise DescriptionError where what is given so far, of ASKED, is at fault; the rest is None.
    Peaks are one text, or by type."""
    for key in ("width", "engines"):
        if given[key] is not None and given[key] < 1:
            raise DescriptionError(f"expected 1 or more; got {given[key]}", f"--{key}")
    mts = None if given["rate"] is None else data_rate(given["rate"])
    size = None
    for key, kind in (("capacity", "size"), ("flops", "compute")):
        try:
            texts = given[key].values() if isinstance(given[key], Mapping) else [given[key]]
            for text in (each for each in texts if isinstance(each, str)):
                found = parse_quantity(text.rpartition("=")[2], kind)
                size = int(found) if key == "capacity" else size
        except ValueError as error:
            raise DescriptionError(str(error), f"--{key}") from None
    if given["memory"] is not None:
        _shipped(given["memory"])
        if mts is not None and given["width"] is not None:  # a capacity of 0 always fits
            _memory(given["memory"], mts, given["width"], size or 0)


def data_rate(text: str) -> float:
    """MT/s of a pin. Raises DescriptionError for what nobody sells."""
    match = _RATE.match(str(text).strip())
    if match is None or not float(match[1]):
        raise DescriptionError(f"expected a data rate, such as 8533MT/s; got {text!r}", "--rate")
    found = float(match[1]) * (1 if match[2] in (None, "MT/s") else 1000)
    if not SLOWEST <= found <= FASTEST:
        raise DescriptionError(
            f"expected {SLOWEST:,.0f} to {FASTEST:,.0f} MT/s of a pin; got {text}", "--rate"
        )
    return found


def _shipped(asked: str) -> list[str]:
    """The memories that ship. Raises DescriptionError where `asked` is none and no kind."""
    shipped = [name for name in names("memories") if not name.startswith(("ramulator", "dramsys"))]
    if asked not in shipped and asked.lower() not in KINDS:
        hint = nearest(asked, [*KINDS, *shipped])
        raise DescriptionError(f"no such memory {asked!r}; {hint}", "--memory")
    return shipped


def _memory(asked: str, mts: float, width: int, capacity: int) -> tuple[list[str], str]:
    """The lines that describe it, by the nearest shipped memory of the kind at this rate or as a
    given bandwidth; and a note on which."""
    shipped = _shipped(asked)
    fitting = [name for name in shipped if name == asked or name.split("-")[0] == asked.lower()]
    found = {name: load_device(name).memory for name in sorted(fitting, key=len)}
    off = {name: mts / own_rate(memory) for name, memory in found.items()}
    near = [name for name in found if RATES[0] <= off[name] <= RATES[1]]
    if not near:
        kinds = ", ".join(sorted({name.split("-")[0] for name in shipped}))
        why = f"no {asked} near {mts:,.0f} MT/s ships, only {kinds}"
        why = "asked for" if asked.lower() == GIVEN else why
        return [
            f"memory: {GIVEN}", "given:",
            f"  bandwidth: {{value: {mts * width / 8000:.6g}GB/s, source: typed}}",
            f"  efficiency: {{value: {EFFICIENCY}, source: assumed}}",
        ], f"memory given, not simulated: {why}; efficiency {EFFICIENCY} assumed"  # fmt: skip
    name = min(near, key=lambda name: abs(1 - off[name]))
    memory = found[name]
    bits = memory.organisation.width_bits * memory.organisation.pseudochannels
    if width % bits:
        raise DescriptionError(f"expected a multiple of {bits}, a channel of {name}", "--width")
    changes = _size(name, memory, -(-capacity * bits // width))
    if abs(off[name] - 1) > 1e-3:
        tck = 1000 * memory.clock.beats_per_ck / mts
        changes["clock.tCK"] = f'{{value: {tck:.6g}ns, source: computed, note: "{mts:,.0f} MT/s"}}'
    lines = [f"memory: {name}"] + ["memory_set:"] * bool(changes)
    lines += [f"  {path}: {value}" for path, value in changes.items()]
    note = f'"{width} bits of {bits} each"'
    lines.append(f"channels: {{value: {width // bits}, source: computed, note: {note}}}")
    return lines, f"memory {name}: the nearest that ships, {own_rate(memory):,.0f} MT/s"


def own_rate(memory: MemorySpec) -> float:
    """MT/s of a pin."""
    return 1000 * memory.clock.beats_per_ck / float(memory.clock.tCK)


def _size(name: str, memory: MemorySpec, needed: int) -> dict[str, str]:
    """The smallest density, and as few ranks, that hold so many bytes a channel."""
    described = load(find("memories", name))
    complete(described)
    sizes = {
        density: load_device(name, [f"density={density}"]).memory.organisation.capacity_bytes
        for density in (described.data.get("densities") or {})
    } or {"": memory.organisation.capacity_bytes}
    for ranks in (1, 2):
        for density, size in sorted(sizes.items(), key=lambda item: item[1]):
            if ranks * size >= needed:
                found: dict[str, Any] = {"density": density} if density else {}
                if ranks > 1:
                    order = [*described.data["address_map"], "rank:1"]
                    found |= {"organisation.ranks": 2, "address_map": order}
                return {
                    path: f"{{value: {to_yaml_flow(value)}, source: assumed}}"
                    for path, value in found.items()
                }
    most = 2 * max(sizes.values()) / 2**30
    raise DescriptionError(
        f"a channel of {name} holds {most:g} GiB at most; needed: {needed / 2**30:,.4g} GiB; "
        "--memory given describes it without channels", "--capacity",
    )  # fmt: skip


_CACHE_SIZE = ("memory_side_cache", "size")


def _merged(base: Any, stated: dict[str, Any], simulated: bool) -> dict[str, Any]:
    """What is stated, and what the base has that is borrowed; a cache with its size, which moves
    no result."""
    merged: dict[str, Any] = {}
    for path in [_CACHE_SIZE, *borrowed(base)]:
        value = base.get(path)
        if value is None or not (simulated or path[0] in ("work", "compute", "kernels")):
            continue
        if len(path) == 1:
            merged[str(path[0])] = value
        else:
            merged.setdefault(str(path[0]), {})[path[1]] = value
    for group, keys in stated.items():
        merged[group] = {**merged.get(group, {}), **keys}
    return merged


def _lines(merged: dict[str, Any], typed: set[tuple[str, str]], note: str) -> Iterator[str]:
    """A line a value, with its source."""
    for group, value in merged.items():
        if not isinstance(value, dict):
            why = _CHOSEN.get((group, ""), note)
            yield f"{group}: {{value: {to_yaml_flow(value)}, source: assumed, note: {why}}}"
            continue
        yield f"{group}:"
        for key, each in value.items():
            why = _CHOSEN.get((group, key), note)
            source = "typed" if (group, key) in typed else f"assumed, note: {why}"
            yield f"  {key}: {{value: {to_yaml_flow(each)}, source: {source}}}"


def _plausible(merged: dict[str, Any]) -> Iterator[str]:
    """What is borrowed and may be so instead, where it decides most."""
    if "dma" not in merged:
        return
    own = str(merged["dma"].get("descriptor_cost"))
    other, name, why = "0ns", "addresses by threads", "as of GPUs, whose threads compute addresses"
    if parse_quantity(own, "time") == 0:
        other = load(find("accelerators", PROGRAMMED)).get(("dma", "descriptor_cost"))
        name, why = "programmed DMA", f"as {PROGRAMMED}, whose cores set up each copy"
    yield "plausible:  # what is assumed above may be so instead"
    yield f"  {name}:"
    yield f"    set: {{dma.descriptor_cost: {other}}}"
    yield f'    why: "{why} (assumed)"'
    for factor, word in ((2, "doubled"), (0.5, "halved")):
        yield f"  windows {word}:"
        yield f"    set: {{dma.window: {round(factor * _bytes(merged['dma']['window']))}B}}"
        yield f'    why: "what an engine has under way is not public; {word} (assumed)"'


def _bytes(size: Any) -> int:
    return int(parse_quantity(str(size), "size"))


def _checked(device: Device, mts: float, width: int) -> Iterator[str]:
    """Peak and capacity beside what follows from the other numbers."""
    peak = mts * width / 8000
    by = f"{mts:,.0f} MT/s x {width} bits"
    if device.described is not None:
        o = device.described.organisation
        if o.wire_bytes != o.burst_bytes:
            peak *= o.burst_bytes / o.wire_bytes
            by += f" x {o.burst_bytes} B of data in {o.wire_bytes}"
    by += f" is {peak:,.1f}"
    off = device.peak_gbps / peak - 1
    yield f"peak {device.peak_gbps:,.1f} GB/s; {by} ({off:+z.2%})"
    if device.given is None:
        each = device.memory.organisation.capacity_bytes
        held, own = device.channels * each, device.capacity_bytes
        yield (f"capacity {own / 2**30:,.4g} GiB; {device.channels} channels x {each / 2**30:g} GiB"
               f" hold {held / 2**30:,.4g} ({own / held - 1:+.1%})")  # fmt: skip
    yield f"{len(device.assumed)} numbers are assumed: bankwise check --assumed"
