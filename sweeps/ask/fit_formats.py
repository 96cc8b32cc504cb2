"""What KV formats take: bits, bytes a token, and the sequences that fit beside the weights."""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Any

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.kv_fit import Supply, crossover_bytes, half_empty_bytes, kv_token_bits, sequences
from hwmodel.specs.number_format import FormatOf, number_format
from hwmodel.specs.transformer import load_model
from sweeps.ask.question import Count, ModelName, Question, Several, Text, Typed
from sweeps.sections.section import Grid, Say, Section

PAGES = (4 << 10, 64 << 10)


def facts(model: str, devices: list[str], tokens: int, overrides: list[str]) -> dict[str, Any]:
    """Of every shipped KV format with this model. Raises DescriptionError."""
    spec = load_model(model, overrides)
    loaded = [load_device(name) for name in devices]
    memories = {each.name: Supply(each.capacity_bytes, each.peak_gbps * 1e9) for each in loaded}
    rows = []
    for name in FormatOf("kv").known():
        try:
            stored = spec.stored_as(None, name)
        except DescriptionError:  # no form for such vectors
            continue
        rows.append({
            "format": name,
            "bits": number_format(name).effective_bits(spec.kv_heads, spec.head_dim),
            "layer_bytes_a_token": stored.kv_layer_bytes,
            "bytes_a_token": kv_token_bits(stored) / 8,
            "half_empty_page_bytes": {size: half_empty_bytes(stored, size) for size in PAGES},
            "sequences": {
                where: sequences(stored, memory.capacity, tokens)
                for where, memory in memories.items()
            },
        })  # fmt: skip
    pairs = []
    for pair in combinations(sorted(memories, key=lambda name: -memories[name].capacity), 2):
        large, fast = (memories[name] for name in pair)
        if fast.bandwidth > large.bandwidth:
            pairs.append({"of": pair, "weight_bytes": crossover_bytes(large, fast)})
    return {
        "model": spec.name, "weight_bytes": spec.weight_bytes, "tokens": tokens, "formats": rows,
        "crossovers": pairs,
    }  # fmt: skip


class FitFormatsQuestion(Question):
    """Compare KV formats of a model, and the sequences that fit devices in each."""

    model: Annotated[ModelName, Typed("MODEL", ("models",), argument=True)]
    """A shipped model, or a YAML file."""
    devices: Annotated[
        tuple[Text, ...], Several, Typed("DEVICE", ("accelerators",), argument=True)
    ] = ()
    """Shipped accelerators, or YAML files."""
    tokens: Count = 2048
    """Tokens of a sequence."""

    def answer(self) -> dict[str, Any]:
        return facts(self.model, list(self.devices), self.tokens, list(self.set))

    def section(self, findings: dict[str, Any]) -> Section:
        """A line a format, and where a larger memory overtakes a faster one."""
        return _section(findings)


def _section(findings: dict[str, Any]) -> Section:
    places = list(findings["formats"][0]["sequences"])
    columns = [
        "KV",
        "bits",
        "B a token, layer",
        "KiB a token",
        *(f"fit {name}" for name in places),
    ]
    columns += [f"half-empty {size >> 10} KiB, MiB" for size in PAGES]
    rows = [
        [
            each["format"], f"{each['bits']:.2f}", f"{each['layer_bytes_a_token']:,}",
            f"{each['bytes_a_token'] / 1024:,.1f}", *(str(each["sequences"][p]) for p in places),
            *(f"{size / 2**20:g}" for size in each["half_empty_page_bytes"].values()),
        ]
        for each in findings["formats"]
    ]  # fmt: skip
    notes = [
        f"{findings['model']}: {findings['weight_bytes'] / 1e9:.1f} GB of weights. fit: sequences"
        f" of {findings['tokens']:,} tokens in all of the memory. half-empty: open pages of a"
        " sequence, each head, K and V, dense and sparse on their own."
    ]
    notes += [
        f"Full of KV and bound by bandwidth, {each['of'][0]} leads {each['of'][1]} where weights"
        f" exceed {each['weight_bytes'] / 1e9:.1f} GB."
        for each in findings["crossovers"]
    ]
    return Section("KV formats", [Grid("", columns, rows), *map(Say, notes)])
