"""`bankwise new memory`: a memory as a speed grade or a density of another one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from hwmodel.description.description import DescriptionError
from hwmodel.description.yaml_writer import to_yaml_flow
from hwmodel.specs.device import Device, load_device
from sweeps.ask.new_device import data_rate, file_for, own_rate, written


class WrittenMemory(NamedTuple):
    """A new file, the channel that it describes, and what was chosen in words."""

    file: Path
    device: Device
    notes: list[str]


def new_memory(
    name: str, *, like: str, rate: str | None = None, density: str | None = None,
    out: str | Path = ".",
) -> WrittenMemory:  # fmt: skip
    """Write NAME.yaml into `out` and check it. Raises DescriptionError; then nothing is left.

    like: a memory, shipped or a file, whose description it has but for what is given: `rate` of a
    pin (MT/s), `density` of a die.
    """
    file = file_for(name, out)
    base = load_device(like)
    if base.accelerator is not None:
        raise DescriptionError("is an accelerator; expected a memory", like)
    memory, notes, changes = base.memory, [f"all else as {base.memory.name}"], list[str]()
    mts = own_rate(memory)
    if rate is not None:
        mts = data_rate(rate)
        tck = 1000 * memory.clock.beats_per_ck / mts
        note = f'{{value: {tck:.6g}ns, source: computed, note: "{mts:,.0f} MT/s"}}'
        changes.append(f"clock: {{tCK: {note}}}")
        notes.append(
            "times in ns are kept; latencies in clocks are the other grade's: look at RL, WL"
        )
    if density is not None:
        changes.append(f"density: {{value: {density}, source: typed}}")
    if not changes:
        raise DescriptionError("needs what differs: --rate or --density", name)
    held = f"{mts:,.0f} MT/s" + (f", dies of {density}" if density else "")
    summary = f"{name}, as {memory.name} at {held}"
    lines = [
        "kind: memory", f"name: {name}", f"summary: {to_yaml_flow(summary)}", f"based_on: {like}",
        "sources:", "  typed: numbers given to bankwise new memory; name their data sheet here",
        "  computed: from the other numbers here", "  assumed: no public source; chosen here",
        *changes,
    ]  # fmt: skip
    device = written(file, lines)
    size = device.memory.organisation.capacity_bytes / 2**30
    return WrittenMemory(file, device, [
        f"{device.peak_gbps:,.4g} GB/s and {size:,.4g} GiB a channel", *notes,
    ])  # fmt: skip
