"""What `bankwise fit` shows: the sheet of a pair, a table of a device or a model, or of all
pairs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from textwrap import shorten
from typing import Any

from hwmodel.specs.kernel_law import Kernels
from hwmodel.specs.kernel_table_package import newest, systems
from policies.allocators.hybrid import Unified
from policies.serving.rates import Rate
from sweeps.ask.fit import CARDS, NARROWER, NARROWER_KV, SKEW, Fit, Misfit, linked
from sweeps.ask.new_device import software_note
from sweeps.plan.software import programs_of
from sweeps.sections.chart import Bars
from sweeps.sections.section import Block, Grid, Say, Section

GIB = 2**30
SOURCES = {
    "given": "its efficiency is given", "simulated": "simulated in a short run",
    "bound": "at most: closed-form bound x what reaches the engines (derate); --simulate, of a"
    " pair, measures it",
}  # fmt: skip
_PICTURE = "Capacity against what models need, GiB"
_SIZES = (0, 30, 100, inf)
"""GiB, from one to the next on a scale of their own."""
_BAR = 24
_REQUESTS = 8
"""Requests whose KV a picture adds to a model's weights."""
_BITS = dict(zip(NARROWER, ("8 bit", "4 bit"), strict=True))


def record(fitted: Fit | Misfit, policies: bool = False) -> dict[str, Any]:
    """In JSON's types: bytes, tokens, seconds, tokens a second."""
    asked = fitted.question
    names = {"device": fitted.device.name, "model": fitted.model.name, "fits": fitted.fits}
    tokens = {"prompt": asked.prompt, "output": asked.output, "limit": asked.limit}
    if isinstance(fitted, Misfit):
        return {**names, **tokens, "why": fitted.why, "fits_with": fitted.change}
    rates = {"alone": fitted.alone, "full": fitted.full, "prefill": fitted.prefill}
    return {
        **names, **tokens, "weights": fitted.model.weights, "kv": fitted.model.kv,
        "cards": asked.cards, "capacity_bytes": fitted.device.capacity_bytes,
        "memory_bytes": fitted.memory(), "kv_bytes_a_token": fitted.layout.whole_token_bytes,
        "kv_tokens": fitted.layout.tokens, "kv_slots": fitted.layout.slots,
        "requests_at_once": fitted.held,
        "efficiency": {"from": fitted.source, **fitted.efficiency._asdict()},
        "delivered_gbps": fitted.delivered_gbps,
        "rates": {
            name: {**r._asdict(), "bound": r.bound, "interval_s": list(fitted.interval_s(r))}
            for name, r in rates.items()
        },
        "programs": programs_of(fitted.device), "assumed": fitted.assumed(),
    } | ({"policies": _policies(fitted)} if policies else {})  # fmt: skip


def _policies(found: Fit) -> dict[str, dict[str, int]]:
    held = found.policies().items()
    return {name: {"slots_each": slots, "at_once": count} for name, (slots, count) in held}


def change_text(change: dict[str, Any]) -> str:
    """As options of the command line."""
    return " ".join(f"--{key} {value}" for key, value in change.items())


def sheet(fitted: Fit | Misfit) -> Section:
    """All about a pair."""
    device, model, asked = fitted.device, fitted.model, fitted.question
    title = f"{model.name} on {device.name}" + f" x {asked.cards}" * (asked.cards > 1)
    title += f", experts {asked.expert_parallel}" * (asked.expert_parallel != "none")
    if isinstance(fitted, Misfit):
        cards = f"up to {CARDS[-1]} cards"
        if not linked(device):
            cards = "one card" if asked.cards > 1 else "more cards (no link is described)"
        change = (
            f"Neither {' nor '.join(NARROWER)} weights nor {cards} nor {NARROWER_KV} KV would do."
        )
        change = f"It fits with {change_text(fitted.change)}." if fitted.change else change
        return Section(title, [Say(f"{title}: does not fit, {fitted.why}. {change}", "verdict")])
    many = f"{fitted.held:,} requests of {asked.prompt:,} + {asked.output:,} tokens at once"
    cap = " (max_num_seqs)" * (fitted.held == fitted.most)
    states = " or states" * (model.state is not None)
    kv = f"{fitted.layout.tokens:,} tokens of KV"
    if asked.like is not None:
        kv += f", {fitted.layout.bytes / GIB:,.2f} GiB, as vLLM {asked.like} logs them"
    text = f"{title}: fits, with {kv}{states}: {many}{cap}."
    if asked.like is not None and model.state is not None:
        text += " vLLM derives the tokens of a model with states from its longest request."
    held = fitted.policies().items()
    policies = [[name, f"{slots:,}", f"{count:,}"] for name, (slots, count) in held]
    rates = [
        ["decode", str(one.batch), _rate(fitted, "decode", one.tokens_per_s),
         f"{_ms(fitted, one)} a token", one.bound]
        for one in (fitted.alone, *([fitted.full] if fitted.held > 1 else []))
    ]  # fmt: skip
    first = f"{_ms(fitted, fitted.prefill)} to the first token"
    speed = _rate(fitted, "prefill", fitted.prefill.tokens_per_s)
    rates.append(["prefill", "1", speed, first, fitted.prefill.bound])
    columns = ["", "requests", "tokens/s", "time", "bound by"]
    return Section(title, [
        Say(text, "verdict"),
        _memory(fitted),
        Grid("Speed", columns, rates),
        Grid("Requests at once, by policy", ["policy", "slots each", "at once"], policies),
        Say(_bandwidth(fitted) + _assumed(fitted)),
        Say(_kernels(fitted)),
        Say(_policies_note(fitted)),
        *_pictures([fitted]),
    ])  # fmt: skip


def _policies_note(found: Fit) -> str:
    if found.part.state is None:
        return (
            "Policies: memory empty, lengths predicted exactly, answers of up to"
            f" {found.question.limit:,} tokens allowed, classes of s3 and odma as before any"
            f" answer was seen.{_groups(found)}"
        )
    pages, states = Unified(found.part), found.part.state_bytes()
    return (
        f"States of a request: {states / 2**20:,.1f} MiB, read and written every step. In vLLM a"
        f" block has {pages.block:,} tokens, {pages.padding / pages.page:.1%} of a state's page is"
        " padding. two_pools has SGLang's ratio of 0.9, compact a slot for each of 256 sequences."
    )


def _groups(found: Fit) -> str:
    """What a slot is where layers are in groups."""
    layout, layers = found.layout, found.part.kv_layers
    if layout.groups is None:
        return ""
    padded = layout.parts * layout.layers - layers
    return (
        f" A slot of paged holds a token in {layout.layers} of {layers} layers; there are"
        f" {layout.slots:,}. A token has one in each of {layout.parts} groups of layers"
        + (f", in which {padded} places are padding" if padded else "")
        + ", until it is behind a layer's window."
    )


def _memory(found: Fit) -> Grid:
    names = {"weights": f"weights, {found.model.weights}", "KV": f"KV, {found.model.kv}"}
    rows, layout = [], found.layout
    for name, size in found.memory().items():
        share = size / found.device.capacity_bytes
        bar = "█" * round(_BAR * share)
        each = f"{layout.tokens:,} tokens of {layout.whole_token_bytes / 1024:,.4g} KiB"
        rows.append([names.get(name, name), f"{size / GIB:,.2f}", f"{share:.0%}",
                     bar.ljust(_BAR) + (f" {each}" if name == "KV" else "")])  # fmt: skip
    return Grid("Memory of a card", ["", "GiB", "share", ""], rows)


def _ms(found: Fit, rate: Rate) -> str:
    """A time with the interval in which measured ones lie."""
    low, high = (_digits(1e3 * each) for each in found.interval_s(rate))
    middle = _digits(1e3 * rate.seconds)
    return f"{middle} ms ({low} to {high})" if low != high else f"{middle} ms"


def _digits(ms: float) -> str:
    return f"{ms:,.{(ms < 100) + (ms < 10)}f}"


def _kernels(found: Fit) -> str:
    """On what the intervals are."""
    assert found.device.accelerator is not None
    law = found.device.accelerator.kernels
    assumed = "kernels.spread_high" in found.device.assumed
    known = "assumed" if assumed else "by machines and models left out"
    tables = _offered(law)
    if law.tables is not None:
        left = ", ".join(each.replace("_", " ") for each in sorted(found.beyond)) or "nothing"
        tables = f"Kernels as measured ({law.tables}); by the law of the class: {left}. "
    said = software_note(found.device)
    return tables + (
        f"{said[0].upper()}{said[1:]}. Times in brackets: where 19 in 20 steps of {law.program}"
        f" on cards of class {law.of} are expected, {known} ({law.spread_low:g} to"
        f" {law.spread_high:g} times)." + _experts(found)
    )


def _experts(found: Fit) -> str:
    """How routing moves the times."""
    if found.skewed is None:
        return ""
    alone, full, _ = (_digits(1e3 * rate.seconds) for rate in found.skewed)
    return (
        " Experts are chosen evenly; where tokens choose them by a power of"
        f" {SKEW:g}, as benchmarks of random tokens do, a step takes {alone} ms alone and {full}"
        " full, from which the brackets begin. Real text lies between."
    )


def _offered(law: Kernels) -> str:
    """Measured kernels that there are of the card, where none are taken."""
    if law.tables is not None or law.system is None:
        return ""
    if systems() is None:
        return (
            f"Kernels of {law.system} are measured, and nearer than this law: pip install"
            " 'bankwise[kernels]', then fit names their tables. "
        )
    tables = newest(law.system, law.program)
    if tables is None:
        return ""
    return f"Kernels of {law.system} are measured: --set kernels.tables={tables} takes them. "


def _rate(found: Fit, phase: str, rate: float) -> str:
    """A rate as text, marked where it rests on assumed numbers."""
    return "~" * (phase in found.assumed()) + rate_text(rate)


def rate_text(rate: float) -> str:
    """With three digits, or all before the point."""
    return f"{rate:,.{(rate < 100) + (rate < 10)}f}"


def _bandwidth(found: Fit) -> str:
    peak, got = found.device.peak_gbps, found.delivered_gbps
    kv = f", KV {peak * found.efficiency.attention:,.0f}" * (found.source == "simulated")
    source = SOURCES[found.source]
    if found.part.state is not None:
        source = source.partition(";")[0]
    if several := found.device.memories:
        mixed = f"main, {', '.join(several)}, interleaved in proportion to bandwidth"
        source = mixed + (", as one" if found.source == "given" else f"; {source}")
    return f"Memory: {got:,.0f} of {peak:,.0f} GB/s{kv} ({source}). "


def _assumed(found: Fit) -> str:
    """The sentence on what is assumed."""
    parts = [
        f"{figure} on " + ", ".join(f"{path} {value}" for path, value in paths.items())
        for figure, paths in found.assumed().items()
    ]
    return f"~ rests on assumed numbers: {'; '.join(parts)}." if parts else ""


def listing(pairs: Sequence[Fit | Misfit], over: str) -> Section:
    """A line for each of the `over`, models or devices, what fits first."""
    first, asked = pairs[0], pairs[0].question
    one = first.device.name if over == "models" else first.model.name
    columns = [over[:-1], "weights GiB", "format", "KV tokens", "at once", "tok/s alone",
               "tok/s at once", "prefill tok/s", "bound by"]  # fmt: skip
    rows = []
    for each in sorted(pairs, key=lambda each: (not each.fits, _weights(each), each.device.name)):
        name = each.model.name if over == "models" else each.device.name
        start = [name, f"{_weights(each) / GIB:,.1f}", each.model.weights]
        if isinstance(each, Misfit):
            rows.append([*start, *"–" * 5, _instead(each)])
            continue
        rows.append([
            *start, f"{each.layout.tokens:,}", f"{each.held:,}",
            _rate(each, "decode", each.alone.tokens_per_s),
            _rate(each, "decode", each.full.tokens_per_s),
            _rate(each, "prefill", each.prefill.tokens_per_s), each.full.bound,
        ])  # fmt: skip
    fitting = [each for each in pairs if isinstance(each, Fit)]
    note = _bandwidth(fitting[0]) if fitting and over == "models" else ""
    about = f"{one}: {len(fitting)} of {len(pairs)} {over} fit"
    most = f", at most {max(each.most for each in fitting):,} at once" if fitting else ""
    each_of = f"requests of {asked.prompt:,} + {asked.output:,} tokens{most}"
    text = f"{about}; {each_of}. {note}~ rests on assumed numbers."
    return Section(one, [Grid("", columns, rows), Say(text), *_pictures(pairs)])


def matrix(pairs: Sequence[Fit | Misfit]) -> Section:
    """All pairs: decode tokens/s of one request, or with what a pair would fit."""
    devices = list(dict.fromkeys(each.device.name for each in pairs))
    rows: dict[str, list[str]] = {}
    for each in sorted(pairs, key=_weights):
        if isinstance(each, Misfit):
            text = _instead(each, True)
        else:
            text = _rate(each, "decode", each.alone.tokens_per_s)
        rows.setdefault(each.model.name, [each.model.name, f"{_weights(each) / GIB:,.0f}"])
        rows[each.model.name].append(text)
    heads = [_two_lines(name) for name in devices]
    fitting = sum(each.fits for each in pairs)
    note = (
        f"{fitting} of {len(pairs)} pairs fit. Decode tokens/s of one request with weights in"
        f" {pairs[0].question.weights or 'their own format'}, an upper limit where memory is"
        " simulated; ~ rests on assumed numbers."
        " 8 bit, 4 bit, 2x, fp8 KV: fits with such weights (int8, w4a16), so many cards, such KV."
        " –: with none."
        " More of one: bankwise fit DEVICE, fit MODEL, fit DEVICE MODEL."
    )
    grid = Grid("", ["model", "GiB", *heads], list(rows.values()))
    return Section("What fits, and how fast", [grid, Say(note), *_pictures(pairs)])


def _two_lines(name: str) -> str:
    """A name cut at the hyphen that leaves the shortest lines."""
    cuts = [i for i, letter in enumerate(name) if letter == "-"]
    cut = min(cuts, key=lambda i: max(i, len(name) - i), default=None)
    return name if cut is None else f"{name[:cut]} {name[cut + 1 :]}"


def _instead(found: Misfit, short: bool = False) -> str:
    """With what it would fit."""
    if found.change is None:
        return "–" if short else shorten(found.why, 50, placeholder=" ...")
    if not short:
        return f"fits with {change_text(found.change)}"
    names = {"cards": "{}x".format, "weights": _BITS.__getitem__, "kv": "{} KV".format}
    return " ".join(names[key](value) for key, value in found.change.items())


def _weights(found: Fit | Misfit) -> int:
    return found.model.weight_bytes


def _pictures(found: Sequence[Fit | Misfit]) -> list[Block]:
    """Capacities between the needs of models, the largest first, a chart for each size of them."""
    asked = found[0].question
    tokens = _REQUESTS * (asked.prompt + asked.output)
    bars = {}
    for each in found:
        used = asked.spec(each.model).gpu_memory_utilization * each.device.capacity_bytes
        kv = tokens * each.model.kv_token_bytes
        bars[each.device.name] = [0.0, 0.0, asked.cards * used / GIB]
        bars[each.model.name] = [_weights(each) / GIB, kv / GIB, 0.0]
    parts = ["weights", f"KV of {_REQUESTS} requests", "capacity less what is kept free"]
    note = "A model fits the devices above it; activations take some more."
    charts: list[Block] = []
    for low, high in pairwise(_SIZES):
        shown = {name: bar for name, bar in bars.items() if low <= sum(bar) < high}
        order = dict(sorted(shown.items(), key=lambda item: -sum(item[1])))
        charts += [Bars.stacked(_PICTURE, parts, order, note, share=False)] * bool(order)
    return charts
