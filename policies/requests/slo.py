"""Service-level objectives: what a user waits for the first token, and for each of the others."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hwmodel.description.description import Strict
from hwmodel.description.units import Nanoseconds
from policies.requests.requests import FloatArray, IntArray


class Slo(Strict):
    """A request attains it if both its times are short enough (Zhong et al. 2024, DistServe)."""

    ttft: Annotated[Nanoseconds, Field(gt=0)]
    """Most time from arrival to the first token, such as `2s`."""
    tpot: Annotated[Nanoseconds, Field(gt=0)]
    """Most mean time of each token after the first, such as `100ms`."""
    attainment: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the requests that are to attain it, for goodput."""

    def attained(
        self,
        arrival_s: FloatArray,
        first_token_s: FloatArray,
        finish_s: FloatArray,
        output_tokens: IntArray,
    ) -> NDArray[np.bool_]:
        """Which requests attain it, (n,). Times are nan where a request was dropped: it does
        not."""
        first = first_token_s - arrival_s
        each = (finish_s - first_token_s) / np.maximum(output_tokens - 1, 1)
        attained: NDArray[np.bool_] = (first * 1e9 <= self.ttft) & (each * 1e9 <= self.tpot)
        return attained
