"""Prints what a server exposes to Prometheus, now and again, after a line `# scraped_at SECONDS`.

    python3 examples/capture/scrape.py URL/metrics [SECONDS_BETWEEN] [TIMES] > metrics.txt

Needs Python's own library alone. A scrape that fails is left out.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from collections.abc import Iterator

EVERY_S = 2.0


def scrapes(url: str, every_s: float = EVERY_S, times: int | None = None) -> Iterator[str]:
    """Texts, each with its line of time; without end where `times` is None."""
    done = 0
    while times is None or done < times:
        now = time.time()
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
        except OSError:
            text = ""
        if text:
            yield f"# scraped_at {now:.3f}\n{text}"
        done += 1
        time.sleep(every_s)


def main(arguments: list[str]) -> None:
    """Print them as they come."""
    url, *rest = arguments
    every = float(rest[0]) if rest else EVERY_S
    for text in scrapes(url, every, int(rest[1]) if rest[1:] else None):
        print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
