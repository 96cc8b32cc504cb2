"""The validation page: figures of the models beside those of papers, peers and machines.

    python -m sweeps.reports.validation > docs/validation.md

Every number on the page is computed by that run, or is a published one with its source.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.memory.measured import compare, load_measurements

MEASURED = ("llama-2-7b-a100-80gb",)


def page() -> Iterator[str]:
    """The page's lines, in Markdown."""
    yield "# Validation"
    yield ""
    yield "Rebuilt by `make validation`; every number is of that run, or has its source beside it."
    for name in MEASURED:
        yield from _measured(name)


def _measured(name: str) -> Iterator[str]:
    spec = load_measurements(name)
    yield ""
    yield f"## {spec.model} on {spec.device}: step times"
    yield ""
    yield (
        "`of peak`: the share of the memory's bandwidth (decode) or of the FLOPs (prefill) that the"
        " measured time comes to, by the bytes and FLOPs that the model must move and compute."
    )
    yield ""
    yield "| | source | measured ms | model ms | model / measured | of peak |"
    yield "|---|---|---|---|---|---|"
    found = compare(spec)
    for item in found:
        yield (
            f"| {item.what} | {item.source} | {item.measured_ms:.1f} | {item.model_ms:.1f} |"
            f" {item.ratio:.2f} | {item.share:.0%} |"
        )
    yield ""
    yield "Sources: " + "; ".join(f"{key}: {text}" for key, text in spec.sources.items()) + "."
    decode = [item.ratio for item in found if item.what.startswith("decode")]
    prefill = [item.ratio for item in found if item.what.startswith("prefill")]
    yield ""
    yield (
        f"The model's decode takes {min(decode):.2f} to {max(decode):.2f} of the measured time and"
        f" its prefill {min(prefill):.2f} to {max(prefill):.2f}."
    )


def main() -> None:
    """Print the page."""
    for line in page():
        print(line)


if __name__ == "__main__":
    main()
