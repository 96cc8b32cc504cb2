"""Length classifiers by their confusion tables: which class each true length was given.

A request of true length L gets a class drawn from the row of L's bin; its prediction is the law of
true lengths among those of that class (Bayes' rule over the table's own lengths), or what the
classifier says of the class where the table has that (`says`).

A table is of the lengths it was measured on. By default (`scale: levels`) bins stand for quantile
levels: the classifier is taken to do on a workload what it did there, at equal levels of the length
(assumed; as if it had been trained on such lengths). `scale: tokens` keeps the bins as they are.

`python -m policies.predictors.confusion FILE --class-column pred_class5 --thresholds 42 141 294
503` prints a table of a CSV with a column `output_tokens` as YAML.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

import yaml
from hwmodel.description.description import DescriptionError, Strict, checked
from hwmodel.description.files import by_contents
from hwmodel.description.library import find
from hwmodel.description.packed import open_text
from hwmodel.description.yaml_reader import load
from policies.predictors.prediction import BinnedPrediction, ClassPredictions
from policies.requests.requests import FloatArray, IntArray

BINS = 20
"""Bins of equal shares of the true lengths in a table, beside those that thresholds part."""

Scale = Literal["levels", "tokens"]
Tokens = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]


class ConfusionTable(Strict):
    """Counts of true length by predicted class."""

    kind: Literal["predictor"] = "predictor"
    name: str
    summary: str
    source: str | None = None
    """Public repository, commit and licence of the data."""
    made_by: str | None = None
    """The command that prints this table from the data."""
    thresholds: list[Tokens] = []
    """Class k has the lengths below the k-th, from the one before it on. Empty: classes are not
    those of lengths."""
    edges: Annotated[list[Count], Field(min_length=2)]
    """Bins of true lengths in tokens: (edges[i], edges[i + 1]]."""
    counts: Annotated[list[list[Count]], Field(min_length=1)]
    """A row a bin: how many of its requests were given each class."""
    says: list[list[Annotated[float, Field(ge=0)]]] | None = None
    """A row a class: the shares of the bins that the classifier states. None: it states none, and
    those of the counts are taken."""

    @checked
    def _consistent(self) -> None:
        if any(b <= a for a, b in pairwise(self.edges)):
            raise ValueError("edges: expected strictly increasing numbers")
        if len(self.counts) != len(self.edges) - 1:
            got = f"{len(self.counts)} rows for {len(self.edges) - 1} bins"
            raise ValueError(f"counts: expected a row a bin; got {got}")
        if len({len(row) for row in self.counts}) > 1:
            raise ValueError("counts: expected rows of one length, a column a class")
        if self.thresholds and len(self.counts[0]) != len(self.thresholds) + 1:
            raise ValueError("counts: expected a column more than thresholds")
        if min(map(sum, self.counts)) == 0:
            raise ValueError("counts: a bin without requests says nothing")
        if self.says is not None:
            wrong = [row for row in self.says if len(row) != len(self.counts) or not sum(row)]
            if wrong or len(self.says) != len(self.counts[0]):
                raise ValueError("says: expected a row a class with a share for each bin")

    def predict(
        self, output_tokens: IntArray, uniform: FloatArray, scale: Scale
    ) -> ClassPredictions:
        """Predictions of these lengths, int64 (n,); uniform: float64 (n,) from [0, 1), a draw
        each."""
        counts = np.array(self.counts, np.float64)
        edges = np.maximum(np.array(self.edges, np.float64), 0.5)
        if scale == "levels":
            edges = self._scaled(output_tokens, counts)
        bins = np.searchsorted(edges[1:], output_tokens, side="left")
        bins = np.minimum(bins, len(counts) - 1)
        below = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
        classes = (uniform[:, None] >= below[bins]).sum(axis=1).astype(np.int64)
        shares = counts.T if self.says is None else np.array(self.says, np.float64)
        given = shares.sum(axis=1) > 0  # a class that nothing was given is never drawn
        shares[~given] = 1
        laws = [BinnedPrediction(edges.tolist(), row.tolist()) for row in shares]
        return ClassPredictions(laws, np.minimum(classes, len(laws) - 1))

    def _scaled(self, output_tokens: IntArray, counts: FloatArray) -> FloatArray:
        """The bins' edges at the same quantile levels of other lengths."""
        levels = np.concatenate(([0.0], np.cumsum(counts.sum(axis=1)) / counts.sum()))
        edges = np.quantile(output_tokens, np.minimum(levels, 1.0), method="inverted_cdf")
        edges = edges.astype(np.float64)
        edges[0] = max(edges[0] - 1, 0.5)
        return edges

    def accuracy(self) -> float:
        """Share of requests whose class is that of their length; each bin is in one class. Needs
        thresholds."""
        counts = np.array(self.counts)
        true = np.searchsorted(self.thresholds, np.array(self.edges[1:]), side="right")
        return float(counts[np.arange(len(counts)), true].sum() / counts.sum())


@by_contents
def load_table(name_or_path: str) -> ConfusionTable:
    """A shipped table by name, or one's own by path. Raises DescriptionError."""
    return load(find("predictors", name_or_path)).build(ConfusionTable)


def tabulate(
    output_tokens: IntArray, classes: IntArray, thresholds: Sequence[int], bins: int = BINS
) -> tuple[list[int], list[list[int]]]:
    """(edges, counts) of a table: bins of about equal shares, cut at the thresholds as well."""
    cuts = np.quantile(output_tokens, np.arange(1, bins + 1) / bins, method="inverted_cdf")
    lowest, longest = int(output_tokens.min()), int(output_tokens.max())
    inner = {int(cut) for cut in cuts} | {threshold - 1 for threshold in thresholds}
    edges = [lowest - 1, *sorted(edge for edge in inner if lowest <= edge < longest), longest]
    place = np.searchsorted(edges[1:], output_tokens, side="left")
    counts = np.zeros((len(edges) - 1, int(classes.max()) + 1), np.int64)
    np.add.at(counts, (place, classes), 1)
    return edges, counts.tolist()


def read_classes(path: Path, column: str) -> tuple[IntArray, IntArray]:
    """(output_tokens, classes), int64 (n,) each, of a CSV. Raises DescriptionError."""
    try:
        with open_text(path, newline="") as file:
            rows = csv.DictReader(file)
            missing = {"output_tokens", column} - set(rows.fieldnames or ())
            if missing:
                raise DescriptionError(f"no column {min(missing)!r}", path, 1)
            pairs = []
            for row in rows:
                try:
                    pairs.append((int(row["output_tokens"]), int(row[column])))
                except (TypeError, ValueError):
                    raise DescriptionError("expected whole numbers", path, rows.line_num) from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DescriptionError(f"cannot be read: {error}", path) from None
    if not pairs or min(map(min, pairs)) < 0:
        raise DescriptionError("expected rows with numbers of 0 or more", path)
    if max(map(max, pairs)) >= 2**63:
        raise DescriptionError("expected numbers below 2^63", path)
    table = np.array(pairs, np.int64)
    return table[:, 0], table[:, 1]


def to_yaml(table: ConfusionTable) -> str:
    """The table as YAML, a line for each bin's counts."""
    head = table.model_dump(include={"kind", "name", "summary", "source", "made_by"})
    given = {key: value for key, value in head.items() if value is not None}
    text = yaml.safe_dump(given, width=110, sort_keys=False, allow_unicode=True)
    text += f"thresholds: {table.thresholds}\nedges: {table.edges}\ncounts:\n"
    return text + "".join(f"- {row}\n" for row in table.counts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of a CSV. Returns 2 and says why when the input is at fault."""
    parser = argparse.ArgumentParser(prog="python -m policies.predictors.confusion")
    parser.add_argument("file", type=Path, help="CSV, plain or gzip, with output_tokens")
    parser.add_argument("--class-column", required=True)
    parser.add_argument("--thresholds", type=int, nargs="+", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--summary", required=True)
    parser.add_argument("--source", help="public repository, commit and licence")
    given = parser.parse_args(arguments)
    command = (
        f"python -m policies.predictors.confusion {given.file.name} "
        f"--class-column {given.class_column} "
        f"--thresholds {' '.join(map(str, given.thresholds))}"
    )
    try:
        output_tokens, classes = read_classes(given.file, given.class_column)
        edges, counts = tabulate(output_tokens, classes, given.thresholds)
        table = ConfusionTable(
            name=given.name, summary=given.summary, source=given.source, made_by=command,
            thresholds=given.thresholds, edges=edges, counts=counts,
        )  # fmt: skip
    except DescriptionError as error:
        print(error, file=sys.stderr)
        return 2
    sys.stdout.write(to_yaml(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
