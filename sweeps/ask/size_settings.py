"""What each setting of a server is worth on a device, what does not matter, and the flags of the
best."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hwmodel.description.description import DescriptionError
from sweeps.analyse.best import WIDE
from sweeps.ask import tuning
from sweeps.ask.fit import FitQuestion, Misfit, fit
from sweeps.ask.fit_section import change_text
from sweeps.ask.question import Count
from sweeps.ask.served import objective_record, objective_text
from sweeps.ask.server_settings import FACTORS, LIKE, SettingsQuestion, settings_of
from sweeps.ask.tuning import Tuned, TuningChoice, Worth
from sweeps.plan.experiment import device_of, model_of
from sweeps.run.executor import worker_count
from sweeps.run.progress import Progress
from sweeps.sections.formats import NONE, cpu_text, gain, listed
from sweeps.sections.section import Block, Grid, Say, Section

_WORDS = {
    "block": "tokens in a block", "kv": "the format of KV", "chunk": "tokens computed in a step",
    "caching": "prefix caching", "sequences": "requests that run at once",
    "watermark": "the watermark", "cards": "the number of cards",
}  # fmt: skip


@dataclass(frozen=True)
class TuningPlan:
    """What would be tried, and how long that takes at most."""

    tried: list[str]
    goodputs: int
    cpu_minutes: float

    @property
    def text(self) -> str:
        """`at most 45 goodputs, about 3 CPU minutes; tried: kv fp8_e4m3`."""
        names = ", ".join(self.tried)
        return f"at most {self.goodputs} goodputs, {cpu_text(self.cpu_minutes)}; tried: {names}"


@dataclass(frozen=True)
class TunedServer:
    """What was found."""

    tuned: Tuned

    def record(self) -> dict[str, Any]:
        """In JSON's types: requests a second, and shares of them."""
        tuned = self.tuned
        asked, best = tuned.question, tuned.confirmed
        return {
            "device": asked.device, "model": asked.model, "workload": asked.workload,
            "slo": objective_record(asked.objective), "base": _choice(tuned.base),
            "choices": [_worth(each) for each in tuned.worths], "no_matter": tuned.idle,
            "best": None if best is None else _worth(best), "settings": tuned.settings,
            "flags": flags(tuned),
        }  # fmt: skip


class SizeSettingsQuestion(SettingsQuestion):
    """Say which settings of a server are worth something on a device.

    Each is changed alone from vLLM's defaults and its goodput is searched; the best are taken
    together and held against the defaults again, on fresh replications.
    """

    plugs: ClassVar[bool] = True

    dry_run: bool = False
    """Only says which settings are tried, and how many CPU minutes that takes."""
    jobs: Count | None = None
    """Worker processes (default: one a core)."""

    def answer(self) -> TunedServer | TuningPlan:
        """Raises DescriptionError, which says with what it would fit, where the weights do not."""
        workers = worker_count(self.jobs)
        choices = tuning.choices(self)
        self._refuse_misfit(choices[0])
        plan = self._plan(choices)
        if self.dry_run:
            return plan
        print(plan.text, file=sys.stderr)
        return TunedServer(tuning.tune(self, choices, workers, Progress()))

    def _plan(self, choices: Sequence[TuningChoice]) -> TuningPlan:
        again = min(len(self.factors()), 2) + 1
        goodputs = (len(choices) + again) * self.replications
        minutes = goodputs * tuning.goodput_s(choices[0].experiment) / 60
        return TuningPlan([each.name for each in choices[1:]], goodputs, minutes)

    def _refuse_misfit(self, base: TuningChoice) -> None:
        question = FitQuestion(weights=self.weights, cards=self.cards)
        one = fit(device_of(base.experiment), model_of(base.experiment), question)
        if isinstance(one, Misfit):
            hint = f"; it fits with {change_text(one.change)}" if one.change else ""
            raise DescriptionError(
                f"does not fit: {one.why}{hint}", f"{self.model} on {self.device}"
            )

    def section(self, findings: TunedServer | TuningPlan) -> Section:
        title = f"{self.model} on {self.device}"
        if isinstance(findings, TuningPlan):
            return Section(title, [Say(findings.text)])
        return Section(title, tuned_blocks(findings.tuned))


def flags(tuned: Tuned) -> dict[str, str]:
    """The command that starts each engine with the best settings."""
    values = tuned.settings
    vllm, sglang = [], []
    for each in FACTORS:
        value = values[each.name]
        if each.name == "caching":
            vllm.append(each.vllm.format("" if value else "no-"))
            sglang += [] if value else [each.sglang]
        elif value:  # 0 is off, as without the flag
            vllm.append(each.vllm.format(value))
            sglang += [each.sglang.format(value)] if each.sglang else []
    return {
        "vLLM": f"vllm serve MODEL {' '.join(vllm)}",
        "SGLang": f"python -m sglang.launch_server --model-path MODEL {' '.join(sglang)}",
    }


def _choice(choice: TuningChoice) -> dict[str, Any]:
    return {"values": choice.values, "cards": choice.cards, "rate_per_s": choice.rate,
            "rates_per_s": choice.rates, "why": choice.why}  # fmt: skip


def _worth(worth: Worth) -> dict[str, Any]:
    found = worth.gain
    ends = None if found is None else {"mean": found.mean, "low": found.low, "high": found.high}
    return {**_choice(worth.choice), "gain_a_card": ends, "says": worth.says}


def tuned_blocks(tuned: Tuned) -> list[Block]:
    """The answer, a row a choice, what does not matter, and the flags."""
    base = tuned.base
    rows = [["as started", _rate(base), _rate(base, base.cards), "", base.why]]
    for each in sorted(tuned.worths, key=_last_first):
        choice = each.choice
        told = NONE if each.gain is None else gain(each.gain)
        why = each.says if not choice.why else f"{each.says}: {choice.why}"
        rows.append([choice.name, _rate(choice), _rate(choice, choice.cards), told, why])
    columns = ["setting", "requests/s", "a card", "worth a card", ""]
    if all(row[1] == row[2] for row in rows):
        columns = [*columns[:2], "worth", ""]
        rows = [row[:2] + row[3:] for row in rows]
    return [
        Say(" ".join([_question(tuned), _answer(tuned)]), "lead"),
        Grid("", columns, rows),
        Say(_idle(tuned), "verdict"),
        Grid("", ["", "flags"], [[name, line] for name, line in flags(tuned).items()],
             text=True),
        Say(_notes(tuned)),
    ]  # fmt: skip


def _last_first(worth: Worth) -> tuple[bool, float]:
    found = worth.lead
    return (found is None, -found.mean if found is not None else -(worth.choice.rate or 0.0))


def _rate(choice: TuningChoice, cards: int = 1) -> str:
    return NONE if choice.rate is None else f"{choice.rate / cards:,.3g}"


def _question(tuned: Tuned) -> str:
    asked = tuned.question
    objective = objective_text(asked.objective)
    return f"{asked.model} on {asked.device}, {asked.workload}, {objective}:"


def _answer(tuned: Tuned) -> str:
    base, best = tuned.base, tuned.confirmed
    started = f"as vLLM {LIKE} starts"
    text = f"{_rate(base)} requests/s {started}." if base.rates else f"no load {started}."
    if best is None:
        return f"{text} No other setting is significantly better."
    if best.gain is None:
        return f"{text} With {best.choice.name} {_rate(best.choice)} requests/s."
    count = tuned.question.replications
    text += f" With {best.choice.name} {gain(best.gain, named=True)} a card"
    many = f"on {count} fresh replications"
    if best.lead is not None and best.lead.sign <= 0:
        return f"{text} {many}: not confirmed."
    return f"{text}, confirmed {many}."


def _idle(tuned: Tuned) -> str:
    idle = [_WORDS[name] for name in tuned.idle]
    names = {next(iter(each.choice.values)) for each in tuned.worths if each.says == "undecided"}
    open_ = [_WORDS[name] for name in _WORDS if name in names]
    text = (
        f"Within {WIDE:.0%} either way, whichever is tried: {listed(idle)}."
        if idle
        else f"None of the settings is sure to stay within {WIDE:.0%} whichever value is tried."
    )
    if open_:
        text += f" Undecided in part: {listed(open_)}; more --replications would settle it."
    return text


def _notes(tuned: Tuned) -> str:
    kv = " What a narrower KV does to answers is not modelled." * any(
        "kv" in each.choice.values for each in tuned.worths
    )
    cards = any("cards" in each.choice.values for each in tuned.worths) or tuned.question.only
    link = (
        "" if cards else f" More cards were not tried: {tuned.question.device} describes no link."
    )
    edge = _at_the_edge(tuned)
    last = f" The last value tried is the best of {listed(edge)}: --set the base to try more."
    return (
        "One setting changed at a time, on the same requests; whether it is worth something is"
        " corrected for their number (Holm)."
        f"{last * bool(edge)}{kv}{link} SGLang's flags are translated: the schedule"
        " simulated is vLLM's, and a watermark has no flag there."
    )


def _at_the_edge(tuned: Tuned) -> list[str]:
    """Factors whose best value is the least or the most that was tried, where more could be."""
    found = []
    for name, value in (tuned.best.values if tuned.best is not None else {}).items():
        tried = [w.choice.values[name] for w in tuned.worths if name in w.choice.values]
        every = [*tried, settings_of(tuned.base.experiment)[name]]
        number = type(value) in (int, float)
        if number and name != "cards" and value in (min(every), max(every)):
            found.append(name)
    return found
