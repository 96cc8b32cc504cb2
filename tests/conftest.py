"""Hypothesis profiles: `ci` (default) is the same on every run; `long` searches further."""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.shares import mark_long

# every simulation is done once a session, whichever worker asks for it, and none is left behind
# but by a session that is killed (SIGTERM, SIGHUP)
if "BANKWISE_PROBE_CACHE" not in os.environ:
    os.environ["BANKWISE_PROBE_CACHE"] = tempfile.mkdtemp(prefix="bankwise-probes-")
    atexit.register(shutil.rmtree, os.environ["BANKWISE_PROBE_CACHE"], ignore_errors=True)

# test_shapes.py compares the kernels of shapes with this one
os.environ.setdefault("BANKWISE_ONE_KERNEL", "1")

# Ctrl-C is tested: a shell's background job ignores it, and so would what is started from here
signal.signal(signal.SIGINT, signal.default_int_handler)

# no test cuts the power, and a disk takes four milliseconds to keep what is written
os.fsync = lambda descriptor: None

DEAR = (
    "test_study.py",
    "test_run.py",
    "test_full_memory.py",
    "test_dask_cluster.py",
    "test_wheel.py",
)
"""Files that take longest: begun first, so that no worker ends with one while others idle."""
NUMBERS = itertools.count()


# eight thousand tests stay in memory to the end: the collector of garbage need not look at them
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_long(items)
    items.sort(key=lambda item: item.path.name not in DEAR)


settings.register_profile(
    "ci", deadline=None, derandomize=True, max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile(
    "long", parent=settings.get_profile("ci"), derandomize=False, max_examples=1000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pytest's, without a link to the newest, which takes as long as a short test."""
    return tmp_path_factory.mktemp(f"test-{next(NUMBERS)}", numbered=False)


@pytest.fixture
def unplugged() -> Iterator[None]:
    """What a plug-in registered goes again."""
    from policies.serving.plugins import KINDS, LOADED  # heavy

    before = {word: dict(kind.known) for word, kind in KINDS.items()}
    yield
    for word, kind in KINDS.items():
        kind.known.clear()
        kind.known.update(before[word])
    LOADED.clear()
