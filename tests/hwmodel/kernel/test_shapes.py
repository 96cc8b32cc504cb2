"""The kernel of a shape issues the commands of the kernel for all memories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hwmodel.kernel import jit
from hwmodel.kernel.channel import runner
from hwmodel.kernel.memory import simulate_system
from hwmodel.kernel.shapes import KINDS, ONE_KERNEL, SHAPES, shape_of, shaped
from hwmodel.kernel.timing import CONSTANTS, lower
from hwmodel.measure.channels import Channels
from hwmodel.specs.device import load_device
from tests.hwmodel.kernel.test_kernel_equals_oracle import PATTERNS, stream
from tests.hwmodel.kernel.test_memory_system import extents
from tests.hwmodel.memories import SHIPPED, spec
from tests.hwmodel.one_channel import simulate_channel

FOUND = {name: shape_of(lower(spec(name))) for name in SHIPPED}


def on_both(monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any], *given: Any) -> list[Any]:
    """What `run` gives with the kernel for all memories, and with that of the shape."""
    monkeypatch.setenv(ONE_KERNEL, "1")
    one = run(*given)
    monkeypatch.delenv(ONE_KERNEL)
    return [one, run(*given)]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if shape.endswith("controller") else ())
        for name, shape in FOUND.items()
        if shape
    ],
)
def test_the_kernel_of_a_shape_issues_the_same_commands(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = spec(name)
    for pattern in PATTERNS:
        given = stream(memory, pattern, 3000)
        one, other = on_both(monkeypatch, simulate_channel, memory, *given)
        for mine, theirs in zip(one.commands, other.commands, strict=True):
            assert np.array_equal(mine, theirs)
        assert one.__dict__ | {"commands": 0} == other.__dict__ | {"commands": 0}


def test_each_kind_has_a_symbol_of_its_own_whichever_process_compiled_it() -> None:
    plain = [runner(kind).native_name.partition("B2v")[0] for kind in KINDS.values()]
    assert len(set(plain)) == len(KINDS), plain


def test_the_parts_of_a_kernel_are_known_in_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of two kernels may share a name: the number in it is that of a process. The first one
    loaded would serve both."""
    monkeypatch.setattr(jit, "KEPT", False)
    kernel = runner.__wrapped__(KINDS["lpddr5"])
    functions = kernel._library._final_module.functions
    known = [
        each.name
        for each in functions
        if not each.is_declaration and each.linkage.name != "internal"
    ]
    assert known
    assert all("bankwise_advance" in name for name in known)


@pytest.mark.long
@pytest.mark.parametrize("name", ["mlu370-x4", "a100-80gb"])
def test_a_device_and_a_host_find_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = load_device(name)
    moved = extents(device, 4096, 40, write=0.3)
    one, other = on_both(monkeypatch, simulate_system, device, moved)
    assert one == other

    def calls() -> list[Any]:
        host = Channels(device)
        address = np.arange(5000, dtype=np.int64) * 4096 % device.capacity_bytes
        host.submit(np.arange(5000) * 3, address, np.full(5000, 512), np.arange(5000) % 3 == 0)
        done = host.drain()
        return [done.tick.tolist(), done.tag.tolist(), host.statistics()["commands"]]

    one, other = on_both(monkeypatch, calls)
    assert one == other


def test_memories_have_a_shape_by_their_scalars(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(FOUND.values()) == {None, *SHAPES}
    monkeypatch.delenv(ONE_KERNEL)
    constants = lower(spec("lpddr5-6400-x16"))
    assert FOUND["lpddr5-6400-x16"] == "lpddr5" and shaped(constants).dtype != CONSTANTS
    assert np.shares_memory(shaped(constants), constants)
    other = lower(spec("lpddr5-6400-x16", controller__page_policy="closed"))
    assert shape_of(other) is None and shaped(other) is other
    for value, kept in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv(ONE_KERNEL, value)
        assert (shaped(constants) is constants) == kept
