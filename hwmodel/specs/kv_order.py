"""The order in which a KV cache lies in memory: its dimensions, outermost first.

`policies.allocators.kv_layout` says what each means and where a token's bytes lie.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from hwmodel.description.description import nearest
from hwmodel.description.written import Also

Dim = Literal["layer", "kv", "unit", "head", "token"]
Dims = tuple[Dim, ...]

LAYOUTS: dict[str, Dims] = {
    "layer_kv_token": ("layer", "kv", "unit", "token", "head"),
    "layer_kv_block_head": ("layer", "kv", "unit", "head", "token"),
    "layer_block_kv_token": ("layer", "unit", "kv", "token", "head"),
    "layer_block_kv_head": ("layer", "unit", "kv", "head", "token"),
    "layer_kv_head_block": ("layer", "kv", "head", "unit", "token"),
    "layer_token_kv": ("layer", "unit", "token", "kv", "head"),
    "block_layer_kv_token": ("unit", "layer", "kv", "token", "head"),
    "block_layer_kv_head": ("unit", "layer", "kv", "head", "token"),
    "LBNHC": ("layer", "unit", "token", "head", "kv"),
    "LBHNC": ("layer", "unit", "head", "token", "kv"),
    "LHBNC": ("layer", "head", "unit", "token", "kv"),
    "BLHNC": ("unit", "layer", "head", "token", "kv"),
    "BLNHC": ("unit", "layer", "token", "head", "kv"),
    "BHLNC": ("unit", "head", "layer", "token", "kv"),
}
"""Layouts with a name:

- `layer_kv_token`: vLLM's FlashAttention cache, (2, num_blocks, block, heads, dim) a layer (NHD);
- `layer_kv_block_head`: the same with heads outermost in the block (HND), and the MLU's
  (2, num_blocks, heads, 16, dim);
- `layer_block_kv_token`, `layer_block_kv_head`: FlashInfer's (num_blocks, 2, block, heads, dim),
  NHD and HND: K and V of a block together;
- `layer_kv_head_block`: heads outermost of all, each with blocks of its own;
- `layer_token_kv`: K and V of each token packed together;
- `block_layer_kv_token`, `block_layer_kv_head`: all layers of a block together, as systems that
  move whole blocks between memories have it; with reservations: request-major;
- `LBNHC` (vLLM's default), `LBHNC`, `LHBNC`, `BLHNC`, `BLNHC`, `BHLNC`: vLLM's own names (its RFC
  42082, merged in pull request 51718), of layer, block, token N, head and content, which is K and V
  of a head packed together, which it has since 0.28. `like` says nothing of the order.

`kv_pad` beside an order is bytes behind each row, which is what a token has in the dimensions after
`token`: of all heads where heads come after it, of one head otherwise.
"""


def _dims(value: Any) -> Any:
    """A layout's name or its dimensions -> its dimensions."""
    if isinstance(value, str):
        if value not in LAYOUTS:
            hint = nearest(value, list(LAYOUTS))
            raise PydanticCustomError("unknown_layout", "unknown layout; {hint}", {"hint": hint})
        return LAYOUTS[value]
    known = get_args(Dim)
    if not isinstance(value, (list, tuple)) or sorted(map(str, value)) != sorted(known):
        raise PydanticCustomError(
            "layout",
            "expected a layout's name, or {known} in some order",
            {"known": ", ".join(known)},
        )
    if list(value).index("unit") > list(value).index("token"):
        raise PydanticCustomError("layout", "unit: expected before token", {})
    return tuple(value)


KvOrder = Annotated[Dims, BeforeValidator(_dims), Also((("enum", tuple(LAYOUTS)),))]
"""Field type: a layout by name, or its dimensions."""
