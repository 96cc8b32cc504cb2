"""What does a reservation lose when every length is overestimated? Adds a predictor that says a
multiple of the true length. Prints output tokens/s of ODMA and requests at once, for some.

    python examples/own_predictor.py [PATH=VALUE ...]
    bankwise run smoke --plugin examples/own_predictor.py --set policy=[odma] \\
        --set 'serving.predictor={kind: multiple, times: 1.5}'
"""

import sys
from typing import Literal

import numpy as np

import bankwise
from policies.predictors.prediction import LognormalPredictions
from policies.predictors.predictor import PredictorSpec
from policies.requests.requests import IntArray


class Multiple(PredictorSpec):
    kind: Literal["multiple"] = "multiple"
    times: float = 2.0

    def predictions(
        self, output_tokens: IntArray, stream: np.random.Generator
    ) -> LognormalPredictions:
        return LognormalPredictions(self.times * output_tokens.astype(float), 0.3)


if __name__ == "__main__":
    bankwise.plugin(__file__)
    for times in (1.0, 2.0, 4.0):
        sets = [
            "policy={name: odma, window: 20, refresh: 5}",
            "workload=lognormal",
            "model=llama-3.1-8b",
        ]
        sets.append(f"serving.predictor={{kind: multiple, times: {times}}}")
        found = bankwise.simulate("smoke", set=[*sets, *sys.argv[1:]])["metrics"]
        rate, batch = found["output_tokens_per_s"], found["batch"]
        print(f"{times:g} times: {rate:.0f} tok/s, {batch:.1f} at once")
