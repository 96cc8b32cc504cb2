"""How long does a long prompt hold up those that decode? Adds a scheduler that is vLLM's v1 with a
cap on the prompt tokens of a step. Prints the first token's and the other tokens' times of both.

    python examples/own_scheduler.py [PATH=VALUE ...]
    bankwise run smoke --plugin examples/own_scheduler.py \\
        --set 'serving.engine={name: capped, prefill_tokens: 128}'
"""

import sys
from typing import Annotated, Literal

from pydantic import Field

import bankwise
from policies.engines.engine_v1 import EngineV1
from policies.engines.engine_v1_options import EngineV1Spec


class CappedSpec(EngineV1Spec):
    name: Literal["capped"] = "capped"  # type: ignore[assignment]
    prefill_tokens: Annotated[int, Field(ge=1)] = 256


class Capped(EngineV1):
    Options = CappedSpec
    spec: CappedSpec

    def prefill_budget(self, left: int) -> int:
        return min(left, self.spec.prefill_tokens)


if __name__ == "__main__":
    bankwise.plugin(__file__)
    for name in ("v1", "capped"):
        engine = f"serving.engine={{name: {name}}}"
        found = bankwise.simulate("smoke", set=["policy=paged", engine, *sys.argv[1:]])["metrics"]
        ttft, tpot = found["ttft_s"]["p99"], found["tpot_s"]["p99"]
        print(f"{name}: p99 TTFT {1e3 * ttft:.0f} ms, TPOT {1e3 * tpot:.1f} ms")
