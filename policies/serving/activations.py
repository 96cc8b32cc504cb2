"""Memory that a server keeps for activations: what its largest step needs beside weights and KV.

vLLM runs such a step before it sizes the KV cache and keeps the peak; so does any server that must
not run out of memory. The peak is the larger of two moments of the step:

- in a layer, for each token of the budget: the hidden state twice (residual and input) and the
  outputs of gate, up and their product, of the experts those that it passes through;
- in the sampler, for each sequence: the logits of the whole vocabulary and what sampling makes of
  them, `SAMPLER_BYTES` a number; where a version of vLLM is named its own bytes
  (`policies.engines.vllm_version`), beside `HIDDEN` states of each token of the step.
"""

from __future__ import annotations

from hwmodel.specs.number_format import number_format
from hwmodel.specs.transformer import TransformerSpec

SAMPLER_BYTES = 40
"""Of a sequence and a number of the vocabulary: logits as computed and in fp32 (2 + 4), sorted with
indices (4 + 8), softmax, cumulative sums, mask, scattered back, probabilities, log-probabilities
(about 22). Measured: 41 (Llama-3-8B, 256 sequences, 1.26 GiB, with one card and with two;
vllm-project/vllm pull request 10511) and 39 (Qwen2.5-7B, 1.42 GiB; issue 13882, 256 assumed)."""


HIDDEN = 3
"""Hidden states of a step's tokens that are still there as it samples: what Llama-3.1-8B (1.89 GiB,
128,256 numbers) and Gemma 2 (3.62, 256,000) have beside what grows with the vocabulary, 1,024
sequences and 8,192 tokens (vLLM 0.19.0 on an H100; llm-d-planner 151baf3, accuracy_report.md)."""
LOGIT_BYTES = 6
"""Of a draft's row and a number of the vocabulary: logits as computed and in fp32 (assumed: what
compares them with the draft keeps no more)."""


def peak_activation_bytes(
    part: TransformerSpec, cards: int, tokens: int, sequences: int, drafts: int = 0,
    sampler_bytes: int | None = None,
) -> int:  # fmt: skip
    """Peak of activations on each of `cards` that share a model, bytes.

    part: the shard of a card. tokens: the most in one step. sequences: the most that sample in one
    step, with so many `drafts` each. Every card samples from the whole vocabulary. sampler_bytes:
    of a number, as a version of vLLM has it.
    """
    number = number_format(part.activations).bits // 8
    layer = tokens * (2 * part.hidden + max(kind.mlp.activations for kind in part.kinds)) * number
    hidden = 0 if sampler_bytes is None else HIDDEN * tokens * part.hidden * number
    each = (SAMPLER_BYTES if sampler_bytes is None else sampler_bytes) + drafts * LOGIT_BYTES
    sampler = min(sequences, tokens) * part.vocabulary * cards * each
    return max(layer, sampler + hidden)
