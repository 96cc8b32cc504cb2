"""The vLLM that is installed: its version, and its scheduler without a model, a worker or a GPU."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError

RULES = ("0.19", "0.23", "0.33")
"""Versions whose defaults are known (`like`); one between has those of the one before."""


def vllm_version() -> str | None:
    """Of the installed vLLM, as 0.23.0; None: there is none."""
    try:
        return version("vllm").split("+")[0]
    except PackageNotFoundError:
        return None


def rules_of(installed: str) -> str | None:
    """Which of `RULES` has the defaults of a version; None: it is older than all of them."""
    own = tuple(int(each) for each in installed.split(".")[:2])
    known = [each for each in RULES if tuple(map(int, each.split("."))) <= own]
    return known[-1] if known else None


def rules_here() -> str:
    """The same of the installed version; the last of all where there is none, or it is too old."""
    return rules_of(vllm_version() or RULES[-1]) or RULES[-1]


class Wanted(NamedTuple):
    """What a scheduler is to be made of."""

    blocks: int
    """Of the pool, its null block included."""
    block: int
    """Tokens of a block."""
    windows: Sequence[int | None]
    """Of each group of layers the tokens it attends to; None: all."""
    longest: int
    """Longest prompt and answer, in tokens."""
    prefix_caching: bool
    watermark: float
    asynchronous: bool
    whole_inputs: bool
    """Whether a request is admitted when all of its input has room (else: its next chunk)."""
    scheduler: dict[str, Any]
    """Further fields of vLLM's `SchedulerConfig`."""


class InstalledVllm:
    """Made once a process, since importing vLLM takes seconds: what a run asks of it."""

    def __init__(self) -> None:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
        os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        try:
            with warnings.catch_warnings(action="ignore"):  # its own, and of what it imports
                self._load()
        except Exception as error:  # whatever a broken or foreign installation raises
            raise DescriptionError(
                f"engine vllm: the installed vLLM {vllm_version()} cannot be driven "
                f"({type(error).__name__}: {error})"
            ) from None

    def _load(self) -> None:
        import torch
        from vllm import config
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1 import kv_cache_interface
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.outputs import ModelRunnerOutput
        from vllm.v1.request import Request

        self._config, self._kv, self._dtype = config, kv_cache_interface, torch.float16
        self._schedulers = {True: AsyncScheduler, False: Scheduler}
        self._output, self._request, self._sampling = ModelRunnerOutput, Request, SamplingParams
        init_none_hash(sha256)
        self._hasher = lambda block: get_request_block_hasher(block, sha256)

    def scheduler(self, wanted: Wanted) -> Any:
        """vLLM's own scheduler, with a KV-cache manager and a block pool of its own. Raises
        DescriptionError for what this version does not have."""
        fields = self._config.SchedulerConfig.__dataclass_fields__
        options = {
            "max_model_len": wanted.longest, "enable_chunked_prefill": True,
            "is_encoder_decoder": False, "async_scheduling": wanted.asynchronous,
            "scheduler_reserve_full_isl": wanted.whole_inputs, **wanted.scheduler,
        }  # fmt: skip
        if wanted.watermark:
            options["watermark"] = wanted.watermark
        if lacking := sorted(set(options) - set(fields)):
            raise DescriptionError(
                f"engine vllm: {', '.join(lacking)}: not an option of vLLM {vllm_version()}"
            )
        with warnings.catch_warnings(action="ignore"):
            made = self._configured(wanted, options)
        groups = [
            self._kv.KVCacheGroupSpec([f"layer.{at}"], self._attention(window, wanted.block))
            for at, window in enumerate(wanted.windows)
        ]
        grammars = SimpleNamespace(  # structured outputs, of which there are none
            should_advance=lambda *_, **__: False, accept_tokens=lambda *_, **__: True
        )
        with warnings.catch_warnings(action="ignore"):
            return self._schedulers[wanted.asynchronous](
                vllm_config=made, block_size=wanted.block, log_stats=False,
                kv_cache_config=self._kv.KVCacheConfig(wanted.blocks, [], groups),
                structured_output_manager=grammars,
            )  # fmt: skip

    def request(
        self, name: str, prompt: list[int], answer: int, stop: int | None, block: int | None
    ) -> Any:
        """One of vLLM's requests. answer: tokens, if it ends at a length; else it ends with `stop`.
        block: tokens of the blocks that are found again; None: none are."""
        ends = {"max_tokens": answer} if stop is None else {
            "max_tokens": answer, "stop_token_ids": [stop]
        }  # fmt: skip
        return self._request(
            request_id=name, prompt_token_ids=prompt, pooling_params=None,
            sampling_params=self._sampling(ignore_eos=True, **ends),
            block_hasher=None if block is None else self._hasher(block),
        )  # fmt: skip

    def outputs(self, tokens: dict[str, list[int]]) -> Any:
        """What a model has made of a step: of each request its new tokens."""
        index = {name: at for at, name in enumerate(tokens)}
        return self._output(
            req_ids=list(tokens), req_id_to_index=index, sampled_token_ids=list(tokens.values())
        )

    def _configured(self, wanted: Wanted, options: dict[str, Any]) -> Any:
        """vLLM's configuration, of a model of one small layer: nothing of it is run."""
        described = {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
            "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
            "num_key_value_heads": 4, "vocab_size": 1000, "torch_dtype": "float16",
            "max_position_embeddings": wanted.longest, "bos_token_id": 1, "eos_token_id": 2,
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(described), encoding="utf-8")
            model = self._config.ModelConfig(
                model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="float16", seed=0,
                max_model_len=wanted.longest,
            )  # fmt: skip
            cache = self._config.CacheConfig(
                block_size=wanted.block, cache_dtype="auto",
                enable_prefix_caching=wanted.prefix_caching,
            )  # fmt: skip
            made = self._config.VllmConfig(
                scheduler_config=self._config.SchedulerConfig(**options), model_config=model,
                cache_config=cache, device_config=self._config.DeviceConfig(device="cpu"),
            )  # fmt: skip
        # what vLLM itself changes for a CPU, on which it believes to be
        cache.num_gpu_blocks, cache.block_size = wanted.blocks, wanted.block
        cache.enable_prefix_caching = wanted.prefix_caching
        return made

    def _attention(self, window: int | None, block: int) -> Any:
        shape = {"block_size": block, "num_kv_heads": 1, "head_size": 16, "dtype": self._dtype}
        if window is None:
            return self._kv.FullAttentionSpec(**shape)
        return self._kv.SlidingWindowSpec(**shape, sliding_window=window)
