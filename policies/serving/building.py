"""What serving is built of: a card's shard of the model, its KV region, its replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.stages import stages_of
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator, Limits
from policies.allocators.hybrid import Compact, TwoPools
from policies.allocators.kv_frames import CardFrames, in_frames
from policies.allocators.kv_groups import kv_groups
from policies.allocators.kv_layout import DoesNotFit, KvLayout, kv_layout
from policies.allocators.registry import POLICIES, build
from policies.allocators.state_places import StatePool
from policies.engines.engine import Engine
from policies.engines.engine_options import EngineOptions
from policies.engines.engine_requests import Offered
from policies.engines.schedulers import SCHEDULERS
from policies.engines.speculation import draw
from policies.engines.verifier import Verifier
from policies.memory.drafting import Drafter, DraftingSteps, drafter_of
from policies.memory.fidelity import Memory
from policies.memory.mapped import require_frames
from policies.memory.memory_model import memory_model, placed_memory
from policies.memory.pipeline import PipelineSpec, PipelineSteps
from policies.memory.step import StepModel
from policies.memory.step_times import StepTimer
from policies.placements.card_memories import CardMemories
from policies.requests.requests import IntArray, Requests
from policies.serving.activations import peak_activation_bytes
from policies.serving.beams import BeamLaw, Beams
from policies.serving.combinations import Facts, conflicts
from policies.serving.connecting import connect
from policies.serving.replica import Replica
from policies.serving.run import Berth, Run, Seed
from policies.serving.serving_spec import ServingSpec, state_pages, state_pool
from policies.transfers.kv_connector import Site
from policies.transfers.moves import Moves


def activation_bytes(spec: ServingSpec, local: TransformerSpec) -> int:
    """Memory that each card keeps for activations; `local` is its shard of the model."""
    if spec.activation_bytes is not None:
        return spec.activation_bytes
    engine = spec.engine
    longest = min(engine.max_model_len or local.max_position, local.max_position)
    tokens = engine.token_budget(longest)
    cards, sequences = spec.tensor_parallel, engine.sequence_cap
    return peak_activation_bytes(local, cards, tokens, sequences, spec.drafts, engine.sampler_bytes)


def non_torch_bytes(spec: ServingSpec) -> int:
    """Memory that each card has beside weights, activations and KV, where a version says it, and
    nobody says what is kept for activations and the like."""
    if spec.activation_bytes is not None:
        return 0
    return spec.engine.non_torch_bytes(spec.tensor_parallel)


def kv_region(
    device: Device, local: TransformerSpec, spec: ServingSpec, seed: Seed = 0,
    drafts: bool = True,
) -> KvLayout:  # fmt: skip
    """Where the KV of a card lies: what weights, activations, the predictor, states that are kept
    apart and the share that is kept free leave. `local` is its shard of the model. drafts: it has
    the drafter, if there is one. Raises DescriptionError if nothing is left."""
    whole, pool = _region(device, local, spec, seed, 0, drafts), state_pool(spec, local)
    if (framed := spec.cluster.kv_frame) is not None:
        key, frame = framed
        require_frames(device, frame, key)  # before the first one is mapped anew
        if local.state is not None or whole.index_bytes:
            other = "an index of tokens" if local.state is None else "states"
            raise DescriptionError(
                f"{key}.frame: blocks of {local.name} hold KV and {other}, so that not every frame "
                "is of one layer's K or V; expected frame: null"
            )
        return in_frames(whole, frame)[0]
    if pool is None:
        return whole
    if (apart := pool.apart(whole.bytes)) >= whole.bytes and spec.kv_tokens is None:
        raise DoesNotFit(
            f"policy.states: the slots of {pool.name} take {apart} B of {whole.bytes} B for KV and "
            f"states of {local.name}; lower engine.max_num_seqs"
        )
    return _region(device, local, spec, seed, apart, drafts)


def kv_regions(
    device: Device, stages: Sequence[TransformerSpec], spec: ServingSpec,
    seed: Seed = 0,
) -> list[KvLayout]:  # fmt: skip
    """As `kv_region`, of a card of each of these stages."""
    last = len(stages) - 1
    return [
        kv_region(device, stage, spec, seed, drafts=at == last) for at, stage in enumerate(stages)
    ]  # fmt: skip


def _region(
    device: Device, local: TransformerSpec, spec: ServingSpec, seed: Seed,
    apart: int = 0, drafts: bool = True,
) -> KvLayout:  # fmt: skip
    """As `kv_region`, with `apart` bytes for states."""
    order = spec.kv_layout or spec.policy.kv_layout or device.paging.kv_layout
    kept = spec.predictor.on_card_bytes + activation_bytes(spec, local) + apart
    kept += non_torch_bytes(spec)
    groups = kv_groups(local, spec.policy.kv_of_windows)
    drafter, beside_bytes = _drafter(spec, local), 0
    if drafter is not None and drafts:
        kept, beside_bytes = kept + drafter.weight_bytes, drafter.model.kv_token_bytes
    if (pages := state_pages(spec, local)) is not None:  # missing layers of a group, padding
        beside_bytes = pages.page * pages.group // pages.block - local.kv_token_bytes
    return kv_layout(
        device, local, spec.gpu_memory_utilization, order, kept, spec.kv_tokens, groups,
        spec.attention.sparse(local, seed), beside_bytes, _memories(device, spec),
        spec.engine.sequence_cap, spec.kv_pad,
    )  # fmt: skip


def _memories(device: Device, spec: ServingSpec) -> CardMemories | None:
    """Those of a card, where several have parts of what it holds. Raises DescriptionError."""
    if spec.memories is None:
        return None
    assert device.accelerator is not None
    if (tables := device.accelerator.kernels.tables) is not None:
        raise DescriptionError(
            f"memories: not with kernels.tables: {tables}, whose kernels were measured on a card"
            " with one memory"
        )
    return CardMemories(device, spec.memories)


def _drafter(spec: ServingSpec, local: TransformerSpec) -> Drafter | None:
    """That of a card, where there is one."""
    if spec.speculation is None:
        return None
    return drafter_of(spec.speculation, local, spec.tensor_parallel)


class Placing(NamedTuple):
    """Where the KV of a replica's requests lies: on a card of its stage `at`, of those that take
    turns over its layers."""

    stages: list[TransformerSpec]
    at: int
    layout: KvLayout
    frames: CardFrames | None

    @property
    def local(self) -> TransformerSpec:
        """The layers of such a card."""
        return self.stages[self.at]


def build_replica(run: Run, berth: Berth) -> Replica:
    """A replica for any request of a run, with its memory empty.

    Raises DescriptionError if the model does not fit or the device lacks what the spec needs.
    """
    spec, device, outputs = run.spec, run.device, run.metrics.requests.output
    placing = _placing(run, berth)
    limits, options = _limits(run, placing, berth)
    allocator = build(placing.layout, len(run.stream.requests), limits, spec.policy)
    models = _step_models(run, placing, limits, berth)
    memory = _memory(run, berth, placing, allocator, models[placing.at])
    # what each side of a pool makes of them is its own
    own = outputs if berth.port is None else outputs.copy()
    offered = Offered(run.stream.requests, own, run.stream.predicted)
    engine = Engine(SCHEDULERS[spec.engine.name], options, allocator, offered)
    steps = _drafting(run, engine, placing, _timer(run, models, placing, allocator))
    cards = spec.tensor_parallel * len(models)  # stages move their layers at once
    site = Site(
        device, placing.local, allocator, models[0], cards, lambda: memory.efficiency, len(models),
        berth.links,
    )  # fmt: skip
    connect(spec, site, engine, berth.port)
    if offered.requests.forks.any():
        Beams(engine, BeamLaw(offered.requests, engine.output, run.seed))
    moves = None if spec.moves is None else Moves(spec.moves, placing.local, allocator)
    return Replica(engine, steps, memory, run.metrics, spec.together, run.watches, moves)


def _placing(run: Run, berth: Berth) -> Placing:
    """Raises DescriptionError for what is not modelled there."""
    if (stages := run.alike.get("stages")) is None:
        stages = run.alike["stages"] = stages_of(run.local, run.spec.cluster.stages)
    if (placed := berth.placed or run.alike.get("placed")) is None:
        regions = kv_regions(run.device, stages, run.spec, berth.seed)
        at = _fullest(stages, regions)
        placed = at, regions[at], None
        if all(region.sparse is None for region in regions):  # which a seed draws
            run.alike["placed"] = placed
    placing = Placing(stages, *placed)
    _require_modelled(placing.local, run.spec, placing.layout, run.stream.requests)
    return placing


def _step_models(run: Run, placing: Placing, limits: Limits, berth: Berth) -> list[StepModel]:
    """Of a card of each stage."""
    spec, memory, key = run.spec, run.spec.memory, ("steps", limits.commits_states)
    if (known := run.alike.get(key)) is not None:
        return known
    models = [StepModel(
        run.device, stage, spec.tensor_parallel, spec.policy.kernel_cost, berth.routing, spec.free,
        memory.phases == "together", kv_groups(stage, spec.policy.kv_of_windows),
        placing.layout.sparse, even=bool(memory.efficiency or memory.attention),
        commits=limits.commits_states,
    ) for stage in placing.stages]  # fmt: skip
    if berth.routing is None and placing.layout.sparse is None:
        run.alike[key] = models
    return models


def _timer(
    run: Run, models: list[StepModel], placing: Placing, allocator: Allocator
) -> StepModel | PipelineSteps:
    """What times the steps of all stages."""
    if len(models) == 1:
        return models[0]
    assert run.device.accelerator is not None
    return PipelineSteps(
        run.spec.cluster.pipeline or PipelineSpec(), models, allocator,
        run.metrics.requests.arrival_s, run.device.accelerator.card_link,
        placing.local.activation_bytes, run.spec.tensor_parallel,
    )  # fmt: skip


def _memory(
    run: Run, berth: Berth, placing: Placing, allocator: Allocator, model: StepModel
) -> Memory:
    """That of a card. model: of its steps."""
    spec, device, local, port = run.spec, run.device, placing.local, berth.port
    # without frames streams of KV are measured in the same place
    regroups = spec.cluster.regroups
    region = _region(device, local, spec, berth.seed) if regroups else placing.layout
    contends = spec.simulates_transfers or (
        port is not None and port.delays.contention == "simulated"
    )
    if (card := _memories(device, spec)) is None:
        return memory_model(
            spec.memory, device, local, region, berth.seed, run.simulate, berth.routing, allocator,
            contends, placing.frames,
        )  # fmt: skip
    return placed_memory(
        spec.memory, card, local, region, berth.seed, lambda step: model.work.of(step, 1),
        run.simulate, berth.routing, allocator, contends,
    )  # fmt: skip


def _drafting(
    run: Run, engine: Engine, placing: Placing, steps: StepModel | PipelineSteps
) -> StepTimer:
    """The steps with drafts, which the engine verifies, where there are some."""
    spec, device = run.spec, run.device
    if (speculation := spec.speculation) is None:
        return steps
    drawn = draw(speculation, engine.output, run.seed)
    engine.growth = Verifier(engine, speculation, drawn)
    if (drafter := _drafter(spec, placing.stages[-1])) is None:
        return steps
    passes = StepModel(device, drafter.model, spec.tensor_parallel, free=spec.free)
    return DraftingSteps(steps, passes, speculation.tokens, device)


def _fullest(stages: list[TransformerSpec], regions: list[KvLayout]) -> int:
    """The stage whose memory decides who is admitted: of those with layers of the most kinds the
    one that has room for the longest request (assumed of stages whose layers differ)."""
    most = max(len(stage.kinds) for stage in stages)
    room = [int(region.tokens_in(region.slots)) for region in regions]
    able = [at for at, stage in enumerate(stages) if len(stage.kinds) == most]
    return min(able, key=room.__getitem__)


def _limits(run: Run, placing: Placing, berth: Berth) -> tuple[Limits, EngineOptions]:
    """What an allocator has to know of the engine, and the engine's options with what the slots of
    states leave. Raises DescriptionError where no request has one."""
    spec, local, layout = run.spec, placing.local, placing.layout
    engine = spec.engine.times(len(placing.stages))
    outputs = run.metrics.requests.output
    longest = min(spec.engine.max_model_len or local.max_position, local.max_position)
    limits = Limits(
        int(spec.engine.max_tokens or outputs.max(initial=1)),
        longest,
        engine.token_budget(longest),
        spec.engine.ahead,
    )
    if (speculation := spec.speculation) is not None:
        version = getattr(spec.engine, "like", None)
        limits = limits._replace(lookahead=speculation.slots(spec.engine.ahead, version))
    if local.state is None:
        return limits, engine
    pages = state_pages(spec, local)
    slots = -(-local.state_bytes(spec.drafts) // layout.token_bytes)
    slots = pages.groups[1] * pages.block if pages else slots
    layers = sum(many for kind, many in local.kinds.items() if kind.state is not None)
    limits = limits._replace(
        states=slots, kept_states=1 + spec.drafts + spec.policy.saves_states,
        saves_states=spec.policy.saves_states,
        state_bytes=local.state_bytes(spec.drafts) // layers,
    )  # fmt: skip
    if pages is not None:
        limits = limits._replace(drafter=(pages.groups[2], pages.drafter_block))
    if (pool := state_pool(spec, local)) is not None:
        running = pool.running(_region(run.device, local, spec, berth.seed).bytes)
        if not running:
            raise DescriptionError("policy.state_ratio: no request has a slot; raise it")
        drafter = _drafter(spec, local)
        beside = 0 if drafter is None else layout.slots * drafter.model.kv_token_bytes
        above = layout.base + layout.bytes + beside
        limits = limits._replace(states=0, **_apart(pool, above, running, layers))
        most = min(running, engine.sequence_cap)
        engine = engine.model_copy(update={"max_num_seqs": most})
    return limits, engine


def _apart(pool: TwoPools | Compact, base: int, running: int, layers: int) -> dict[str, Any]:
    """`Limits` of states of so many layers and requests that are kept apart, from `base` on."""
    copies, size = pool.copies
    return {
        "state_pool": StatePool(base, running, copies, size),
        "state_bytes": size // layers,
        "commits_states": pool.commits,
    }


def _require_modelled(
    local: TransformerSpec, spec: ServingSpec, layout: KvLayout, requests: Requests
) -> None:
    windows, sparse = layout.groups is not None, layout.sparse is not None
    sessions = bool((requests.context >= 0).any())
    for conflict in conflicts(Facts(spec, local, windows, sessions, sparse)):
        raise DescriptionError(f"{local.name}, serving.{conflict}")
    if local.state is None:
        if spec.policy.saves_states:
            raise DescriptionError(f"policy.state_caching: {local.name} has no layers with a state")
        return
    if not POLICIES[spec.policy.name].holds_states:
        raise DescriptionError(
            f"{local.name} has {local.state.kind} layers, and policy {spec.policy.name} has no "
            "place for their states"
        )
    pages = state_pages(spec, local)
    if pages is not None and pages.groups[0] > 1:
        raise DescriptionError(
            f"{local.name} has {pages.groups[0]} groups of layers with KV; runs allocate one"
        )


def admissible(
    spec: ServingSpec, allocator: Allocator, requests: Requests, output: IntArray,
    reach: int | None = None,
) -> IntArray:  # fmt: skip
    """Indices of the requests that can finish. reach: of the cards together, where they lend.

    Raises DescriptionError for the others, unless they are to be dropped.
    """
    prompt, limits = requests.prompt_tokens, allocator.limits
    wanted = allocator.needs(prompt, output)
    long = prompt + output > limits.max_model_len
    reach = allocator.reach if reach is None else reach
    bad = long | (wanted > reach)
    if bad.any() and spec.engine.too_long == "error":
        worst = int(np.flatnonzero(bad)[0])
        size = f"request {worst} ({prompt[worst]} prompt + {output[worst]} output tokens)"
        count = (
            f"{int(bad.sum())} of {len(bad)} requests can never be served, the first is {size}: "
        )
        if long[worst]:
            why = f"longer than max_model_len, {limits.max_model_len} tokens"
        else:
            why = (
                f"policy {spec.policy.name} may need {wanted[worst]} token slots for it, and can "
                f"give one request {reach}, of {allocator.slots} on a card"
            )
        kind = DescriptionError if long[worst] else DoesNotFit
        raise kind(count + why + "; shorten them or set serving.engine.too_long: drop")
    return np.flatnonzero(~bad)
