"""The command line. Imports stay inside the commands: `bankwise --help` loads nothing heavy."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any

import typer

from sweeps.cli.options import AT_FAULT, INTERRUPTED, failure, usage
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
        _run(arguments)
    finally:
        sys.stdout.flush()
        if pipe is not None and pipe.failed is not None:
            print(f"standard output: {pipe.failed.strerror}", file=sys.stderr)
            sys.exit(AT_FAULT)


def _run(arguments: list[str] | None) -> None:
    """The command; leaves by SystemExit."""
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
            print("stopped by Ctrl-C; " * (code == INTERRUPTED) + told, file=sys.stderr)
            sys.exit(code)
        text = failure(error)
        if text is None:
            raise
        print(text, file=sys.stderr)
        sys.exit(AT_FAULT)
    _say_unkept_kernels()
    if code == INTERRUPTED:
        print("stopped by Ctrl-C", file=sys.stderr)
    sys.exit(code or 0)


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
