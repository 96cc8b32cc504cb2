"""`bankwise site`. Imports stay inside, as in `cli`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import FOUND, RUNS


def site(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder, new or of a site.")],
    run_dirs: Annotated[list[Path] | None, typer.Argument(metavar="RUN...", help=RUNS)] = None,
) -> None:
    """Build docs, results, schemas and runs into one static site with search.

    Needs a clone. Exit code 1: a link leads nowhere.
    """
    from sweeps.cli.reporting import readable
    from sweeps.cli.schema import EVERY, texts
    from sweeps.report.site import clone, write_site

    source = clone()
    done = write_site(out, source, texts(EVERY), readable(run_dirs or []))
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    for each in done.broken:
        print(f"broken link: {each}", file=sys.stderr)
    print(f"wrote {out / 'index.html'}: {done.pages} pages, {size / 1e6:.1f} MB;"
          f" {done.links:,} links checked, {len(done.broken)} broken")  # fmt: skip
    if done.broken:
        raise typer.Exit(FOUND)
