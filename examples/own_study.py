"""How does Optuna search a space of your own? `optimize` calls the objective of a study of
bankwise, here over the tokens in a block and in a step of `paged` on mlu370-x4. Prints the best
trial.

    python examples/own_study.py [PATH=VALUE ...]
"""

import sys

import optuna

import bankwise

STUDY = {
    "kind": "study",
    "name": "blocks",
    "summary": "blocks and tokens a step of paged on mlu370-x4",
    "base": {
        "device": "mlu370-x4",
        "model": "deepseek-r1-distill-qwen-7b",
        "workload": "sharegpt",
        "serving": {
            "policy": {"name": "paged", "block": 16},
            "engine": {"max_num_batched_tokens": 4096, "max_tokens": 1024},
            "memory": {"fidelity": "sampled", "probe_bytes": "1MiB", "max_probes": 2},
        },
        "arrivals": {"process": "all_at_once"},
        "warmup_requests": 40,
        "requests": 80,
        "replications": 1,
    },
    "space": {
        "serving.policy.block": {"choice": [16, 32, 64, 128]},
        "serving.engine.max_num_batched_tokens": {"range": [512, 8192], "log": True},
    },
    "constraints": [{"metric": "tpot_s.p99", "at_most": 0.2}],
    "memory": "sampled",
}


def main(*changes: str) -> None:
    objective = bankwise.objective(STUDY, set=changes)
    sampler = optuna.samplers.TPESampler(seed=1)  # or any other
    own = optuna.create_study(directions=objective.directions, sampler=sampler)
    own.optimize(objective, n_trials=6)
    for trial in own.best_trials:
        print(f"trial {trial.number}: {trial.values} with {trial.user_attrs['overrides']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
