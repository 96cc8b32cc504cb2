"""LPDDR or HBM, or both, by model, context and batch: the picture of docs/two-memories.md.

Of each model, context and number of clients: the price of HBM, in dollars a GB, above which the
card without it (LPDDR alone, or GDDR and flash), or with half of it and LPDDR, serves more for its
price, and who serves the most for a watt. All else costs what the description says.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from hwmodel.specs.device import load_device
from sweeps.plan.experiment import assignments
from sweeps.run.store import CONFIG, RunDirectory

HBM, LPDDR, BOTH, FLASH = "HBM", "LPDDR", "both", "GDDR and flash"
OTHERS = {LPDDR: "LPDDR alone", BOTH: "both", FLASH: FLASH}
"""Who is held against HBM alone, and what the picture calls it."""
PROMPT, CLIENTS = "workload_set.lengths.constant.prompt_tokens", "arrivals.clients"
MOST = 500
"""Dollars beyond which the picture does not tell prices apart."""


class Card(NamedTuple):
    """Dollars: of all but its HBM, and of a dollar a GB of that."""

    rest: float
    hbm_gb: float


class CardCell(NamedTuple):
    """Output tokens/s of each card, and for a watt."""

    served: dict[str, float]
    per_watt: dict[str, float]

    def break_even(self, name: str, cards: dict[str, Card]) -> float:
        """Dollars a GB of HBM at which this card and HBM alone serve as much for their price."""
        hbm, own = cards[HBM], cards[name]
        ours, theirs = self.served[name], self.served[HBM]
        over = ours * hbm.hbm_gb - theirs * own.hbm_gb
        return (theirs * own.rest - ours * hbm.rest) / over if over > 0 else float("inf")


def cards_of(config: dict[str, Any]) -> dict[str, Card]:
    """The cards of the run."""
    found = {}
    for name in (HBM, *OTHERS):
        sets = {} if name == BOTH else config["variants"][name]["set"]
        card, with_gb = sets.get("device", config["base"]["device"]), {}
        for gb in (0, 1):
            priced = [f"price.gb={gb}"] if name in (HBM, BOTH) else []
            device = load_device(card, [*assignments(sets.get("device_set", {})), *priced])
            assert device.price_usd is not None
            with_gb[gb] = device.price_usd
        found[name] = Card(with_gb[0], with_gb[1] - with_gb[0])
    return found


def cells_of(run: RunDirectory) -> dict[tuple[str, int, int], CardCell]:
    """By case, tokens of a prompt, and clients."""
    found: dict[tuple[str, int, int], CardCell] = {}
    for record in run.records():
        of, metrics = record["overrides"], record["metrics"]
        named = of["serving.memories"]
        name = named if isinstance(named, str) else BOTH
        cell = found.setdefault((of["case"], of[PROMPT], of[CLIENTS]), CardCell({}, {}))
        cell.served[name] = metrics["output_tokens_per_s"]
        cell.per_watt[name] = metrics["tokens_per_s_per_watt"]
    return found


def picture(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """As Vega-Lite."""
    prompts = list(dict.fromkeys(row["prompt"] for row in sorted(rows, key=lambda row: row["at"])))
    place = {"x": {"field": "batch", "type": "ordinal", "title": "clients"},
             "y": {"field": "model", "type": "nominal", "title": None, "sort": None}}  # fmt: skip
    colour = {
        "field": "price", "type": "quantitative", "title": "dollars a GB",
        "scale": {"type": "log", "domain": [25, MOST], "clamp": True, "scheme": "blues"},
        "legend": {"values": [25, 50, 100, 200, 500]},
    }  # fmt: skip
    said = {"field": "text", "type": "nominal"}
    dark = {"condition": {"test": "datum.price > 150", "value": "white"}, "value": "black"}
    cells = {
        "layer": [
            {"mark": "rect", "encoding": {**place, "color": colour}},
            {"mark": "text", "encoding": {**place, "text": said, "color": dark}},
        ],
        "width": 140, "height": 110,
    }  # fmt: skip
    facet = {
        "column": {"field": "prompt", "type": "nominal", "title": None, "sort": prompts},
        "row": {"field": "against", "type": "nominal", "title": None, "sort": None},
    }
    title = "Dollars a GB of HBM above which this card serves more for its price (25 are assumed)"
    return {
        "background": "white",
        "title": title,
        "data": {"values": rows},
        "facet": facet,
        "spec": cells,
    }


def taken(folder: Path) -> dict[str, Any]:
    """What the release run takes of a run; writes `two-memories.svg` beside it."""
    import vl_convert

    import yaml

    run = RunDirectory(folder)
    cards = cards_of(yaml.safe_load((run.path / CONFIG).read_text(encoding="utf-8")))
    cells, rows = cells_of(run), list[dict[str, Any]]()
    values: dict[str, dict[str, list[float]]] = {}
    for (model, prompt, clients), cell in cells.items():
        found = values.setdefault(model, {})
        for name, told in OTHERS.items():
            price = cell.break_even(name, cards)
            found.setdefault(told, []).append(price)
            rows.append({
                "model": model, "at": prompt, "prompt": f"prompts of {prompt:,}", "batch": clients,
                "against": told, "price": min(price, MOST),
                "text": f"{price:,.0f}" if price < MOST else "never" if price > 1e6 else f">{MOST}",
            })  # fmt: skip
    table = {
        model: {f"{told}, {end}": round(pick(prices)) for told, prices in found.items()
                for end, pick in (("least", min), ("most", max))}
        for model, found in values.items()
    }  # fmt: skip
    winners = Counter(max(cell.per_watt, key=cell.per_watt.__getitem__) for cell in cells.values())
    dollars = Counter(
        "HBM" if min(cell.break_even(name, cards) for name in OTHERS) > 25 else "another"
        for cell in cells.values()
    )
    worn = [
        record["metrics"]["memory"]["years"] for record in run.records()
        if record["overrides"]["serving.memories"] == FLASH
    ]  # fmt: skip
    svg = vl_convert.vegalite_to_svg(picture(rows))
    (folder / "two-memories.svg").write_text(svg, encoding="utf-8")
    return {
        "cells": len(cells), "per watt": dict(winners), "per dollar": dict(dollars),
        "break-even": table, "years of flash": {"least": min(worn), "most": max(worn)},
    }  # fmt: skip
