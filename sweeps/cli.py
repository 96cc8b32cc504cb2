"""The command line. Imports stay inside the commands: `bankwise --help` loads nothing heavy."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

DONE, FOUND, AT_FAULT, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="bankwise",
    help="Which KV-cache layout serves the most tokens on a memory device, and why.",
    epilog="Begin with: bankwise run quickstart",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Device = Annotated[str, typer.Argument(help="A shipped accelerator or memory, or a YAML file.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override what the YAML says; repeatable."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", help="Worker processes; a core each by default.")
]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="A Dask scheduler, whose workers are used."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _version(asked: bool) -> None:
    if asked:
        from sweeps.version import version

        print(f"bankwise {version()}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def devices(
    simulate: Annotated[
        bool, typer.Option("--simulate/--no-simulate", help="Simulate each memory's bounds.")
    ] = True,
    json: Json = False,
    overrides: Set = None,
) -> None:
    """What ships: peaks, capacities, bounds and what is reached."""
    from sweeps.catalogue import catalogue
    from sweeps.screen import print_json, show_devices
    from sweeps.tightness import add_simulated, show_simulated

    found = catalogue(overrides or [])
    if simulate:
        add_simulated(found, overrides or [])
    if json:
        print_json(found)
        return
    show_devices(found)
    if simulate:
        show_simulated(found)


@app.command()
def bandwidth(
    device: Device,
    pattern: Annotated[
        list[str] | None,
        typer.Option("--pattern", help="An access pattern; repeatable. All by default."),
    ] = None,
    racm: Annotated[
        bool,
        typer.Option(
            "--racm", help="Instead: random extents against sequential, by size and condition."
        ),
    ] = False,
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Instead: every way to refresh, on one channel."),
    ] = False,
    extent: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="With --racm: the extent to judge; 16KiB by default."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="With --racm: the share of sequential to reach; 0.7 by default."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="With --racm: write its page.")
    ] = None,
    json: Json = False,
    overrides: Set = None,
) -> None:
    """What a device reaches on access patterns, and its bound."""
    from hwmodel.description import DescriptionError

    asked = {"--extent": extent, "--threshold": threshold, "--html": html}
    kinds = {"--pattern": bool(pattern), "--racm": racm, "--refresh": refresh}
    given = [option for option, on in kinds.items() if on]
    if len(given) > 1:
        raise DescriptionError(f"does not go with {given[0]}", given[1])
    if racm:
        _racm(device, overrides or [], extent, threshold, html, json)
        return
    for option, value in asked.items():
        if value is not None:
            raise DescriptionError("needs --racm", option)
    if refresh:
        _refresh(device, overrides or [], json)
        return
    _patterns(device, overrides or [], pattern, json)


def _patterns(device: str, overrides: list[str], asked: list[str] | None, json: bool) -> None:
    from hwmodel.bandwidth import measure_patterns
    from hwmodel.device import load_device
    from sweeps.screen import print_json, show_bandwidth

    loaded = load_device(device, overrides)
    found = measure_patterns(loaded, asked or ())
    if json:
        print_json(found)
    else:
        show_bandwidth(loaded, found)


def _refresh(device: str, overrides: list[str], json: bool) -> None:
    from hwmodel.device import load_device
    from hwmodel.refresh_table import refresh_table
    from sweeps.refresh_table import record, show
    from sweeps.screen import print_json

    loaded = load_device(device, overrides)
    found = refresh_table(loaded.memory)
    if json:
        print_json(record(loaded, found))
    else:
        show(loaded, found)


def _racm(
    device: str,
    overrides: list[str],
    extent: str | None,
    threshold: float | None,
    html: Path | None,
    json: bool,
) -> None:
    from sweeps.racm import EXTENT, THRESHOLD, racm, record, show_racm
    from sweeps.racm_page import page
    from sweeps.screen import print_json

    judged = THRESHOLD if threshold is None else threshold
    found = racm(device, overrides, extent or EXTENT, judged)
    if json:
        print_json(record(found))
    else:
        show_racm(found)
    if html is not None:
        html.write_text(page(found), encoding="utf-8")
        if not json:
            print(f"wrote {html}")


@app.command()
def replay(
    device: Device,
    trace: Annotated[
        Path,
        typer.Argument(
            help="Lines `R 0x1f40` or `W 0x1f40` (also gzip), or .npz with address, write."
        ),
    ],
    channel: Annotated[
        bool,
        typer.Option(
            "--channel", help="Addresses are local to one channel; only that one is simulated."
        ),
    ] = False,
    commands: Annotated[
        Path | None,
        typer.Option("--commands", metavar="FILE", help="Write every DRAM command as CSV."),
    ] = None,
    json: Json = False,
    overrides: Set = None,
) -> None:
    """Play an address trace through a device."""
    from hwmodel.device import load_device
    from hwmodel.replay import replay as play
    from sweeps.screen import print_json, show_replay

    loaded = load_device(device, overrides or [])
    found = play(loaded, trace, single_channel=channel, commands=commands)
    if json:
        print_json(found)
    else:
        show_replay(loaded, found)


@app.command("kv-read")
def kv_read(
    device: Device,
    log: Annotated[
        Path, typer.Argument(help="Block tables of a server, JSON lines (docs/block-tables.md).")
    ],
    model: Annotated[
        str | None, typer.Option("--model", help="Instead of the one in the log's header.")
    ] = None,
    every: Annotated[int, typer.Option("--every", help="Simulate each N-th step only.")] = 1,
    whole: Annotated[
        str,
        typer.Option(
            "--whole", metavar="SIZE", help="Largest layer simulated whole; else a window of it."
        ),
    ] = "64MiB",
    json: Json = False,
    overrides: Set = None,
) -> None:
    """Read the KV of decode steps that a server logged.

    Each where its blocks are on the device, and as if each request lay in one run.
    """
    from hwmodel.device import load_device
    from sweeps.block_replay import replay_blocks
    from sweeps.block_table import print_steps

    loaded = load_device(device, overrides or [])
    print_steps(*replay_blocks(loaded, log, model, every, whole), json)


@app.command()
def audit(
    device: Device,
    commands: Annotated[
        Path, typer.Argument(metavar="COMMANDS.csv", help="As `replay --commands` writes it.")
    ],
    overrides: Set = None,
) -> None:
    """Check a DRAM command log against every timing rule.

    Exit code 0: no violation; 1: violations found; 2: the input cannot be read.
    """
    from hwmodel.device import load_device
    from sweeps.screen import show_audit

    if show_audit(load_device(device, overrides or []), commands):
        raise typer.Exit(FOUND)


@app.command()
def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files, folders or shipped names; everything shipped by default."),
    ] = None,
    assumed: Annotated[
        bool, typer.Option("--assumed", help="Also list the numbers without a public source.")
    ] = False,
    overrides: Set = None,
) -> None:
    """Check descriptions: each mistake with its file and line."""
    from sweeps.inspection import inspect

    mistakes = inspect(files or [], overrides or [], assumed)
    if mistakes:
        raise typer.Exit(AT_FAULT)


@app.command()
def schema(
    kind: Annotated[
        str | None, typer.Argument(help="memory, sweep, ...; all, told apart, by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write KIND.json there.")
    ] = None,
) -> None:
    """JSON Schema of the YAML, for editors."""
    from sweeps.schema import schema as described
    from sweeps.schema import write
    from sweeps.screen import print_json

    if out is None:
        print_json(described(kind))
    else:
        _wrote(write(kind, out), False)


@app.command()
def run(
    sweep: Annotated[
        str, typer.Argument(help="A shipped sweep, or a YAML file (also a run's config.yaml).")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Run directory; runs/NAME-N by default."),
    ] = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with a run that was stopped; only the rest is computed."
        ),
    ] = False,
    overrides: Set = None,
) -> None:
    """Run a sweep into a run directory.

    Exit code 0: all done; 1: a point failed; 2: the input is at fault; 130: interrupted, in which
    case --resume computes only the rest.
    """
    from sweeps.api import run as perform
    from sweeps.capacity import CapacityFailed
    from sweeps.sweep_run import Interrupted

    try:
        done = perform(sweep, set=overrides, out=out, jobs=jobs, cluster=cluster, resume=resume)
    except Interrupted as stop:
        print(f"interrupted: {stop}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except CapacityFailed as failure:
        print(failure, file=sys.stderr)
        raise typer.Exit(FOUND) from None
    if done.records:
        for sentence in done.sentences:
            print(sentence)
        print(f"{len(done.records)} results in {done.path}; the table: bankwise report {done.path}")
    if done.failures:
        many = len(done.failures)
        missing = "1 result is missing" if many == 1 else f"{many} results are missing"
        print(f"{missing}; --resume tries again", file=sys.stderr)
        raise typer.Exit(AT_FAULT if done.at_fault else FOUND)


Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page there.")]
Markdown = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write Markdown there.")
]


@app.command()
def study(
    study: Annotated[
        str, typer.Argument(help="A shipped study, or a YAML file (also a study's config.yaml).")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Run directory; runs/NAME-N by default."),
    ] = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    trials: Annotated[
        int | None, typer.Option("--trials", help="Instead of the trials that the study asks for.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with a study that was stopped, or with more --trials."
        ),
    ] = False,
    sampler: Annotated[
        str | None, typer.Option("--sampler", help="tpe, or random as the control.")
    ] = None,
    overrides: Set = None,
) -> None:
    """Search the space of a study, and say what the best gains.

    Exit code 0: done; 1: the machine failed; 2: the input is at fault; 130: interrupted. Trials
    that fail say why, and the study goes on.
    """
    from sweeps.api import study as perform
    from sweeps.capacity import CapacityFailed
    from sweeps.reports import report as write
    from sweeps.study_run import StudyFailed, StudyInterrupted

    try:
        done = perform(
            study, set=overrides, out=out, jobs=jobs, cluster=cluster, trials=trials,
            sampler=sampler, resume=resume,
        )  # fmt: skip
    except StudyInterrupted as stop:
        print(f"interrupted: {stop}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except (CapacityFailed, StudyFailed) as failure:
        print(failure, file=sys.stderr)
        raise typer.Exit(FOUND) from None
    for path in write([done.path]):
        print(f"wrote {path}")


predictor = typer.Typer(
    help="Predictors of the output length.", no_args_is_help=True, add_completion=False
)
app.add_typer(predictor, name="predictor")


@predictor.callback()
def _predictor() -> None:
    """Predictors of the output length."""


@predictor.command()
def train(
    file: Annotated[
        Path,
        typer.Argument(help="JSON lines: prompt (or instruction, input) and output_tokens; .gz."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="MODEL", help="Write the model here (.json).")
    ] = None,
    json: Json = False,
) -> None:
    """Train a length predictor on prompts, and judge it on those held out."""
    from hwmodel.description import DescriptionError
    from policies.training import train as learn
    from policies.training import write
    from sweeps.screen import print_json
    from sweeps.training_table import show_training

    if out is not None and out.suffix != ".json":
        raise DescriptionError("expected a name that ends in .json", out)
    found = learn(file)
    if json:
        print_json(found["report"])
    else:
        show_training(found["report"])
    if out is not None:
        write(found, out)
        if not json:
            print(f"wrote {out}; in an experiment: predictor: {{kind: trained, model: {out}}}")


@app.command()
def report(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...")],
    html: Html = None,
    markdown: Markdown = None,
    json: Json = False,
) -> None:
    """Print what runs found, and write their pages.

    Each run directory gets a report.html and a report.md, unless --html or --markdown names one
    file for all, which then has what differs between the first run and the others too. With --json
    only what is named is written.
    """
    from sweeps.reports import report as write

    _wrote(write(run_dirs, html, markdown, json), json)


@app.command()
def compare(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A")],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B")],
    html: Html = None,
    markdown: Markdown = None,
    json: Json = False,
) -> None:
    """What differs between two runs, and how sure that is."""
    from sweeps.reports import compare as write

    _wrote(write(run_a, run_b, html, markdown, json), json)


def _wrote(files: list[Path], json: bool) -> None:
    for path in files:
        print(f"wrote {path}", file=sys.stderr if json else sys.stdout)


def _failure(error: Exception) -> str | None:
    """The line for an error that is the input's or the machine's, None where it is ours."""
    description = sys.modules.get("hwmodel.description")
    if description is not None and isinstance(error, description.DescriptionError):
        from sweeps.place import shortened

        return shortened(str(error))
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return None


def main(arguments: list[str] | None = None) -> Any:
    """Entry point of `bankwise`; always leaves by SystemExit."""
    try:
        app(args=arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(DONE)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Exception as error:
        text = _failure(error)
        if text is None:
            raise
        print(text, file=sys.stderr)
        sys.exit(AT_FAULT)


if __name__ == "__main__":
    main()
