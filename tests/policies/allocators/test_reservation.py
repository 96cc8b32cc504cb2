"""Do the policies that reserve one run of a known size reserve that size?"""

from __future__ import annotations

from typing import Any

from policies.allocators.allocator import Demand, Limits
from policies.allocators.kv_layout import KvLayout
from policies.allocators.registry import POLICIES
from policies.predictors.predictor import Prediction
from tests.policies.allocators.contract import Hands

LAYOUT = KvLayout(base=0, slots=4096, layers=2, kv_heads=2, head_bytes=16)
LIMITS = Limits(max_tokens=200, max_model_len=500)
SOME = Demand(100, 0, Prediction(50.0), output=50)


def build(name: str, **options: Any) -> Any:
    policy = POLICIES[name]
    given = policy.Options.model_validate({"name": name, **options})
    return Hands(policy(LAYOUT, 50, LIMITS, given))


def test_how_much_of_a_prefix_is_copied_and_from_where() -> None:
    allocator = build("static", prefixes="copy", fit="next")
    behind = SOME._replace(prefix_id=1, prefix_tokens=100)
    for request, tokens in enumerate((60, 100, 100)):  # two hold all of it: the first one serves
        assert allocator.reserve(request, behind, tokens)
        assert len(allocator.moves()) == (request > 0)
    # the last token of a prompt is always computed
    assert allocator.cached(3, 99, behind) == 99
    assert allocator.reserve(3, behind, 100)
    (copy,) = allocator.moves()
    assert (copy.request, copy.tokens, copy.source) == (3, 99, int(allocator.start[1]))
    assert copy.target == int(allocator.start[3])
    for request in (0, 2, 3):
        allocator.release(request)
    allocator.release(1)
    assert allocator.cached(4, 99, behind) == 99  # what lies there is found until it is taken
    allocator.overwrite(0, LAYOUT.slots)
    assert allocator.cached(4, 99, behind) == 0
