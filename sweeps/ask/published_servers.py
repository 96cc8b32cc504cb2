"""Whole servers on one card beside our serving: TTFT and TPOT of 47 published settings, as
`bankwise validate servers` shows them.

Each is served as its client asked for it: as many clients as it had at once, ten requests each,
all begun together. InferenceX (1,024 and 8,192 tokens) draws lengths from 0.8 to 1 of the stated
ones (SemiAnalysisAI/InferenceX 843c625, `utils/bench_serving`), NVIDIA's GenAI-Perf has all of one
length (ai-dynamo/aiconfigurator 5e16187, `eval/benchmarks/genai_perf_runner.py`). A step of
TensorRT-LLM computes batch + input + 1,500 tokens at most in NVIDIA's rows (the same,
`rule_plugin/benchmark`) and 16,384 in InferenceX's (its `benchmarks/70b_fp8_h200_trt_slurm.sh`
before b89047d5f), and it admits what it can finish (`GUARANTEED_NO_EVICT`). SGLang keeps KV in bf16
unless told otherwise, and no row says that it was. The memory is analytic.

A first token comes later than the engine's own arithmetic has it:

- by a step, as all three schedule a step ahead: vLLM's InferenceX servers have `async-scheduling:
  true` (`70b_fp8_h200_slurm.sh`, `gptoss_fp4_h200_slurm.sh`, `70b_fp4_b200_docker.sh` there),
  TensorRT-LLM's and SGLang's overlapping schedulers are their defaults;
- by up to 20 steps on TensorRT-LLM with 1,024 tokens in and out, whose script has
  `batch_wait_timeout_iters: 20` for that setting alone: a prompt waits for others;
- by CLIENT_MS, which tokenising, HTTP and the first text take (assumed: found from outside, on
  InferenceX's vLLM rows).

Rows whose throughput would need more than half of the peak FLOPs are left out: no card does that in
a server, so that prompts were probably found in a cache. InferenceX had no warm-up before its
commit d053ae24e (21 January 2026), so that the first wave of a row measured before then waited
seconds; rows state no day, so that none can be left out for it.

No number of the model was set by these rows, but for `narrow` of `yaml/kernels`, which was taken
from tables of products after a first look. Source: ai-dynamo/aiconfigurator 095f58a,
`systems/silicon_sample.csv` (Apache-2.0), NVIDIA's rows and InferenceX dumps of 2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from statistics import median
from typing import Any, NamedTuple

from hwmodel.specs.device import Device, load_device
from hwmodel.specs.number_format import number_format
from hwmodel.specs.transformer import load_model
from policies.memory.fidelity import FidelitySpec
from policies.memory.probe import weights_efficiency
from policies.memory.probe_cache import simulate_once
from policies.requests.request_stream import generate
from policies.requests.workload import WorkloadSpec
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from sweeps.analyse.statistics import nine_in_ten


class PublishedRow(NamedTuple):
    """A published setting: tokens in and out, requests at once, times in ms."""

    device: str
    model: str
    server: str
    precision: str
    prompt: int
    output: int
    at_once: int
    ttft_ms: float
    tpot_ms: float


ROWS = [PublishedRow(*row) for row in (
    ("h100-sxm", "llama-3.1-8b", "trtllm", "bf16", 1024, 128, 8, 191.0, 7.94),
    ("h100-sxm", "llama-3.1-8b", "trtllm", "bf16", 1024, 256, 16, 194.9, 8.77),
    ("h100-sxm", "llama-3.1-8b", "trtllm", "bf16", 1024, 512, 32, 225.6, 9.88),
    ("h100-sxm", "llama-3.1-8b", "trtllm", "bf16", 2048, 128, 64, 327.5, 33.62),
    ("h100-sxm", "llama-3.1-8b", "trtllm", "bf16", 2048, 256, 128, 605.6, 40.41),
    ("h100-sxm", "llama-3.1-8b", "trtllm", "bf16", 4096, 128, 8, 441.1, 12.4),
    ("h200", "llama-3.1-8b", "vllm", "fp8", 1000, 100, 112, 71.9, 11.25),
    ("h200", "llama-3.1-8b", "vllm", "fp8", 4000, 100, 32, 184.3, 11.67),
    ("h200", "llama-3.1-8b", "vllm", "fp8", 4000, 1000, 128, 115.0, 21.99),
    ("h200", "llama-3.1-8b", "vllm", "fp8", 8000, 100, 16, 447.2, 15.53),
    ("h200", "llama-3.1-8b", "vllm", "fp8", 8000, 1000, 64, 463.4, 18.8),
    ("h200", "llama-3.1-8b", "sglang", "fp8", 1000, 100, 160, 1612.3, 26.98),
    ("h200", "llama-3.1-8b", "sglang", "fp8", 1000, 1000, 352, 938.6, 36.55),
    ("h200", "llama-3.1-8b", "sglang", "fp8", 2000, 100, 80, 361.6, 36.42),
    ("h200", "llama-3.1-8b", "sglang", "fp8", 2000, 1000, 240, 901.1, 36.24),
    ("h200", "llama-3.1-8b", "sglang", "fp8", 4000, 100, 40, 398.2, 32.49),
    ("h200", "llama-3.1-8b", "sglang", "fp8", 4000, 1000, 128, 815.2, 32.03),
    ("h200", "llama-3.3-70b", "vllm", "fp8", 1024, 1024, 4, 202.8, 21.47),
    ("h200", "llama-3.3-70b", "vllm", "fp8", 1024, 1024, 16, 315.8, 24.72),
    ("h200", "llama-3.3-70b", "vllm", "fp8", 1024, 1024, 64, 729.7, 37.44),
    ("h200", "llama-3.3-70b", "vllm", "fp8", 1024, 8192, 8, 247.3, 24.1),
    ("h200", "llama-3.3-70b", "vllm", "fp8", 1024, 8192, 32, 474.2, 37.82),
    ("h200", "llama-3.3-70b", "vllm", "fp8", 8192, 1024, 4, 1344.8, 26.14),
    ("h200", "llama-3.3-70b", "trtllm", "fp8", 1024, 1024, 4, 562.2, 20.11),
    ("h200", "llama-3.3-70b", "trtllm", "fp8", 1024, 1024, 16, 710.9, 22.99),
    ("h200", "llama-3.3-70b", "trtllm", "fp8", 1024, 1024, 64, 1345.1, 32.34),
    ("h200", "llama-3.3-70b", "trtllm", "fp8", 1024, 8192, 4, 175.8, 20.78),
    ("h200", "llama-3.3-70b", "trtllm", "fp8", 1024, 8192, 16, 307.5, 23.27),
    ("h200", "llama-3.3-70b", "trtllm", "fp8", 1024, 8192, 64, 79539.2, 30.49),
    ("h100-sxm", "qwen3-32b", "trtllm", "fp8", 1024, 128, 8, 272.0, 18.65),
    ("h100-sxm", "qwen3-32b", "trtllm", "fp8", 1024, 256, 16, 309.6, 20.03),
    ("h100-sxm", "qwen3-32b", "trtllm", "fp8", 1024, 512, 32, 345.1, 23.04),
    ("h100-sxm", "qwen3-32b", "trtllm", "fp8", 2048, 128, 64, 817.8, 98.45),
    ("h100-sxm", "qwen3-32b", "trtllm", "fp8", 2048, 256, 128, 2548.5, 102.76),
    ("h100-sxm", "qwen3-32b", "trtllm", "fp8", 4000, 1000, 32, 694.5, 22.37),
    ("h200", "gpt-oss-120b", "vllm", "fp4", 1024, 1024, 4, 85.7, 6.33),
    ("h200", "gpt-oss-120b", "vllm", "fp4", 1024, 1024, 16, 133.2, 12.65),
    ("h200", "gpt-oss-120b", "vllm", "fp4", 1024, 1024, 64, 272.7, 24.76),
    ("h200", "gpt-oss-120b", "vllm", "fp4", 1024, 8192, 8, 110.5, 8.67),
    ("h200", "gpt-oss-120b", "vllm", "fp4", 1024, 8192, 32, 173.9, 16.15),
    ("h200", "gpt-oss-120b", "vllm", "fp4", 8192, 1024, 4, 407.6, 7.08),
    ("b200", "llama-3.3-70b", "vllm", "fp4", 1024, 1024, 4, 90.1, 13.07),
    ("b200", "llama-3.3-70b", "vllm", "fp4", 1024, 1024, 64, 241.5, 17.84),
    ("b200", "llama-3.3-70b", "vllm", "fp4", 1024, 8192, 32, 161.2, 17.14),
    ("b200", "llama-3.3-70b", "vllm", "fp4", 8192, 1024, 16, 806.3, 21.77),
    ("b200", "llama-3.3-70b", "vllm", "fp8", 1024, 1024, 8, 152.6, 16.63),
    ("b200", "llama-3.3-70b", "vllm", "fp8", 1024, 8192, 4, 137.5, 16.67),
)]  # fmt: skip
PROGRAMS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
FORMATS = {"bf16": (None, None), "fp8": ("fp8", "fp8"), "fp4": ("nvfp4", "fp8")}
"""Of weights and KV."""
MOST = 0.5
"""Share of the peak FLOPs above which a row is left out (assumed)."""
EACH = 10
"""Requests of a client."""
CLIENT_MS = 8.0
"""From a first token to what a client sees of it, beside its steps."""
BATCH_WAIT = 20
"""Steps that a prompt waits for others, at most, where the server has it so."""
INFERENCE_X = {1024, 8192}
"""Tokens that its settings have in and out."""


class Laws(NamedTuple):
    """Of first tokens, each for itself, as `--without` leaves them out."""

    ahead: bool = True
    """A scheduler works a step ahead."""
    batch_wait: bool = True
    client: bool = True
    token_limits: bool = True
    """A step's limit of InferenceX's TensorRT-LLM; else batch + input + 1,500 as of NVIDIA's."""


EVERY_LAW = Laws()


@cache
def efficiency(device: str) -> float:
    """Share of the peak at which long streams are read."""
    card = load_device(device)
    if card.given is not None:
        return card.given.of_weights
    return weights_efficiency(card, load_model("llama-3.1-8b"), FidelitySpec(), simulate_once, 1)


def formats(row: PublishedRow) -> tuple[str | None, str | None]:
    """Of weights and KV; None: the model's own."""
    if row.model == "gpt-oss-120b":
        return None, None
    weights, kv = FORMATS[row.precision]
    return weights, None if row.server == "sglang" else kv


def card_of(row: PublishedRow) -> Device:
    """Its card, with the kernels of its program."""
    return load_device(row.device, [f"kernels.program={PROGRAMS[row.server]}"])


def flops_share(row: PublishedRow) -> float:
    """Share of the peak FLOPs that its tokens need in the time that they took."""
    card, model = load_device(row.device), load_model(row.model).stored_as(*formats(row))
    assert card.accelerator is not None
    compute = card.accelerator.compute
    peak = getattr(compute, number_format(model.weights).compute) or compute.fp16
    seconds = (row.ttft_ms + row.tpot_ms * (row.output - 1)) / 1e3
    tokens = row.at_once * (row.prompt + row.output) / seconds
    return float(2 * model.active_parameters * tokens / peak)


def is_inference_x(row: PublishedRow) -> bool:
    """Whether it is one of InferenceX's settings."""
    return {row.prompt, row.output} <= INFERENCE_X


def waited_steps(row: PublishedRow) -> float:
    """Steps that a prompt waits for others in the mean. One that finds none waiting waits
    BATCH_WAIT; those that come meanwhile, `at_once / output` a step, half of that."""
    if row.server != "trtllm" or (row.prompt, row.output) != (1024, 1024):
        return 0.0
    others = BATCH_WAIT * row.at_once / (0.9 * row.output)
    return BATCH_WAIT * (1 + others / 2) / (1 + others)


def later_ms(row: PublishedRow, tpot_ms: float, laws: Laws = EVERY_LAW) -> float:
    """What a first token takes beside the engine's own arithmetic."""
    steps = laws.ahead + laws.batch_wait * waited_steps(row)
    return steps * tpot_ms + laws.client * CLIENT_MS


def served(row: PublishedRow, laws: Laws = EVERY_LAW) -> tuple[float, float]:
    """(TTFT, TPOT) of our serving, ms."""
    limited = laws.token_limits and row.server == "trtllm" and is_inference_x(row)
    ttft_ms, tpot_ms = engine_times(row, limited)
    return ttft_ms + later_ms(row, tpot_ms, laws), tpot_ms


@cache
def engine_times(row: PublishedRow, limited: bool) -> tuple[float, float]:
    """(TTFT, TPOT) of the engine's own arithmetic, ms; `limited`: its steps have the limit of
    InferenceX's script."""
    weights, kv = formats(row)
    card = card_of(row)
    longest = int(1.2 * (row.prompt + row.output)) + 64
    policy: dict[str, Any] = {"name": "paged"}
    budget = 8192
    if row.server == "trtllm":
        policy = {"name": "ideal", "reserve": "output", "admit_on": "output"}
        budget = row.at_once + row.prompt + 1500
        if limited:
            budget = 16384
    spec = ServingSpec.model_validate({
        "model": row.model, "policy": policy, "weights": weights, "kv": kv,
        "engine": {"max_num_seqs": max(row.at_once, 8), "max_num_batched_tokens": budget,
                   "max_model_len": longest},
        "memory": {"fidelity": "analytic", "efficiency": efficiency(row.device)},
    })  # fmt: skip
    lengths = {"prompt_tokens": row.prompt, "output_tokens": row.output, "range": 0.0}
    if is_inference_x(row):
        lengths = {"prompt_tokens": round(0.9 * row.prompt),
                   "output_tokens": round(0.9 * row.output), "range": 1 / 9}  # fmt: skip
    workload = WorkloadSpec.model_validate({
        "kind": "workload", "name": "random", "summary": "random lengths",
        "lengths": {"uniform": lengths},
        "arrivals": {"process": "closed", "clients": row.at_once},
    })  # fmt: skip
    requests = generate(workload, EACH * row.at_once, None, 0)
    model = load_model(row.model).stored_as(weights, kv)
    found: dict[str, Any] = serve(card, model, spec, requests, seed=0).metrics
    return 1e3 * found["ttft_s"]["mean"], 1e3 * found["tpot_s"]["mean"]


class ServersBeside(NamedTuple):
    """A row, and what our serving does."""

    row: PublishedRow
    ttft_ms: float
    tpot_ms: float
    inside: bool
    """Whether the measured TPOT lies in the interval of the law."""

    @property
    def off(self) -> tuple[float, float]:
        """Of TTFT and TPOT, as shares of what was measured."""
        return self.ttft_ms / self.row.ttft_ms - 1, self.tpot_ms / self.row.tpot_ms - 1


def possible(only: str = "") -> list[PublishedRow]:
    """Rows of models whose names contain `only`, without those that no card can do."""
    return [row for row in ROWS if only in row.model and flops_share(row) <= MOST]


def each(rows: Iterable[PublishedRow], laws: Laws = EVERY_LAW) -> Iterator[ServersBeside]:
    """Serve them."""
    for row in rows:
        accelerator = card_of(row).accelerator
        assert accelerator is not None
        law, (ttft, tpot) = accelerator.kernels, served(row, laws)
        inside = law.spread_low <= row.tpot_ms / tpot <= law.spread_high
        yield ServersBeside(row, ttft, tpot, inside)


def summary(servers: Sequence[ServersBeside]) -> dict[str, Any]:
    """Errors of TTFT and TPOT: median, nine in ten, and how many TPOT lie in their interval."""
    told: dict[str, Any] = {
        "rows": len(servers), "left out": len(ROWS) - len(possible()),
        "TPOT inside its interval": sum(one.inside for one in servers) / len(servers),
    }  # fmt: skip
    for name, column in zip(("TTFT", "TPOT"), zip(*(one.off for one in servers), strict=True),
                            strict=True):  # fmt: skip
        off = [abs(each) for each in column]
        told[name] = {"median": median(off), "nine in ten": nine_in_ten(off)}
    return told
