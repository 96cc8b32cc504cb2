"""When a phase of a plain run is to be probed, compiled, as `policies.memory.sampling` has it. The
probe itself is taken in Python."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.serving.plain.plain_state import BLOCKS, Blocks, PlainQueue


@called
def _asks(s: Any, rule: Any, clock: Any, gone: float, spent: float) -> bool:
    """Whether to probe a phase now, of which placement has changed so much, and on which so many
    seconds hang (`Clock.asks`, `SampledMemory._wants`)."""
    most, wide = clock.most, False
    if clock.known:
        wide = clock.wide != 0
        half = clock.half if clock.half >= 0 and s.spent_all != 0 else 0.0
        if half > 0 and spent / s.spent_all * half / clock.mean > rule.again / 2:
            most *= clock.more
    if clock.taken >= most:
        return False
    if clock.taken and s.step < clock.due:
        near = s.step - clock.last < rule.spacing * (s.step - clock.begin)
        if gone <= rule.another and (near or (gone <= rule.change and not wide)):
            return False
    return True


@called
def _changed(now: float, then: float) -> float:
    """How much one of two is larger."""
    return max(now / then, then / now) - 1


@called
def looks(s: Any, rule: Any, c: PlainQueue, b: Blocks, clocks: Any) -> bool:
    """Whether any phase of the step is to be probed."""
    found = False
    clock = clocks[0]
    if s.decoding and not clock.given and (s.changes != s.seen or s.step >= clock.due):
        extents = s.decoding * rule.runs_each
        if rule.kind == BLOCKS:
            extents = 0
            for place in range(s.decoding):
                extents += b.runs[b.row[c.batch[place]]]
        gone = 0.0
        if clock.taken:
            gone = _changed(float(s.decoding), clock.decoding)
            gone = max(gone, _changed(float(extents), clock.extents))
            gone = max(gone, _changed(s.context / extents, clock.run))
        found = _asks(s, rule, clock, gone, s.spent_attention)
    if not found and s.chunks and not clocks[1].given:
        found = _asks(s, rule, clocks[1], 0.0, s.spent_prefill)
    if not found and s.moves and not clocks[2].given:
        found = _asks(s, rule, clocks[2], 0.0, s.spent_migration)
    return found
