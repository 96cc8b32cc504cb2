"""Do the GPU's kernels touch what they count, as far as numba's simulator can tell?"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from bankwise_measure.gpu_benchmark import LARGEST_BUFFER, gpu_buffer, machine_of, read_gpu
from bankwise_measure.gpu_kernels import cuda

from hwmodel.description.description import DescriptionError

SCRIPT = Path(__file__).with_name("gpu_in_simulator.py")
PACKAGE = Path(__file__).resolve().parents[1]
ROOT = Path(__file__).resolve().parents[4]
CARD = SimpleNamespace(name=b"A GPU", MULTIPROCESSOR_COUNT=80, L2_CACHE_SIZE=6 << 20)
CLOCKS = "driver 1, cores 1710 MHz, memory 6251 MHz"


def test_kernels_and_passes_in_the_simulator() -> None:
    path = os.pathsep.join([str(PACKAGE), str(ROOT)])
    settings = {**os.environ, "PYTHONPATH": path, "NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run([sys.executable, SCRIPT], env=settings, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_gpu_is_told_with_its_clocks_and_driver() -> None:
    machine = machine_of(CARD, (20 << 30, 24 << 30), CLOCKS)
    assert machine.told == f"A GPU, 80 multiprocessors, last-level cache 6 MiB, {CLOCKS}"
    assert (machine.available_bytes, machine.memory_bytes) == (20 << 30, 24 << 30)


def test_the_buffer_is_half_of_what_is_free_and_far_beyond_the_cache() -> None:
    machine = machine_of(CARD, (20 << 30, 24 << 30), "")
    assert gpu_buffer(machine) == 10 << 30
    assert gpu_buffer(replace(machine, available_bytes=80 << 30)) == LARGEST_BUFFER
    with pytest.raises(DescriptionError, match="GiB to measure"):
        gpu_buffer(replace(machine, available_bytes=30 << 20))


@pytest.mark.skipif(cuda.is_available(), reason="a GPU is there")
def test_without_a_gpu_the_extra_is_named() -> None:
    with pytest.raises(DescriptionError, match=r"bankwise-measure\[cuda\]"):
        read_gpu()
