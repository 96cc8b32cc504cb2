"""vLLM v1 with paged blocks or static reservations, a request and a step at a time.

It shares no code with the engine, the allocators or the step model: lists, sets and loops.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PEAK = 307.2e9
FLOPS = 96e12 * 0.5


@dataclass
class Life:
    prompt: int
    output: int
    arrival: float
    made: int = 0
    whole: bool = False  # the prefill of this residence is over
    stored: int = 0
    blocks: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)  # full blocks of the last residence, untouched
    first: float = -1.0
    end: float = -1.0


def step_seconds(decode: list[Life], chunks: list[tuple[int, int, bool]]) -> float:
    """Small model on mlu370-x4 at full memory efficiency."""
    matrices = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)
    head, kv = 100 * 64, 256
    weight_bytes = 2 * (matrices + 2 * 2 * 64 + head + 64)
    linear = len(decode) * 2 * (matrices + head)
    attended = moved = 0
    for start, tokens, last in chunks:
        linear += tokens * 2 * matrices + (2 * head if last else 0)
        attended += sum(range(start + 1, start + tokens + 1)) * 4 * 2 * 64
        moved += (start + tokens) * kv
    seconds = max(linear / FLOPS, weight_bytes / PEAK)
    context = sum(life.stored for life in decode)  # with the new tokens
    seconds += max(context * 4 * 2 * 64 / FLOPS, context * kv / PEAK)
    return seconds + max(attended / FLOPS, moved / PEAK) + 335e-6 + 2 * 12e-6


def serve(
    lives: list[Life],
    slots: int,
    budget: int,
    cap: int,
    block: int,
    reserve: int | None,
    remember: bool = False,
    whole: bool = True,
) -> tuple[int, int, int]:
    """Fills in `first` and `end`; returns (preemptions, prefilled tokens, tokens found again).

    `reserve`: max_tokens of static reservations, first fit; None: paged, first freed first reused.
    `remember`: preempted requests find their blocks again. `whole`: all of the input must fit.
    """  # fmt: skip
    free = list(range(slots // block))
    if reserve is not None:
        block = 1
        free = list(range(slots))
    waiting: list[Life] = []
    running: list[Life] = []
    to_come = list(lives)
    now, preemptions, prefilled, again = 0.0, 0, 0, 0

    def extend(life: Life, tokens: int) -> bool:
        wanted = -(-(life.stored + tokens) // block) - len(life.blocks)
        if reserve is None:
            if wanted > len(free):
                return False
            for _ in range(wanted):
                life.blocks.append(free.pop(0))
                for other in lives:
                    if life.blocks[-1] in other.left:
                        other.left = other.left[: other.left.index(life.blocks[-1])]
        elif not life.blocks:
            size = life.prompt + reserve
            taken = sorted(free)
            starts = [s for s in taken if all(s + i in free_set for i in range(size))]
            if not starts:
                return False
            life.blocks = list(range(starts[0], starts[0] + size))
            for slot in life.blocks:
                free.remove(slot)
                free_set.discard(slot)
        life.stored += tokens
        return True

    def leave(life: Life) -> None:
        if remember:
            life.left = life.blocks[: life.stored // block]
        free.extend(reversed(life.blocks))
        free_set.update(life.blocks)
        life.blocks, life.stored, life.whole = [], 0, False

    free_set = set(free)
    while to_come or waiting or running:
        while to_come and to_come[0].arrival <= now:
            waiting.append(to_come.pop(0))
        if not waiting and not running:
            now = to_come[0].arrival
            continue
        left, preempted = budget, False
        decode: list[Life] = []
        chunks: list[tuple[int, int, bool]] = []
        worked: list[Life] = []
        at = 0
        while at < len(running) and left > 0:
            life = running[at]
            total = life.prompt + life.made
            tokens = min(total - life.stored, left)
            decoding = life.whole
            start = life.stored
            while not extend(life, tokens):
                victim = running.pop()
                leave(victim)
                waiting.insert(0, victim)
                preemptions += 1
                preempted = True
                if victim is life:
                    break
            if life not in running:
                break
            left -= tokens
            at += 1
            if decoding:
                decode.append(life)
            else:
                chunks.append((start, tokens, life.stored == total))
                prefilled += tokens
            if life.stored == total:
                worked.append(life)
        while waiting and left > 0 and not preempted and len(running) < cap:
            life = waiting[0]
            total = life.prompt + life.made
            found = life.left[: (total - 1) // block]
            start = len(found) * block
            tokens = min(total - start, left)
            wanted = total if whole else start + tokens
            if -(-wanted // block) > len(free) and reserve is None:
                break
            for taken in found:
                free.remove(taken)
                life.blocks.append(taken)
            life.stored, life.left = start, []
            if not extend(life, tokens):
                break
            running.append(waiting.pop(0))
            left -= tokens
            again += start
            chunks.append((start, tokens, life.stored == total))
            prefilled += tokens
            if life.stored == total:
                worked.append(life)
        now += step_seconds(decode, chunks)
        for life in worked:
            life.made += 1
            life.whole = True
            if life.first < 0:
                life.first = now
            if life.made == life.output:
                life.end = now
                running.remove(life)
                leave(life)
                life.left = []
    return preemptions, prefilled, again
