"""Docs, results, schemas and runs as one static site with search: `make docs`.

    python -m tools.site OUT [RUN...]    # OUT: a folder, new or of a site

Exit code 1: a link leads nowhere; 2: the input is at fault.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hwmodel.description.description import DescriptionError
from sweeps.cli.options import AT_FAULT, DONE, FOUND
from sweeps.cli.reporting import readable
from sweeps.cli.schema import EVERY, texts
from sweeps.report.site import write_site

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    """Write the site, and say which links lead nowhere; returns the exit code."""
    if not arguments or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return AT_FAULT
    out, runs = Path(arguments[0]), [Path(each) for each in arguments[1:]]
    try:
        done = write_site(out, ROOT, texts(EVERY), readable(runs) if runs else [])
    except DescriptionError as error:
        print(error, file=sys.stderr)
        return AT_FAULT
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    for each in done.broken:
        print(f"broken link: {each}", file=sys.stderr)
    print(f"wrote {out / 'index.html'}: {done.pages} pages, {size / 1e6:.1f} MB;"
          f" {done.links:,} links checked, {len(done.broken)} broken")  # fmt: skip
    return FOUND if done.broken else DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
