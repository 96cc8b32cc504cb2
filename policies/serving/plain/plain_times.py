"""Times of the steps of a plain run, compiled: `StepModel` of a dense model on one card."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.memory.kv_share import share_of
from policies.requests.requests import FloatArray
from policies.serving.plain.plain_state import PlainQueue, Rows, SharesBySize


@called
def overlapped(left: float, compute_s: float, memory_s: float) -> float:
    """Seconds of what overlaps but for the share `left`."""
    if compute_s > memory_s:
        return compute_s + left * memory_s
    return memory_s + left * compute_s


@called
def passed(
    s: Any,
    rule: Any,
    c: PlainQueue,
    kept: Rows,
    curve: SharesBySize,
    rounds: int,
    event_s: float,
    row: FloatArray,
) -> int:
    """Adds the times of so many equal steps to `kept`, but for those that begin at `event_s` or
    later, the first in any case, and their sums to a row; how many there are."""
    decoding, chunked = s.decoding, s.chunked
    products = decoding + chunked
    pad, passes = 1.0, 1
    if products == 0:
        pad = 1.0
    elif products <= rule.vector_rows:
        pad = rule.vector_times
        passes = (products + rule.vector_columns - 1) // rule.vector_columns
    else:
        pad = (products + rule.tile - 1) // rule.tile * rule.tile / products
    left = rule.left
    read_s = passes * (rule.weight_bytes - 0.0) / (rule.dense_rate * s.weights_share)
    decode_s = pad * (decoding * rule.row_flops) / rule.decode_rate
    all_s = decode_s
    slowdown, prefill_s, compute_s, chunk_memory_s = rule.slowdown, 0.0, 0.0, 0.0
    weights_s = overlapped(left, decode_s, read_s)
    if s.chunks:
        slowdown *= rule.beside_chunk
        flops = chunked * rule.layer_flops + s.begun * rule.head_flops
        all_s = decode_s + pad * flops / rule.prefill_rate
        attended = s.pairs * rule.chunk_flops
        flops_s = attended / rule.attend_prefill_rate
        moved = s.behind * rule.kv_bytes + chunked * rule.kv_bytes
        moved_s = moved / (rule.kv_bandwidth * s.prefill_share)
        padding = 1.0
        if chunked and attended:
            padding += chunked * rule.more_flops / attended
        flops_s += (padding - 1) * (attended / rule.attend_prefill_rate)
        chunk_s = overlapped(left, flops_s, moved_s)
        chunk_memory_s = moved_s
        if flops_s > moved_s:
            compute_s = chunk_s
            chunk_memory_s *= left
        prefill_s = overlapped(left, all_s, read_s) - weights_s + chunk_s
    if all_s > read_s:
        compute_s += overlapped(left, all_s, read_s)
    migration_s = 0.0
    if s.moves:
        tokens = 0
        for nth in range(s.moves):
            tokens += c.moves[nth, 3]
        each = tokens * rule.kv_bytes
        s.new_migrations += s.moves
        s.new_migrated += tokens
        if rule.copies:
            s.migrated_bytes += each
            moved_s = (each + each) / (rule.bandwidth * s.migration_share)
            migration_s = overlapped(left, 0.0, moved_s)
            s.migration_s += migration_s
    if chunked:
        moved_bytes = chunked * rule.kernel_bytes
        prefill_s += moved_bytes / (rule.bandwidth * rule.law_weights * s.weights_share)
    attended = (s.context + decoding) * rule.attention_flops
    read = s.context * rule.kv_bytes + decoding * rule.kv_bytes
    share = rule.kv_bandwidth * s.attention_share
    at_s, base, done = s.now_s, s.steps, 0
    for step in range(rounds):
        if step > 0 and at_s >= event_s:
            break
        flops_s = (attended + rule.attention_flops * decoding * step) / rule.attend_rate
        read_now = read + rule.kv_bytes * decoding * step
        if len(curve.size):
            found = share_of(float(read_now), float(rule.kv_layers), curve.size, curve.share)
            share = rule.kv_bandwidth * found
        moved_s = read_now / share
        attention_s = slowdown * (max(flops_s, moved_s) + left * min(flops_s, moved_s))
        total_s = weights_s + attention_s + prefill_s + migration_s + rule.overhead_s
        kept.times_s[base + step] = total_s
        row[1] += total_s
        row[2] += step * total_s
        row[3] += attention_s
        row[4] += compute_s + (attention_s if flops_s > moved_s else 0.0)
        at_s += total_s
        done += 1
    row[19] = weights_s
    row[20] = rule.overhead_s
    row[21] = prefill_s
    s.spent_attention += row[3]
    s.spent_prefill += chunk_memory_s * done
    s.spent_migration += migration_s * done
    s.spent_all += row[1]
    s.busy_s += at_s - s.now_s
    s.now_s = at_s
    return done
