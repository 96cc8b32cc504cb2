"""What llama.cpp's kernels lose by machine and format, from one author's runs of LLaMA 1 and 2.

    python -m tools.kernel_rates

A step of batch 1 is the model's with two unknowns, the share of the peak at which products read
weights and a fixed time of a layer; several sizes in one format give both, by least squares of
relative errors. Printed are both and the widest error. A format with one size has none.
Source: XiongjieDai/GPU-Benchmarks-on-LLM-Inference c795193 README.md (tables "LLaMA" and "LLaMA
2", December 2023 to March 2024, M1 Max August 2023), mean TG; prompts of about 500 tokens, 1,024
generated.
"""

from __future__ import annotations

import sys

import numpy as np

from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import TransformerSpec, load_model
from policies.memory.measured_steps import Decode, Rate, Runtime, decode_time

CONTEXT = 500 + 1024 // 2
LARGE = {  # layers, hidden, heads, intermediate of LLaMA 30B and 65B (arXiv 2302.13971, table 2)
    "30B": (60, 6656, 52, 17920),
    "65B": (80, 8192, 64, 22016),
}
SHIPPED = {"7B": "llama-2-7b", "13B": "llama-2-13b", "70B": "llama-2-70b"}
MACHINES = {  # ours, and what differs: the RTX 6000 Ada is the L40S's die
    "RTX 4090": ("rtx-4090", []),
    "RTX 6000 Ada": ("l40s", ["given.bandwidth=960GB/s"]),
    "A100 80GB": ("a100-80gb", []),
    "H100 PCIe": ("h100-pcie", []),
    "M1 Max, 24 cores": ("m1-max", []),
    "M2 Ultra, 76 cores": ("m2-ultra", []),
}
TOKENS_PER_S = {  # LLaMA's, then LLaMA 2's
    ("RTX 4090", "q4_0"): [
        ("7B", 149.41), ("13B", 88.88), ("30B", 40.09), ("7B", 149.37), ("13B", 88.56),
    ],
    ("RTX 6000 Ada", "q4_0"): [
        ("7B", 128.08), ("13B", 74.07), ("30B", 32.65), ("65B", 17.39),
        ("7B", 127.45), ("13B", 74.34), ("70B", 17.02),
    ],
    ("RTX 6000 Ada", "fp16"): [("7B", 50.56), ("13B", 26.88), ("7B", 50.56), ("13B", 26.91)],
    ("A100 80GB", "q4_0"): [
        ("7B", 136.7), ("13B", 92.22), ("30B", 46.82), ("65B", 26.61),
        ("7B", 136.24), ("13B", 92.12), ("70B", 25.68),
    ],
    ("A100 80GB", "fp16"): [
        ("7B", 73.91), ("13B", 45.01), ("30B", 20.19), ("7B", 73.83), ("13B", 45.01),
    ],
    ("H100 PCIe", "q4_0"): [
        ("7B", 132.72), ("13B", 91.19), ("30B", 48.92), ("65B", 26.9),
        ("7B", 133.77), ("13B", 90.26), ("70B", 25.88),
    ],
    ("H100 PCIe", "fp16"): [
        ("7B", 82.4), ("13B", 50.91), ("30B", 23.1), ("7B", 83.32), ("13B", 50.99),
    ],
    ("M1 Max, 24 cores", "q4_0"): [
        ("7B", 48.14), ("13B", 26.79), ("30B", 13.14), ("7B", 48.65), ("13B", 26.39),
    ],
    ("M2 Ultra, 76 cores", "q4_0"): [
        ("7B", 92.13), ("13B", 55.8), ("30B", 26.72), ("65B", 14.73),
        ("7B", 91.89), ("13B", 55.34), ("70B", 14.37),
    ],
    ("M2 Ultra, 76 cores", "fp16"): [
        ("7B", 41.32), ("13B", 22.16), ("30B", 9.84), ("65B", 5.01),
        ("7B", 40.68), ("13B", 22.15), ("70B", 4.81),
    ],
}  # fmt: skip


def model_of(size: str) -> TransformerSpec:
    """The model of this size; that of LLaMA 1 where LLaMA 2 has none."""
    if size in SHIPPED:
        return load_model(SHIPPED[size])
    layers, hidden, heads, intermediate = LARGE[size]
    return load_model("llama-2-13b").model_copy(
        update={
            "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": heads,
            "intermediate": intermediate,
        }
    )  # fmt: skip


def parts(device: Device, size: str, form: str) -> tuple[float, float, int]:
    """(ms of weights at the peak, ms of all that is neither weights nor of a layer, layers)."""
    model = model_of(size)
    item = Decode(batch=1, context=CONTEXT, weights=form, kv="fp16")
    kept = {"policy": {"name": "static", "reserve": "max_model_len"}, "age": 0, "pad": 256}
    free = [
        Runtime.model_validate(kept | {"weights": share, "layer_overhead": "0ns"})
        for share in (1.0, 0.5)
    ]
    whole, half = (decode_time(device, model, item, runtime, Rate()).ms for runtime in free)
    return half - whole, 2 * whole - half, model.layers


def fitted(device: Device, form: str, runs: list[tuple[str, float]]) -> tuple[float, float, float]:
    """(share of the peak, fixed us of a layer, widest relative error of a step)."""
    found = {size: parts(device, size, form) for size, _ in runs}
    steps = np.array([1e3 / rate for _, rate in runs])
    unknown = np.array([(found[size][0], found[size][2]) for size, _ in runs])
    left = steps - np.array([found[size][1] for size, _ in runs])
    (slower, layer_ms), *_ = np.linalg.lstsq(unknown / steps[:, None], left / steps, rcond=None)
    error = (unknown @ (slower, layer_ms) - left) / steps
    return 1 / slower, 1e3 * layer_ms, float(np.abs(error).max())


def main() -> None:
    """Prints a row a machine and format."""
    for (machine, form), runs in TOKENS_PER_S.items():
        name, settings = MACHINES[machine]
        share, layer_us, error = fitted(load_device(name, settings), form, runs)
        row = f"{machine:20}{form:6}{share:.3f} {layer_us:4.0f} us  widest {error:.1%}"
        print(row, file=sys.stdout)


if __name__ == "__main__":
    main()
