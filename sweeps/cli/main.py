"""The command line. Imports stay inside the commands: `bankwise --help` loads nothing heavy."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from sweeps.cli.options import AT_FAULT, INTERRUPTED, TERMINATED, failure, usage
from sweeps.cli.verbs import Verbs

app = typer.Typer(
    name="bankwise",
    cls=Verbs,
    help="Which KV-cache layout serves the most tokens on a memory device, and why.",
    epilog="Begin: bankwise fit; bankwise run quickstart; bankwise DEVICE.",
    subcommand_metavar="VERB ...",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from sweeps.run.version import version

        print(f"bankwise {version()}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


class _Pipe(io.FileIO):
    """Standard output that outlasts its reader, as `head`, and its disk: what was asked for is
    finished, and its files are written. `failed`: why it takes no more, but for its reader."""

    failed: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.failed = error
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def main(arguments: list[str] | None = None) -> Any:
    """Entry point of `bankwise`; always leaves by SystemExit."""
    pipe = None
    if (out := sys.__stdout__) is not None and sys.stdout is out and not out.isatty():
        pipe = _Pipe(out.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(pipe), out.encoding, out.errors)
    try:
        with _terminable() as stopped:
            _run(arguments, stopped)
    finally:
        sys.stdout.flush()
        if pipe is not None and pipe.failed is not None:
            print(f"standard output: {pipe.failed.strerror}", file=sys.stderr)
            sys.exit(AT_FAULT)


@contextmanager
def _terminable() -> Iterator[list[str]]:
    """SIGTERM is as Ctrl-C: what was finished is kept, and said. Gives the names of signals that
    came."""
    came: list[str] = []

    def terminate(number: int, frame: Any) -> None:
        came.append("SIGTERM")
        if callable(interrupt := signal.getsignal(signal.SIGINT)):
            interrupt(signal.SIGINT, frame)
        raise KeyboardInterrupt  # Ctrl-C is ignored, as by what a shell runs in the background

    ours = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, terminate) if ours else None
    try:
        yield came
    finally:
        if ours:
            signal.signal(signal.SIGTERM, before)


def _run(arguments: list[str] | None, stopped: list[str]) -> None:
    """The command; leaves by SystemExit. stopped: signals that came, but for Ctrl-C."""
    alone = not (sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=arguments, prog_name="bankwise", standalone_mode=False)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        if (code := getattr(error, "exit_code", None)) is not None:
            told = usage(error) if hasattr(error, "format_message") else str(error)
            if alone:
                from sweeps.cli.this_machine import suggestions

                told += suggestions()
            if code == INTERRUPTED:
                told = f"stopped by {stopped[0] if stopped else 'Ctrl-C'}; {told}"
            print(told, file=sys.stderr)
            sys.exit(TERMINATED if stopped else code)
        text = failure(error)
        if text is None:
            raise
        print(text, file=sys.stderr)
        sys.exit(AT_FAULT)
    _say_unkept_kernels()
    if code == INTERRUPTED:
        print(f"stopped by {stopped[0] if stopped else 'Ctrl-C'}", file=sys.stderr)
    sys.exit(TERMINATED if stopped else code or 0)


def _say_unkept_kernels() -> None:
    """One line where this command compiled kernels that the next one will have to compile again."""
    jit = sys.modules.get("hwmodel.kernel.jit")
    if jit is not None and not jit.KEPT:
        told = (
            "kernels are compiled anew each time: neither the cache of the user nor the directory"
        )
        print(f"{told} of temporary files can be written; set XDG_CACHE_HOME", file=sys.stderr)


if __name__ == "__main__":
    main()
