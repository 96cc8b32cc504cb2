"""What does not go together, and why.

A component declares what it needs and what it excludes, each with the reason why the pair would
mean nothing. `conflicts` holds a description against all declarations. A pair of which one has
nothing to do is served, as a sweep over policies gives its options to all: `without_use` says so.
Keys are those of a serving description; a key that no description has is never there, so that a
component goes with its options and its lines here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import PolicyOptions
from policies.allocators.capabilities import Learns, Maps, offers
from policies.allocators.free_lists.free_list_registry import FREE_LISTS
from policies.allocators.losses import GROWING
from policies.allocators.registry import POLICIES, predicts
from policies.routers.routers import ROUTERS
from policies.serving.controllers import CONTROLLERS
from policies.transfers.connectors import CONNECTORS


class Facts(NamedTuple):
    """What is known of a run."""

    serving: Any
    """A serving description (`policies.serving.serving_spec.ServingSpec`)."""
    model: TransformerSpec | None = None
    """As a card serves it; None: not known yet."""
    windows: bool = False
    """Whether layers keep a window of tokens alone."""
    sessions: bool = False
    """Whether requests are turns of sessions."""
    sparse: bool = False
    """Whether decoding reads some tokens of all."""


class Declaration(NamedTuple):
    """`key` excludes each of `others`; or, with `needs`, one of them has to be there."""

    key: str
    others: tuple[str, ...]
    reason: str
    needs: bool = False
    idle: bool = False
    """The pair is served, and `key` has nothing to do."""

    @property
    def of_run(self) -> bool:
        """Whether it is known only once requests and the memory's layout are."""
        return self.key in OF_RUN or not OF_RUN.isdisjoint(self.others)

    def breach(self, facts: Facts) -> str | None:
        """What is wrong, with the key and what to do; None: nothing."""
        if not present(facts, self.key):
            return None
        there = [each for each in self.others if present(facts, each)]
        if self.needs:
            wanted = " or ".join(self.others)
            return None if there else f"{self.key}: needs {wanted}; {self.reason}"
        how = "nothing to do with" if self.idle else "not with"
        return f"{self.key}: {how} {there[0]}; {self.reason}" if there else None


def excludes(key: str, *others: str, why: str) -> Declaration:
    """`key` means nothing beside any of `others`."""
    return Declaration(key, others, why)


def requires(key: str, *others: str, why: str) -> Declaration:
    """`key` means nothing without one of `others`."""
    return Declaration(key, others, why, needs=True)


def idles(key: str, *others: str, why: str) -> Declaration:
    """`key` has nothing to do beside any of `others`."""
    return Declaration(key, others, why, idle=True)


def _given(facts: Facts, key: str) -> bool:
    """Whether a description says something at this key, other than that there is none."""
    value = facts.serving
    for part in key.split("."):
        value = getattr(value, part, None)
    if isinstance(value, dict):
        return bool(value)
    many = isinstance(value, int) and not isinstance(value, bool)
    return value > 1 if many else value not in (None, False, "none", [])


def _contends(facts: Facts, key: str) -> bool:
    return getattr(getattr(facts.serving, key, None), "contention", None) == "simulated"


def _never_preempts(options: PolicyOptions) -> bool:
    """Whether a policy gives each request at its admission all that it will need."""
    losses = vars(POLICIES[options.name]).get("losses", GROWING)
    return "recompute" not in losses and not predicts(options)


def _pool_engines(facts: Facts) -> set[str]:
    serving = facts.serving
    halves = [] if serving.pools is None else [serving.pools.prefill, serving.pools.decode]
    return {(half.engine or serving.engine).name for half in halves}


OWN_MOVES = "cluster.controllers that move KV"
SEVERAL = "cluster.cards, 2 or more (with pools: pools.decode.replicas)"
NAMED: dict[str, Callable[[Facts], bool]] = {
    SEVERAL: lambda facts: (
        _given(facts, "cluster.cards")
        if facts.serving.pools is None
        else facts.serving.pools.decode.replicas > 1
    ),
    "cluster.stages, 2 or more": lambda facts: _given(facts, "cluster.stages"),
    "memories: by_request": lambda facts: (
        getattr(facts.serving.memories, "name", None) == "by_request"
    ),
    "a policy that maps frames": lambda facts: offers(POLICIES[facts.serving.policy.name], Maps),
    "kv_tokens": lambda facts: (
        facts.serving.kv_tokens is not None
        or (facts.serving.pools is not None and facts.serving.pools.decode.kv_tokens is not None)
    ),
    "engine v0": lambda facts: facts.serving.engine.name == "v0",
    "engine sglang": lambda facts: facts.serving.engine.name == "sglang",
    "engine.admit_on: chunk": lambda facts: (
        getattr(facts.serving.engine, "admit_on", "input") == "chunk"
    ),
    "engine.preemption: swap": lambda facts: (
        getattr(facts.serving.engine, "preemption", None) == "swap"
    ),
    "a policy that reserves whole outputs": lambda facts: _never_preempts(facts.serving.policy),
    "policy.prefixes: copy": lambda facts: facts.serving.policy.copies_prefixes,
    "expert_group: replica": lambda facts: facts.serving.expert_group == "replica",
    "experts over several replicas": lambda facts: facts.serving.experts_in_common,
    "expert_exchange: all_to_all": lambda facts: facts.serving.expert_exchange != "all_reduce",
    "pools of engine v0": lambda facts: "v0" in _pool_engines(facts),
    "pools of engine sglang": lambda facts: "sglang" in _pool_engines(facts),
    "tiers.contention: simulated": lambda facts: _contends(facts, "tiers"),
    "pools.contention: simulated": lambda facts: _contends(facts, "pools"),
    "memory.phases: together, and memory.fidelity: sampled, full or exhaustive": lambda facts: (
        facts.serving.memory.fidelity != "analytic" and facts.serving.memory.phases == "together"
    ),
    OWN_MOVES: lambda facts: any(
        CONTROLLERS[name].equips for name in facts.serving.cluster.controllers
    ),
    "connectors without states": lambda facts: any(
        not CONNECTORS[name].holds_states for name in facts.serving.connectors
    ),
    "turns of sessions": lambda facts: facts.sessions,
    "sparse attention": lambda facts: facts.sparse,
    "sliding windows": lambda facts: facts.windows,
    "layers with a state": lambda facts: facts.model is not None and facts.model.state is not None,
}
"""What is not there just because a key is given."""
OF_RUN = {
    "sparse attention", "sliding windows", "layers with a state", "turns of sessions",
}  # fmt: skip
"""Those that a description alone does not tell."""


def present(facts: Facts, feature: str) -> bool:
    """Whether a run has a feature: one of NAMED, or a key of the description."""
    return NAMED[feature](facts) if feature in NAMED else _given(facts, feature)


_SHARES = ("cluster.dropping", "cluster.lending")
_MOVES = (*_SHARES, "cluster.migration", OWN_MOVES)
_ALONE = "there is no other card: it needs 2 cards"
_NEVER = (
    "no request comes to need it: one that has all it will need is never preempted, and one that "
    "is admitted by chunks preempts itself before it waits for a loan (engine.admit_on: input)"
)
_OWNERS = (
    "each alone decides where a running request's KV lies, on which card or in which memory, so "
    "that one would undo what the other plans"
)

DECLARATIONS: tuple[Declaration, ...] = (
    *(
        requires(each, cards, why=_ALONE)
        for each, cards in (
            *((each, SEVERAL) for each in _MOVES),
            ("expert_group: replica", "tensor_parallel"),
        )
    ),
    requires(
        "cluster.pipeline", "cluster.stages, 2 or more", "cluster.dropping", why=_ALONE
    ),
    *(
        requires(
            each, "expert_parallel",
            why="each card has a part of every expert, so that no token goes to another",
        )
        for each in ("expert_exchange: all_to_all", "expert_group: replica")
    ),
    *(
        requires(
            f"{each}.contention: simulated",
            "memory.phases: together, and memory.fidelity: sampled, full or exhaustive",
            why="what a byte in motion takes is measured in the stream of a whole step",
        )
        for each in ("tiers", "pools")
    ),
    excludes(
        "cluster.dropping", "kv_tokens",
        why="it frees bytes for more slots of KV, whose number is given",
    ),
    excludes("memories", "cluster.dropping", why=_OWNERS),
    excludes("memories: by_request", "a policy that maps frames", why=_OWNERS),
    excludes(
        "cluster.dropping", "experts over several replicas",
        why="cards keep different experts, so that none has a copy to drop",
    ),
    requires(
        "tiers.pauses", "turns of sessions",
        why="a request that no turn follows has nothing to keep until then",
    ),
    excludes(
        "policy.prefixes: copy", "engine v0",
        why="v0 stores a prompt before it is computed; expected engine v1",
    ),
    excludes(
        "policy.prefixes: copy", "sliding windows", "layers with a state",
        why="a window, or a state, is of the last tokens alone, and not of a prefix; expected "
        "prefixes: recompute",
    ),
    excludes(
        "layers with a state", "connectors without states",
        why="KV is of no use without the state behind it; expected a connector that says "
        "`holds_states`, and brings both",
    ),
    excludes(
        "cluster.lending", "sparse attention",
        why="the best tokens are known only when all cards have compared theirs, and what they "
        "merge is attention to all",
    ),
    excludes(
        "cluster.lending", "engine.admit_on: chunk",
        why=_NEVER,
    ),
    idles("engine.preemption: swap", "a policy that reserves whole outputs", why=_NEVER),
    excludes("cluster.dropping", "cluster.lending", "cluster.migration", OWN_MOVES, why=_OWNERS),
    excludes("cluster.lending", "cluster.migration", OWN_MOVES, why=_OWNERS),
    excludes("cluster.migration", OWN_MOVES, why=_OWNERS),
)  # fmt: skip
"""All of them. What pairs of features do is on docs/combinations.md."""


DEFAULT_ROUTER = next(iter(ROUTERS))
_ROUTED = "a router chooses among several"


def conflicts(facts: Facts) -> list[str]:
    """What does not go together, in the order of the declarations: in a description, or, where the
    model is known, in a run of one that is valid."""
    of_run = facts.model is not None
    asked = [each for each in DECLARATIONS if each.of_run == of_run and not each.idle]
    return [found for each in asked if (found := each.breach(facts)) is not None]


def without_use(serving: Any, model: TransformerSpec) -> list[str]:
    """What a serving description asks for that has nothing to do, and why."""
    found = (each.breach(Facts(serving)) for each in DECLARATIONS if each.idle)
    return [*(each for each in found if each is not None), *_unread(serving, model)]


_A_HEAD = ("head", "head_major", "head_turn")
"""How attention is spread where an engine reads one KV head at a time."""


def unjoined(serving: Any, device: Device) -> Iterator[str]:
    """A free list that keeps blocks together, where no engine reads two neighbours as one."""
    name = getattr(serving.policy, "free_list", None)
    order = serving.kv_layout or serving.policy.kv_layout or device.paging.kv_layout
    inside = order[order.index("unit") : order.index("token")]
    kept = name in FREE_LISTS and FREE_LISTS[name].together
    card = device.accelerator
    if kept and "head" in inside and card is not None and card.work.spread in _A_HEAD:
        yield (
            f"policy.free_list {name}: a core reads one KV head, whose tokens lie together within "
            "a block alone; expected larger blocks, or a KV layout such as layer_kv_head_block"
        )


def _unread(serving: Any, model: TransformerSpec) -> Iterator[str]:
    """Options that are not what they are by default, and that nothing in the run reads."""
    cluster, pools = serving.cluster, serving.pools
    halves = [] if pools is None else [pools.prefill, pools.decode]
    routers = {serving.router_of(half): half.replicas for half in halves}
    routers = routers or {cluster.placement: cluster.cards}
    if max(routers.values()) == 1:
        if any(name != DEFAULT_ROUTER for name in routers):
            yield f"cluster.placement: nothing to do with one replica; {_ROUTED}"
        routers = {}
    read = {key for name in routers for key in ROUTERS[name].options}
    for owner, kind in ROUTERS.items():
        for key in kind.options:
            own = getattr(cluster, key) != type(cluster).model_fields[key].default
            if own and key not in read:
                yield f"cluster.{key}: nothing to do; it is of placement {owner}"
    policies = [half.policy or serving.policy for half in halves] or [serving.policy]
    learns = any(offers(POLICIES[each.name], Learns) for each in policies)
    if cluster.bounds != "shared" and not (learns and cluster.cards > 1 and pools is None):
        yield "cluster.bounds: nothing to do; it is of a policy with buckets on several cards"
    if serving.routing.skew and model.experts is None:
        yield "routing.skew: nothing to do with a model without experts"
