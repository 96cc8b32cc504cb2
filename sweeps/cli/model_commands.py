"""The commands about models. Imports stay inside, as in `cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import Json, Set

app = typer.Typer(
    help="Model files: import makes one of a published config.json.",
    no_args_is_help=True,
    add_completion=False,
)


def models(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL...", help="Shipped models, or YAML files; all by default."),
    ] = None,
    json: Json = False,
    overrides: Set = None,
) -> None:
    """List models with layers, experts, parameters, bytes by format and KV of a token."""
    from sweeps.cli.model_table import facts, show
    from sweeps.report.screen import print_json

    found = facts(names or [], overrides or [])
    print_json(found) if json else show(found)


def kv_formats(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Shipped, or a YAML file.")],
    devices: Annotated[
        list[str] | None, typer.Option("--device", help="Where sequences may fit; several times.")
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Of each sequence.")] = 2048,
    json: Json = False,
    overrides: Set = None,
) -> None:
    """List KV formats with bits, bytes of a token, and the sequences that fit devices."""
    from sweeps.cli.kv_table import facts, show
    from sweeps.report.screen import print_json

    found = facts(model, devices or [], tokens, overrides or [])
    print_json(found) if json else show(found)


@app.callback()
def _model() -> None:
    """Model files: import makes one of a published config.json."""


@app.command("import")
def import_(
    config: Annotated[Path, typer.Argument(metavar="config.json", help="Of Hugging Face's hub.")],
    name: Annotated[
        str | None,
        typer.Option("--name", help="Of the model; its _name_or_path, or its folder, by default."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write it here; NAME.yaml by default."),
    ] = None,
    json: Json = False,
) -> None:
    """Turn a published config.json into a model file; list what was understood, and what not."""
    from hwmodel.description.description import DescriptionError
    from hwmodel.specs.huggingface import import_config
    from sweeps.cli.model_table import described, show_import
    from sweeps.report.screen import print_json

    found = import_config(config, name)
    file = out or Path(f"{found.spec.name}.yaml")
    if file.suffix not in (".yaml", ".yml"):
        raise DescriptionError("expected a name that ends in .yaml", file)
    if file.exists():
        raise DescriptionError("exists; give another --out", file)
    file.write_text(described(found), encoding="utf-8")
    if json:
        print_json({**found._replace(spec=None)._asdict(), "file": str(file)})  # type: ignore[arg-type]
        return
    show_import(found)
    print(f"wrote {file}")
