"""What lives are led on: every policy with its defaults and with each choice of each of its
options, and some with windows, states, drafts and steps that are scheduled ahead."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args, get_origin

from hwmodel.specs.attention import AttentionWindow
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Limits, Lookahead, PolicyOptions
from policies.allocators.kv_groups import kv_groups
from policies.allocators.kv_layout import KvLayout
from policies.allocators.registry import POLICIES
from policies.allocators.state_places import StatePool
from tests.policies.small import WINDOWS

LAYOUT = KvLayout(base=4096, slots=1024, layers=2, kv_heads=2, head_bytes=256)

LIMITS = Limits(max_tokens=128, max_model_len=256)

REQUESTS = 400

OTHER = {"frame": "4KiB", "page": 16, "stagger": 5}
"""Options that are numbers, with another value than their default."""


def cases() -> list[tuple[str, PolicyOptions]]:
    """Every registered policy with its defaults, and with each choice of each of its options."""
    found: list[tuple[str, PolicyOptions]] = []
    for name, allocator in POLICIES.items():
        found.append((name, allocator.Options.model_validate({"name": name})))
        if name == "odma-best":  # other defaults of odma, whose choices are there
            continue
        for key, info in allocator.Options.model_fields.items():
            if get_origin(info.annotation) is Literal:
                for choice in get_args(info.annotation):
                    if choice == "free" and name != "static":
                        continue  # compaction as `copied`, without the copies
                    if choice != info.default:
                        chosen = {"name": name, key: choice}
                        if name == "vattention":
                            chosen["frame"] = "4KiB"  # 128 groups, a tenth of which are some
                        if (name, key) == ("odma", "compaction"):
                            chosen["space"] = "arena"  # blocks of slabs do not move
                        options = allocator.Options.model_validate(chosen)
                        found.append((f"{name}-{key}-{choice}", options))
            elif info.annotation is bool:
                options = allocator.Options.model_validate({"name": name, key: not info.default})
                found.append((f"{name}-{key}-{not info.default}", options))
            elif key in OTHER:
                options = allocator.Options.model_validate({"name": name, key: OTHER[key]})
                found.append((f"{name}-{key}", options))
    return found


def build(options: PolicyOptions, layout: KvLayout = LAYOUT, requests: int = REQUESTS) -> Any:
    return POLICIES[options.name](layout, requests, LIMITS, options)


class Setting(NamedTuple):
    """What lives are led on."""

    options: PolicyOptions
    limits: Limits = LIMITS
    model: TransformerSpec | None = None
    """With windows, which takes 1,536 slots more."""

    @property
    def layout(self) -> KvLayout:
        if self.model is None:
            return LAYOUT
        groups = kv_groups(self.model, self.options.kv_of_windows)
        assert groups is not None
        return KvLayout(4096, 2560, groups.size, 2, 32, groups=groups)


TWO = WINDOWS.model_copy(
    update={"window": AttentionWindow(tokens=40, pattern=["window", 16, "full"])}
)
"""Windows of two lengths."""
STEP = Limits(128, 256, step=96)
AHEAD = STEP._replace(ahead=1)
DRAFTS = LIMITS._replace(lookahead=Lookahead(4, 0, "less_one"))
DRAFTER = DRAFTS._replace(drafter=(2, 8), lookahead=Lookahead(4, 3, "next_known"))
STATES = LIMITS._replace(states=30, kept_states=2, state_bytes=600)
APART = LIMITS._replace(state_bytes=600, state_pool=StatePool(1 << 24, 3, 2, 1200), kept_states=2)
COPIED: dict[str, Any] = {"space": "arena", "compaction": "copied"}
POOLS: dict[str, Any] = {"space": "partitioned"}
MORE: list[tuple[str, dict[str, Any], Limits, Any]] = [
    ("paged", {"block": 4}, LIMITS, None),
    ("paged", {"block": 4, "watermark": 0.05, "null_block": True}, LIMITS, None),
    ("paged", {"free_list": "spread", "free_list_window": 0.5}, LIMITS, None),
    ("paged", {"prefix_caching": False, "cached_recompute": False}, LIMITS, None),
    ("paged", {"prefix_caching": False, "shared_samples": True}, LIMITS, None),
    ("static", {**COPIED, "compaction_tokens": 60}, LIMITS, None),
    ("static", {"prefixes": "copy", "fit": "next"}, LIMITS, None),
    ("s3", {"profile": 8, "bounds": "quantiles", "buckets": 4}, LIMITS, None),
    ("s3", {"lengths": [10, 30, 60, 100], "outgrown": "double"}, LIMITS, None),
    ("odma", {**POOLS, "repartition": "never", "bucket_full": "next_larger"}, LIMITS, None),
    ("odma", {**POOLS, "repartition": "when_empty", "large_full": "next_larger"}, LIMITS, None),
    ("odma", {**POOLS, "bucket_full": "next_larger", "pool_split": "blocks",
              "bucket_on": "total"}, LIMITS, None),
    ("odma", {**POOLS, "refresh_delay": 5.0, "large": "max_model_len"}, LIMITS, None),
    ("odma", {**POOLS, "pool_overflow": True, "pool_split": "demand", "pool_share": 0.4},
     LIMITS, None),
    ("odma", {"borrow": 1.0, "levels": [0.5, 0.8, 1.0], "buckets": 3}, LIMITS, None),
    ("odma", {"borrow": 8.0, "refreshes": 2, "first_bounds": "even"}, LIMITS, None),
    ("odma", {"pool_share": 0.3, "pool_overflow": True, "uncertainty": "constant",
              "constant": 0.9}, LIMITS, None),
    ("odma", {**COPIED, "pool_share": 0.3, "large_full": "next_larger"}, LIMITS, None),
    ("odma", {"buckets": 1, "gamma": 2.0, "tau": 0.2}, LIMITS, None),
    ("ideal", {"reserve": "output", "admit_on": "output"}, LIMITS, None),
    ("vattention", {"frame": "4KiB", "reclaim": "low", "slicing": True}, LIMITS, None),
    *((name, given, STEP, model) for model in (WINDOWS, TWO) for name, given in (
        ("paged", {}), ("paged", {"free_list": "split", "null_block": True, "block": 8}),
        ("static", {}), ("s3", {"stagger": 3}), ("odma", {"tau": 9}), ("odma", POOLS),
        ("odma", COPIED), ("orca", {}), ("oracle", {}), ("ideal", {}),
        ("ideal", {"reserve": "output"}),
    )),
    ("static", {"window_kv": "full"}, STEP, TWO),
    *(("paged", {"window_rules": rules}, AHEAD, model) for model, rules in (
        (WINDOWS, "0.11"), (TWO, "0.19"), (WINDOWS, "0.23"), (TWO, "0.33"),
    )),
    *((name, given, DRAFTS, None) for name, given in (
        ("paged", {}), ("radix", {"page": 4}), ("static", {}), ("odma", COPIED), ("orca", {}),
        ("vattention", {"frame": "4KiB"}), ("ideal", {}),
    )),
    ("paged", {}, DRAFTS._replace(step=96, ahead=1), TWO),
    ("paged", {"block": 8}, DRAFTER, None),
    ("paged", {"block": 8}, DRAFTER._replace(step=96), WINDOWS),
    *((name, given, STATES, None) for name, given in (
        ("paged", {"prefix_caching": False}), ("static", COPIED), ("odma", COPIED), ("orca", {}),
        ("ideal", {}), ("vattention", {"frame": "4KiB"}),
    )),
    ("paged", {"state_caching": "align"}, STATES._replace(saves_states=True, kept_states=3), None),
    ("paged", {"prefix_caching": False}, APART, None),
    ("radix", {"prefix_caching": False}, APART, None),
]  # fmt: skip
OFTEN = {"refresh": 3, "window": 15, "align": 8}
"""Bounds of `odma` that change often."""


def named(name: str, given: dict[str, Any], limits: Limits, model: Any) -> tuple[str, Setting]:
    often = {key: value for key, value in OFTEN.items() if name == "odma"}
    options = POLICIES[name].Options.model_validate({"name": name, **often, **given})
    said = [name, *(f"{key} {value}" for key, value in given.items())]
    said += [
        f"{key} {tuple(value) if isinstance(value, tuple) else value}"
        for key, value, usual in zip(limits._fields, limits, LIMITS, strict=True) if value != usual
    ]  # fmt: skip
    if model is not None:
        said.append("windows" if model is WINDOWS else "two windows")
    return ", ".join(said), Setting(options, limits, model)


SETTINGS = {
    name: Setting(options.model_copy(update=OFTEN) if name.startswith("odma") else options)
    for name, options in cases()
} | dict(named(*each) for each in MORE)
