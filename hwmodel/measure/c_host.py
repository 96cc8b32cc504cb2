"""A memory for a C program: a header, the simulation as an object file, and the memory's image.

The object file is what Numba compiled, with its way into Python cut off, so that it wants no symbol
but those of libc. It is compiled for the processor of this machine.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from llvmlite import binding as llvm

from hwmodel.description.description import DescriptionError
from hwmodel.kernel import host
from hwmodel.kernel.cache import source_digest
from hwmodel.kernel.channel import runner
from hwmodel.kernel.channel_state import CHANNEL
from hwmodel.kernel.sources import port as kernel
from hwmodel.kernel.sources.calls import run_calls
from hwmodel.kernel.timing import CONSTANTS
from hwmodel.measure.channels import Channels

_COUNTS = ("hits", "misses", "conflicts", "bytes", "requests", "forwarded", "rmw_reads",
           "latencies", "latency_sum")  # fmt: skip
"""Counts of a channel that a C program may read; the last two of reads, then of writes."""
_ENTRY = """
declare i32 @"ADVANCE"(ptr, ptr, TYPES)
declare i32 @"RUN"(ptr, ptr, i64, i64, i64)
define internal i64 @bankwise_advance(NINE) {
  %result = alloca i64
  %error = alloca ptr
  call i32 @"ADVANCE"(ptr %result, ptr %error, NINE)
  %value = load i64, ptr %result
  ret i64 %value
}
define i64 @bankwise_run(THREE) {
  %result = alloca i64
  %error = alloca ptr
  %place = add i64 %0, PLACE
  %advance = inttoptr i64 %place to ptr
  store ptr @bankwise_advance, ptr %advance
  call i32 @"RUN"(ptr %result, ptr %error, THREE)
  %value = load i64, ptr %result
  ret i64 %value
}
"""
"""The functions as C calls them. That which runs a channel lies where the port is told."""


def write_c_host(channels: Channels, folder: str | Path) -> list[Path]:
    """Write `bankwise.h`, `bankwise.o` and `NAME.image` into a folder; the files, in that order.

    The image is the memory as `channels` describes it, idle at tick 0, with its `outstanding`.
    Raises OSError where a file cannot be written.
    """
    into = Path(folder)
    into.mkdir(parents=True, exist_ok=True)
    contents = {
        "bankwise.h": header().encode(),
        "bankwise.o": object_code(),
        f"{channels.device.name}.image": image(channels),
    }
    for name, content in contents.items():
        (into / name).write_bytes(content)
    return [into / name for name in contents]


def header() -> str:
    """`bankwise.h`: the template with the layout of this kernel."""
    meanings = host.SCALARS | kernel.SCALARS | host.ARRAYS | kernel.ARRAYS
    values = {
        "KERNEL": _kernel_number(),
        "FIELDS": "\n".join(f"    int64_t {name}; /* {meanings[name]} */" for name in meanings),
        "COUNTS": "\n".join(f"    BANKWISE_{name} = {_word(name)}," for name in _COUNTS),
        "CHANNEL_WORDS": CHANNEL.itemsize // 8,
        "CONSTANTS_WORDS": CONSTANTS.itemsize // 8,
        "ACCESS_FIELDS": kernel.ACCESS_FIELDS,
        "RUN_FIELDS": kernel.RUN_FIELDS,
        "BACKLOG_FIELDS": kernel.BACKLOG_FIELDS,
        "LOG_WORDS": kernel.LOG_LINES * kernel.LINE,
    }
    template = Path(__file__).with_name("bankwise.h").read_text(encoding="utf-8")
    return re.sub(r"@(\w+)@", lambda found: str(values[found[1]]), template)


def image(channels: Channels) -> bytes:
    """A memory in 64-bit words: kernel, port, number of words of the states that are not 0,
    constants, backlog, (place, value) of each of those words."""
    if channels.device.memory.alerts:
        raise DescriptionError("controller.row_counting: expected none for a C host")
    fresh = channels.idle_tables()
    port = fresh["port"].copy()
    port["keeps"] = 0
    words = fresh["states"].view(np.int64).ravel()
    places = np.flatnonzero(words)
    pairs = np.stack((places, words[places]), axis=1)
    head = np.array([_kernel_number()]), port, np.array([len(places)])
    rest = channels.constants, fresh["backlog"], pairs
    return b"".join(np.ascontiguousarray(part).tobytes() for part in (*head, *rest))


def object_code() -> bytes:
    """The simulation as a relocatable ELF (or the system's) object with one symbol."""
    functions = runner(CONSTANTS), run_calls()
    advance, run = (each.native_name.removeprefix("cfunc.") for each in functions)
    assert kernel.PORT.fields is not None
    nine, three = (", ".join(f"i64 %{i}" for i in range(many)) for many in (9, 3))
    values = {
        "ADVANCE": advance, "RUN": run, "PLACE": str(kernel.PORT.fields["advance"][1]),
        "NINE": nine, "THREE": three, "TYPES": ", ".join(["i64"] * 9),
    }  # fmt: skip
    text = re.sub("|".join(values), lambda found: values[found[0]], _ENTRY)
    module = llvm.parse_assembly(text)  # first: what nothing has asked for yet is not linked
    for each in functions:
        module.link_in(llvm.parse_assembly(str(each._library._get_module_for_linking())))
    for each in module.functions:
        if not each.is_declaration and each.name != "bankwise_run":
            each.linkage = "internal"
    for each in module.global_variables:
        if not each.is_declaration:
            each.linkage = "internal"
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(),
        opt=3, reloc="pic", codemodel="default",
    )  # fmt: skip
    manager = llvm.create_new_module_pass_manager()
    manager.add_global_dead_code_eliminate_pass()
    manager.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    code: bytes = machine.emit_object(module)
    return code


def _kernel_number() -> int:
    """Which kernel the layout is of: half the digest of its sources, a positive int64."""
    return int(source_digest()[:15], 16)


def _word(name: str) -> int:
    """Place of a field in a channel's state, in 64-bit words."""
    assert CHANNEL.fields is not None
    return int(CHANNEL.fields[name][1]) // 8
