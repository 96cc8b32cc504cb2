"""Changes of a memory system that its user can make, as overrides for `--set`.

Address maps are those that the device's plausible variants have, and a standard list over the
memory's fields; the rest are settings of the controller, and of an accelerator's interleave.
"""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.description.yaml_writer import plain
from hwmodel.specs.controller import MAX_QUEUE
from hwmodel.specs.device import Device
from hwmodel.specs.memory_spec import MemorySpec

_PLACES = {"address_map", "bank_hash", "interleave", "channel_hash"}
_BETWEEN = ("interleave=", "channel_hash=")
_KEEPS_ROW = 64
"""Column commands of a row before an older request, four times the default (assumed)."""


def candidates(device: Device, single_channel: bool = False) -> list[list[str]]:
    """Every change, each a list of overrides; some may not be possible, or what is described.
    `single_channel`: none of how addresses go to channels."""
    found = [*_maps(device), *_interleaves(device), *_controllers(device.memory)]
    if single_channel:
        return [each for each in found if not any(one.startswith(_BETWEEN) for one in each)]
    return found


def _maps(device: Device) -> Iterator[list[str]]:
    for variant in device.plausible.values():
        if set(variant.set) <= _PLACES:
            yield [f"{path}={_flow(value)}" for path, value in variant.set.items()]
    memory = device.memory
    hashes = [f"bank_hash={_hashes(memory)}", "bank_hash=[]"]
    yield from ([each] for each in hashes)
    for fields in address_maps(memory):
        yield from ([f"address_map=[{', '.join(fields)}]", each] for each in hashes)


def address_maps(memory: MemorySpec) -> list[list[str]]:
    """Maps from the least significant bit up, as `address_map` has them: bank groups in turn every
    burst, every second or fourth burst, or every row; all banks in turn every burst; and a bank's
    rows side by side."""
    bits = memory.field_bits()
    above = ["bankgroup", "pseudochannel", "column", "bank", "stack", "rank", "row"]
    every = ["bankgroup", "bank", "pseudochannel", "stack", "rank", "column", "row"]
    rows = ["column", "pseudochannel", "bankgroup", "bank", "stack", "rank", "row"]
    apart = ["column", "row", "pseudochannel", "bankgroup", "bank", "stack", "rank"]
    lows = [low for low in (0, 1, 2) if low < bits["column"]]
    return [_fields(bits, above, low) for low in lows] + [
        _fields(bits, order) for order in (every, rows, apart)
    ]


def _fields(bits: dict[str, int], order: list[str], low: int = 0) -> list[str]:
    """Fields with their bits, `low` of the columns at the bottom; those of no bits left out, and
    the last takes the rest."""
    rest = bits | {"column": bits["column"] - low}
    fields = [f"{name}:{rest[name]}" for name in order if rest[name]]
    fields[-1] = fields[-1].partition(":")[0]
    return [f"column:{low}"] * (low > 0) + fields


def _hashes(memory: MemorySpec) -> str:
    """Every level of banks XORed with bits of the row, bank groups with the lowest."""
    bits, at, found = memory.field_bits(), 0, []
    for name in ("bankgroup", "bank", "stack", "rank"):
        if bits[name] and not (name == "stack" and memory.organisation.stacks & 1):
            found.append(f"{{field: {name}, row_bit: {at}}}")
            at += bits[name]
    return f"[{', '.join(found)}]"


def _interleaves(device: Device) -> Iterator[list[str]]:
    if device.accelerator is None or device.channels == 1:
        return
    size = device.accelerator.interleave
    for other in (size // 2, 2 * size, 8 * size):
        yield [f"interleave={other}B"]
    for name in ("none", "rotate", "xor"):
        yield [f"channel_hash={name}"]


def _controllers(memory: MemorySpec) -> Iterator[list[str]]:
    """Queues, scheduler, pages, the sharing of reads and writes, refresh."""
    c = memory.controller
    for factor in (2, 4):
        deep = [min(MAX_QUEUE, factor * queue) for queue in (c.read_queue, c.write_queue)]
        yield [f"controller.read_queue={deep[0]}", f"controller.write_queue={deep[1]}"]
    for scheduler in ("frfcfs", "frfcfs_oldest_ready"):
        yield [f"controller.scheduler={scheduler}"]
    for policy in ("open", "closed", "timeout", "adaptive"):
        yield [f"controller.page_policy={policy}"]
    yield [f"controller.row_hit_limit={_KEEPS_ROW}"]
    yield ["controller.write_drain_high=0.9", "controller.write_drain_low=0.1"]
    yield ["controller.queues=shared"]
    for refresh in ("all_bank", "per_bank"):
        if getattr(memory.refresh, refresh) is not None and c.refresh != "none":
            yield [f"controller.refresh={refresh}"]
            yield [f"controller.refresh={refresh}", "controller.refresh_postpone=8"]
    if memory.refresh.per_bank is not None and c.refresh != "none":
        yield ["controller.refresh=per_bank", "controller.refresh_order=idle_first",
               "controller.refresh_postpone=8"]  # fmt: skip


def _flow(value: object) -> str:
    """A value as YAML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(_flow(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_flow(each)}' for key, each in value.items())}}}"
    return str(plain(value))
