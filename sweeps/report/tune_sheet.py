"""`bankwise size --device`: what each setting is worth, what matters, flags of the best."""

from __future__ import annotations

from typing import Any

from sweeps.analyse.best import WIDE
from sweeps.ask.server_settings import FACTORS, settings_of
from sweeps.ask.tuning import Tuned, TuningChoice, Worth
from sweeps.sections.formats import NONE, gain, listed
from sweeps.sections.section import Grid, Say, Section

_WORDS = {
    "block": "tokens in a block", "kv": "the format of KV", "chunk": "tokens computed in a step",
    "caching": "prefix caching", "sequences": "requests that run at once",
    "watermark": "the watermark", "cards": "the number of cards",
}  # fmt: skip


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


def record(tuned: Tuned) -> dict[str, Any]:
    """In JSON's types: requests a second, and shares of them."""
    slo, best = tuned.asked.slo, tuned.confirmed
    return {
        "device": tuned.asked.device, "model": tuned.asked.model,
        "workload": tuned.asked.workload, "slo": slo.model_dump(), "base": _choice(tuned.base),
        "choices": [_worth(each) for each in tuned.worths], "no_matter": tuned.idle,
        "best": None if best is None else _worth(best), "settings": tuned.settings,
        "flags": flags(tuned),
    }  # fmt: skip


def _choice(choice: TuningChoice) -> dict[str, Any]:
    return {"values": choice.values, "cards": choice.cards, "rate_per_s": choice.rate,
            "rates_per_s": choice.rates, "why": choice.why}  # fmt: skip


def _worth(worth: Worth) -> dict[str, Any]:
    found = worth.gain
    ends = None if found is None else {"mean": found.mean, "low": found.low, "high": found.high}
    return {**_choice(worth.choice), "gain_a_card": ends, "says": worth.says}


def sheet(tuned: Tuned) -> Section:
    """The answer, a row a choice, what does not matter, and the flags."""
    asked, base = tuned.asked, tuned.base
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
    return Section(f"{asked.model} on {asked.device}", [
        Say(" ".join([_question(tuned), _answer(tuned)]), "lead"),
        Grid("", columns, rows),
        Say(_idle(tuned), "verdict"),
        Grid("", ["", "flags"], [[name, line] for name, line in flags(tuned).items()],
             text=True),
        Say(_notes(tuned)),
    ])  # fmt: skip


def _last_first(worth: Worth) -> tuple[bool, float]:
    found = worth.lead
    return (found is None, -found.mean if found is not None else -(worth.choice.rate or 0.0))


def _rate(choice: TuningChoice, cards: int = 1) -> str:
    return NONE if choice.rate is None else f"{choice.rate / cards:,.3g}"


def _question(tuned: Tuned) -> str:
    slo, asked = tuned.asked.slo, tuned.asked
    return (
        f"{asked.model} on {asked.device}, {asked.workload}, first token within {slo.ttft / 1e9:g}"
        f" s and then {slo.tpot / 1e6:g} ms a token for {slo.attainment:.0%} of requests:"
    )


def _answer(tuned: Tuned) -> str:
    base, best = tuned.base, tuned.confirmed
    started = f"as vLLM {tuned.asked.like} starts"
    text = f"{_rate(base)} requests/s {started}." if base.rates else f"no load {started}."
    if best is None:
        return f"{text} No other setting is significantly better."
    if best.gain is None:
        return f"{text} With {best.choice.name} {_rate(best.choice)} requests/s."
    count = tuned.asked.replications
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
    cards = any("cards" in each.choice.values for each in tuned.worths) or tuned.asked.only
    link = "" if cards else f" More cards were not tried: {tuned.asked.device} describes no link."
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
