"""Writing requests as an access trace, chunk by chunk: text, gzip where the name ends in `.gz`, or
`.npz`, which keeps everything (`address`, `write`, `size`, `picosecond`; `begin`, at which the
memory's clock began, since refresh falls by it)."""

from __future__ import annotations

import gzip
import io
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.address import to_device
from hwmodel.kernel.kernel_names import PARTIAL_WRITE, READ
from hwmodel.measure.issued import Issued
from hwmodel.measure.peer_mapper import PeerMapper
from hwmodel.measure.simulator_traces import to_bursts, to_vectors
from hwmodel.measure.trace_format import Accesses, Format
from hwmodel.specs.device import Device

CHUNK = 1 << 16
"""Requests written at once; a request is a few bursts."""


class TraceWriter:
    """Adds requests to a trace and counts them. channel: only those of this one, at addresses local
    to it; None: all, at addresses of the device. at_once: all times are 0. mapper: addresses are
    those that it decodes to the places of ours."""

    def __init__(
        self, file: IO[bytes], form: Format, device: Device, channel: int | None, at_once: bool,
        mapper: PeerMapper | None = None,
    ) -> None:  # fmt: skip
        self._file, self._form, self._device = file, form, device
        self._channel, self._at_once, self._mapper = channel, at_once, mapper
        clock = device.memory.tick_clock
        self._cycle_ticks, self._tick_ps = clock.ticks_per_ck, clock.ns_of_ticks(1) * 1e3
        self._burst = device.memory.organisation.burst_bytes
        self.accesses = self.writes = self.partial_writes = self.bytes = 0
        """Bursts, those of them that are writes and that are writes of less than a burst; bytes."""

    def add(self, issued: Issued) -> None:
        """Write requests that follow those added before."""
        if self._channel is not None:
            kept = issued.channel == self._channel
            issued = Issued(*(column[kept] for column in issued))
        for at in range(0, len(issued.tick), CHUNK):
            self._add(Issued(*(column[at : at + CHUNK] for column in issued)))

    def _add(self, issued: Issued) -> None:
        address = issued.local
        if self._channel is None:
            address = to_device(self._device, issued.channel, issued.local)
        tick = np.zeros_like(issued.tick) if self._at_once else issued.tick
        picosecond = np.round(tick * self._tick_ps).astype(np.int64)
        write = (issued.kind != READ).astype(np.int64)
        accesses = Accesses(address, write, issued.size, tick // self._cycle_ticks, picosecond)
        self.bytes += int(accesses.size.sum())
        self.partial_writes += int((issued.kind == PARTIAL_WRITE).sum())
        bursts = to_bursts(accesses, self._burst)
        self.accesses += len(bursts.write)
        self.writes += int(bursts.write.sum())
        self._put(accesses if self._form.sized else bursts)

    def _put(self, accesses: Accesses) -> None:
        if self._form.vector:
            vectors = to_vectors(self._device, accesses.address, self._channel is not None)
            accesses = accesses._replace(address=vectors)
        elif self._mapper is not None:
            encoded = self._mapper.encode(self._device, accesses.address, self._channel is not None)
            accesses = accesses._replace(address=encoded)
        self._file.write("".join(self._form.lines(accesses)).encode())


class NpzWriter(TraceWriter):
    """Keeps columns in files without a name until all is known, as their length comes first."""

    columns: dict[str, IO[bytes]]

    def _put(self, accesses: Accesses) -> None:
        for name, file in self.columns.items():
            file.write(np.ascontiguousarray(getattr(accesses, name), "<i8").tobytes())

    def finish(self) -> None:
        """Put the columns together."""
        header = {"descr": "<i8", "fortran_order": False, "shape": (self.accesses,)}
        with zipfile.ZipFile(self._file, "w") as archive:
            for name, file in self.columns.items():
                file.seek(0)
                entry = zipfile.ZipInfo(f"{name}.npy")
                entry.compress_type = zipfile.ZIP_DEFLATED
                with archive.open(entry, "w", force_zip64=True) as target:
                    np.lib.format.write_array_header_1_0(target, header)
                    shutil.copyfileobj(file, target)
            with archive.open(zipfile.ZipInfo("begin.npy"), "w") as target:
                np.lib.format.write_array(target, np.array(0, "<i8"))


@contextmanager
def trace_writer(
    path: Path, form: Format, device: Device, channel: int | None, at_once: bool, remark: str,
    mapper: PeerMapper | None = None,
) -> Iterator[TraceWriter]:  # fmt: skip
    """A writer of `path`, which is there only if all went well. remark: the first line where the
    format has comments, which is `bankwise` alone. Raises DescriptionError if it cannot be
    written."""
    partial = path.with_name(path.name + ".partial")
    try:
        with ExitStack() as stack:
            raw: IO[bytes] = stack.enter_context(partial.open("wb"))
            if path.suffix == ".npz":
                writer = NpzWriter(raw, form, device, channel, at_once)
                names = ("address", "write", "size", "picosecond")
                writer.columns = {
                    name: stack.enter_context(tempfile.TemporaryFile()) for name in names
                }
                yield writer
                writer.finish()
            else:
                if path.suffix == ".gz":
                    packed = gzip.GzipFile("", "wb", 6, raw, mtime=0)
                    raw = stack.enter_context(io.BufferedWriter(packed, 1 << 20))
                if form.name == "bankwise":
                    raw.write(f"# {remark}\n".encode())
                yield TraceWriter(raw, form, device, channel, at_once, mapper)
        partial.replace(path)
    except OSError as error:
        raise DescriptionError(f"cannot be written: {error.strerror}", path) from None
    finally:
        partial.unlink(missing_ok=True)
