"""The sentences on what changes do: who leads as described, what reverses that, what binds."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.analyse.best import needed
from sweeps.analyse.effects import Sensitivity
from sweeps.analyse.figures import limit_word
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.plan.what_if import SMALL, Changes
from sweeps.report.verdict_sentences import settled
from sweeps.sections.formats import (
    SHOWN,
    counted,
    effect,
    ratio,
    share,
    some,
)  # fmt: skip


def what_if(changes: Changes) -> Iterator[str]:
    """Which changes matter; who leads as described and what reverses that; what else binds."""
    where = f"{changes.where}: " if changes.where else ""
    if changes.changes:
        yield f"{where}{_matters(changes)}"
    for answer in changes.answers:
        now = ratio(answer.levels[AS_DESCRIBED], named=True)
        yield f"{where}{answer.subject} is {now} as described. {_ranking(answer)}"
    yield from (f"{where}{text}" for text in _bound(changes))


def _matters(found: Changes) -> str:
    """The changes that matter, the largest first with its effect, and those that do not."""
    groups = found.ranked
    sure, rest = groups["matters"], [*groups["small"], *groups["not significant"]]
    text = f"Of {counted(len(sure) + len(rest), 'change')} (corrected for all of them)"
    if not sure:
        return f"{text} none matters: no effect is significant and above {share(SMALL)}."
    largest = [
        f"{name} ({pair[0]} {effect(pair[1])})"
        for name in sure[:SHOWN] if (pair := found.largest(name)) is not None
    ]  # fmt: skip
    more = f" and {len(sure) - SHOWN} more" if len(sure) > SHOWN else ""
    text += f" {len(sure)} matter{'s' * (len(sure) == 1)}: {', '.join(largest)}{more}."
    return text + (f" Not significant, or below {share(SMALL)}: {some(rest)}." if rest else "")


def _bound(found: Changes) -> Iterator[str]:
    """With which changes something else binds than as described."""
    for rate in found.rates:
        now = found.binds(AS_DESCRIBED, rate.subject)
        other: dict[str, list[str]] = {}
        for change in found.changes:
            binds = found.binds(change, rate.subject)
            if now and binds and binds != now:
                other.setdefault(binds, []).append(change)
        if now and other:
            told = "; ".join(f"{limit_word(b)} with {some(names)}" for b, names in other.items())
            yield f"{rate.subject} is limited by {limit_word(now)} as described, by {told}."
        computing = found.computes(AS_DESCRIBED, rate.subject)
        now_ = found.flops.get(AS_DESCRIBED, {}).get(rate.subject, 0.0)
        turned = [
            f"{name} ({share(found.flops.get(name, {}).get(rate.subject, 0.0))})"
            for name in found.changes
            if found.computes(name, rate.subject) != computing
            and share(found.flops.get(name, {}).get(rate.subject, 0.0)) != share(now_)
        ]
        if turned and rate.subject in found.flops.get(AS_DESCRIBED, {}):
            verb = "no longer take" if computing else "take"
            yield (
                f"FLOPs {verb} most of the step time of {rate.subject} with {some(turned)};"
                f" as described {share(now_)}."
            )


def _ranking(found: Sensitivity) -> str:
    """Which changes reverse or settle who leads."""
    now = found.levels[AS_DESCRIBED]
    signs = found.sides
    if now.count < 2:
        return "One replication gives no interval: run three or more."
    if now.sign == 0:
        sure = some([name for name, sign in signs.items() if sign])
        other = f"any of {len(signs)} changes" if len(signs) > 1 else "the change"
        text = f"except with {sure}" if sure else f"nor with {other}"
        return f"That is not significant, {text}.{settled(now.count, needed(now))}"
    reverse = some([name for name, sign in signs.items() if sign == -now.sign])
    level = some([name for name, sign in signs.items() if sign == 0])
    text = f"Reversed by {reverse}." if reverse else f"None of {len(signs)} changes reverses it."
    return f"{text} Not significant with {level}." if level else text
