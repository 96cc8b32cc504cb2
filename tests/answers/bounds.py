"""What is never beaten."""

from __future__ import annotations

from hwmodel.description.description import DescriptionError
from tests.answers.draws import Draw
from tests.answers.relation import EXACT, NEAR, Breaches, all_at_once, alone_with, bound, equal


@bound
def reading_the_weights(draw: Draw) -> Breaches:
    """A dense model's token takes at least as long as its weights take over the memory's peak."""
    if draw.model.experts is not None:
        raise DescriptionError("it reads some experts of all")
    embedding = draw.shard.vocabulary * draw.shard.hidden * 4
    least_s = (draw.shard.weight_bytes - 2 * embedding) / draw.card.peak_gbps / 1e9
    found = alone_with(draw, draw.rng.randint(1, 500), 20).served().metrics["tpot_s"]["mean"]
    if found < least_s:
        yield f"a token takes {found} s, its weights {least_s}"


@bound
def a_part_of_memory(draw: Draw) -> Breaches:
    metrics = draw.served().metrics
    for name in ("utilization", "kv_stored_share"):
        if not 0 <= metrics[name] <= 1 + EXACT:
            yield f"{name} is {metrics[name]}"
    slots = metrics["kv_slots"]["overall"]
    yield from equal("slots", sum(slots.values()), 1.0, 1e-9)


@bound
def the_order_of_a_request(draw: Draw) -> Breaches:
    found = draw.served()
    if not (
        (found.arrival_s < found.first_token_s) & (found.first_token_s <= found.finish_s)
    ).all():
        yield "a first token comes before its request, or after the last"


@bound
def the_memory_s_peak(draw: Draw) -> Breaches:
    metrics, share = draw.served().metrics, draw.changes["memory"]["efficiency"]
    for name in ("weights", "attention"):
        if (gbps := metrics["phase_gbps"][name]) > draw.card.peak_gbps * max(share, 1) * (1 + NEAR):
            yield f"{name} moves {gbps} GB/s of {draw.card.peak_gbps}"


@bound
def a_policy_of_no_fragments(draw: Draw) -> Breaches:
    """`ideal` holds whole requests without a gap: with as much room nobody has more at once."""
    draw = all_at_once(draw)
    most = int((draw.requests.prompt_tokens + draw.requests.output_tokens).max())
    whole = int((draw.requests.prompt_tokens + draw.requests.output_tokens).sum())
    room = max(most + 64, int(whole * draw.rng.uniform(0.3, 0.8)))
    found = draw.but(kv_tokens=room).under("ideal").served().metrics
    if found["external_fragmentation"] > 0.0 + EXACT and found["preemptions"]:
        yield f"{found['external_fragmentation']} of its free memory lies apart"
