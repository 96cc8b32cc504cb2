"""Devices beside one another on models: what fits, tokens/s, for the price and the power, TPOT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names as shipped
from hwmodel.specs.device import Device
from hwmodel.specs.number_format import KvFormat, WeightFormat
from hwmodel.specs.transformer import TransformerSpec, load_model
from sweeps.analyse.statistics import Interval
from sweeps.ask.fit import OUTPUT, PROMPT, Fit, FitQuestion, Misfit, fit
from sweeps.ask.fit_library import card_of, question_of, sorted_out
from sweeps.ask.fit_section import change_text, rate_text
from sweeps.ask.question import Amounts, Count, Question, Several, Text, Typed
from sweeps.ask.sized import amounts_of
from sweeps.sections.chart import Bar, Bars
from sweeps.sections.formats import NONE, listed
from sweeps.sections.section import Block, Grid, Say, Section


@dataclass(frozen=True)
class DeviceRate:
    """A model on a device with a full batch, of all of its cards; None: not known.

    Of a pair that does not fit `why`, and `fits_with`: the first change with which it would.
    """

    device: str
    model: str
    at_once: int | None = None
    tokens_per_s: float | None = None
    """Output tokens, with what their prompts take unless these are computed elsewhere."""
    tokens_per_s_equal_software: float | None = None
    tokens_per_s_per_kusd: float | None = None
    tokens_per_s_per_watt: float | None = None
    tpot_ms: float | None = None
    alone_tpot_ms: float | None = None
    """Of one request."""
    bound_by: str | None = None
    why: str | None = None
    fits_with: dict[str, Any] | None = None


@dataclass(frozen=True)
class Compared:
    """Every pair; `software`: the class of kernels under which all are put as well."""

    pairs: list[DeviceRate]
    software: str
    decode_only: bool
    prompt: int
    output: int


class FitDevicesQuestion(Question):
    """Compare devices on models: tokens/s, for their price and power, and what fits.

    A full batch of requests of one length in closed form, an upper limit where memory is simulated;
    bankwise size has objectives, bankwise run simulates. Under "equal software" every device has
    the kernels of one class, so that what is left between them is memory and FLOPs.
    """

    names: Annotated[
        tuple[Text, ...], Several, Typed("DEVICE|MODEL", ("accelerators", "models"), argument=True)
    ]
    """Devices and models, shipped or YAML files, in any order (no device: all that ship)."""
    prompt: Count = PROMPT
    """Tokens of a prompt."""
    output: Count = OUTPUT
    """Tokens of an answer."""
    decode_only: bool = False
    """Leave prompts out: they are computed elsewhere."""
    weights: Annotated[WeightFormat, Typed("FORMAT")] | None = None
    """Number format of the weights (default: the model's)."""
    kv: Annotated[KvFormat, Typed("FORMAT")] | None = None
    """Number format of the KV (default: the model's)."""
    cards: Count = 1
    """Cards that share the model."""
    software: Annotated[str, Typed("CLASS", ("kernels",))] | None = None
    """Class of kernels of the column of equal software (default: that of the first device)."""
    price: Amounts = ()
    """Dollars of a card, where its description has none; repeatable."""
    watts: Amounts = ()
    """Power of a card, where its description has none; repeatable."""

    def answer(self) -> Compared:
        named, models = sorted_out(list(self.names))
        if not models:
            raise DescriptionError("needs a model beside devices", "DEVICE|MODEL")
        sets = list(self.set)
        cards = {name: card_of(name, sets) for name in named or shipped("accelerators")}
        known = [each.name for each in cards.values()]
        costs = amounts_of(self.price, known, "--price"), amounts_of(self.watts, known, "--watts")
        keys = ("prompt", "output", "weights", "kv", "cards")
        asked = question_of({key: getattr(self, key) for key in keys})
        software = self.software or _class(next(iter(cards.values())))
        shapes = [load_model(name) for name in models]
        pairs = [
            self._pair(card, card_of(name, [*sets, f"kernels={{class: {software}}}"]), shape, asked,
                       costs)
            for shape in shapes for name, card in cards.items()
        ]  # fmt: skip
        return Compared(pairs, software, self.decode_only, self.prompt, self.output)

    def _pair(
        self, card: Device, equal: Device, model: TransformerSpec, asked: FitQuestion,
        costs: tuple[dict[str, float], dict[str, float]],
    ) -> DeviceRate:  # fmt: skip
        found = fit(card, model, asked)
        if isinstance(found, Misfit):
            return DeviceRate(card.name, model.name, why=found.why, fits_with=found.change)
        same = fit(equal, model, asked)
        rate = self._rate(found)
        price, watts = (given.get(card.name) for given in costs)
        price, watts = price or card.price_usd, watts or watts_of(card)
        each = rate / asked.cards
        return DeviceRate(
            card.name, model.name, found.held, rate,
            self._rate(same) if isinstance(same, Fit) else None,
            1e3 * each / price if price else None, each / watts if watts else None,
            1e3 * found.full.seconds, 1e3 * found.alone.seconds, found.full.bound,
        )  # fmt: skip

    def _rate(self, found: Fit) -> float:
        """Output tokens a second of a full batch; prompts and decode take turns (assumed)."""
        decode_s = (self.output - 1) * found.full.seconds
        prompts_s = 0.0 if self.decode_only else found.held * found.prefill.seconds
        return found.held * self.output / (decode_s + prompts_s)

    def section(self, findings: Compared) -> Section:
        blocks: list[Block] = []
        for model in dict.fromkeys(each.model for each in findings.pairs):
            pairs = sorted(
                (each for each in findings.pairs if each.model == model),
                key=lambda each: -(each.tokens_per_s or 0.0),
            )
            blocks += [Say(_leaders(model, pairs), "lead"), _grid(model, pairs)]
            bars = [
                Bar(each.device, Interval(rate, rate, rate, 1))
                for each in pairs if (rate := each.tokens_per_s) is not None
            ]  # fmt: skip
            if len(bars) > 1:
                blocks.append(Bars(f"{model}: output tokens/s", bars, figure="devices"))
        prompts = "computed elsewhere" if findings.decode_only else "computed here, in turns"
        blocks.append(Say(
            f"Requests of {findings.prompt:,} + {findings.output:,} tokens, as many at once as fit;"
            f" prompts are {prompts}. Equal software: all with kernels of class"
            f" {findings.software}. Watts are those given, else the board's limit. In closed form:"
            " an upper limit where memory is simulated. bankwise fit DEVICE MODEL has one pair."
        ))  # fmt: skip
        return Section("Devices", blocks)


def _class(device: Device) -> str:
    assert device.accelerator is not None
    return device.accelerator.kernels.of


def watts_of(device: Device) -> float | None:
    """What a card draws, or else the most that its board may."""
    assert device.accelerator is not None
    power = device.accelerator.power
    return device.draw_watts or (None if power is None else power / 1e3)


_MEASURES = {
    "tokens_per_s": "serves the most output tokens/s",
    "tokens_per_s_equal_software": "with equal software",
    "tokens_per_s_per_kusd": "for the price",
    "tokens_per_s_per_watt": "for the power",
    "tpot_ms": "the least TPOT with a full batch",
}  # fmt: skip


def _leaders(model: str, pairs: Sequence[DeviceRate]) -> str:
    """Who leads by each measure, and what does not fit."""
    said = []
    for name, words in _MEASURES.items():
        known = [(value, each.device) for each in pairs
                 if (value := getattr(each, name)) is not None]  # fmt: skip
        if known:
            value, device = (min if name == "tpot_ms" else max)(known)
            said.append(f"{words}: {device} ({rate_text(value)})")
    out = [each.device for each in pairs if each.why is not None]
    text = f"{model}: {'; '.join(said)}." if said else f"{model} fits none of these."
    return text + (f" Does not fit: {listed(out)}." if out and said else "")


def _grid(model: str, pairs: Sequence[DeviceRate]) -> Grid:
    heads = ["device", "at once", "tok/s", "tok/s, equal software", "tok/s a 1,000 dollars",
             "tok/s a watt", "TPOT ms", "bound by"]  # fmt: skip
    rows = [
        [
            each.device, NONE if each.at_once is None else f"{each.at_once:,}",
            *(NONE if value is None else rate_text(value)
              for value in (each.tokens_per_s, each.tokens_per_s_equal_software,
                            each.tokens_per_s_per_kusd, each.tokens_per_s_per_watt, each.tpot_ms)),
            each.bound_by or _instead(each),
        ]
        for each in pairs
    ]  # fmt: skip
    return Grid(
        model, heads, rows, dim=frozenset(i for i, row in enumerate(rows) if row[1] == NONE)
    )


def _instead(pair: DeviceRate) -> str:
    change = f"; fits with {change_text(pair.fits_with)}" if pair.fits_with else ""
    return f"does not fit{change}"
