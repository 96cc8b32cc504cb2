"""What no data sheet of an accelerator says, borrowed from another one: `based_on: mlu370-x4`.

Borrowed are the interleave, the hash, the controller, how DMA engines work, how attention is
spread, efficiencies and overheads, wherever the description leaves them out; each counts as
assumed. Never borrowed are facts that every data sheet has: memory, channels, capacity, engines,
peaks, links.
"""

from __future__ import annotations

from hwmodel.description.description import Document, KeyPath, Provenance, find, load

_BORROWED: tuple[KeyPath, ...] = (
    ("interleave",), ("channel_hash",), ("controller", "*"), ("work", "*"),
    *(("dma", key) for key in ("window", "request", "descriptor_cost", "strided",
                               "port_bandwidth", "request_latency", "response_latency")),
    *(("compute", key) for key in ("prefill_efficiency", "decode_efficiency", "overlap",
                                   "step_overhead", "layer_overhead")),
)  # fmt: skip


def borrow(accelerator: Document) -> None:
    """Put what is missing in its place. Raises DescriptionError where `based_on` names no
    accelerator that stands on its own."""
    name = accelerator.data.get("based_on")
    if not isinstance(name, str):
        return
    other = load(find("accelerators", name, accelerator.file))
    if other.data.get("kind") != "accelerator":
        raise accelerator.error(f"expected an accelerator; {name} is none", ("based_on",))
    if "based_on" in other.data:
        raise accelerator.error(f"{name} is based on another one itself", ("based_on",))
    for path in _paths(other):
        group = accelerator.get(path[:1])
        fits = len(path) == 1 or group is None or isinstance(group, dict)
        if fits and accelerator.get(path) is None and other.get(path) is not None:
            accelerator.put(path, other.get(path), other.mark(path))
            accelerator.provenance[path] = Provenance(
                other.get(path), ("assumed",), None, f"as {other.data.get('name', name)}"
            )


def _paths(other: Document) -> list[KeyPath]:
    found: list[KeyPath] = []
    for path in _BORROWED:
        group = other.get(path[:1])
        if path[-1] != "*":
            found.append(path)
        elif isinstance(group, dict):
            found += [(path[0], key) for key in group]
    return found
