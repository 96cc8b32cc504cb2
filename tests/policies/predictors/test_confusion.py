"""Is a classifier by its table as right, and as wrong, as the one that the table is of?"""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from policies.predictors.confusion import ConfusionTable, load_table, main, tabulate
from policies.predictors.confusion_predictor import ConfusionPredictor
from policies.predictors.prediction import BinnedPrediction, entropy
from policies.predictors.predictor import predict

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
LMSYS = SHARED / "lmsys_vicuna13b_predicted.csv.gz"
HAND = {
    "name": "hand", "summary": "two bins, two classes", "thresholds": [100],
    "edges": [0, 99, 400], "counts": [[9, 1], [2, 8]],
}  # fmt: skip


def test_a_binned_law_by_hand() -> None:
    law = BinnedPrediction([10.0, 100.0, 1000.0], [3, 1])
    assert law.below(10) == 0 and law.below(100) == 0.75 and law.below(1000) == 1
    assert law.below(math.sqrt(1000)) == pytest.approx(0.375)  # halfway in the logarithm
    assert law.below(5) == 0 and law.below(2000) == 1
    # a half is two thirds into the first bin
    assert law.length == pytest.approx(10 ** (1 + 2 / 3))
    a, b, c = (math.log(edge / law.length) for edge in (10, 100, 1000))
    square = 0.75 * (b**3 - a**3) / (3 * (b - a)) + 0.25 * (c**3 - b**3) / (3 * (c - b))
    assert law.spread == pytest.approx(math.sqrt(square))
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert entropy(law, [100, 1000]) == pytest.approx(expected)


def test_an_empty_bin_is_a_point() -> None:
    law = BinnedPrediction([50.0, 50.0, 50.0], [1, 1])
    assert law.length == pytest.approx(50) and law.spread == pytest.approx(0, abs=1e-12)
    assert law.below(49.9) == 0 and law.below(50) == 1


def test_shares_of_classes_and_their_laws_are_those_of_the_table() -> None:
    table = ConfusionTable.model_validate(HAND)
    assert table.accuracy() == 0.85
    short, long = np.full(20_000, 50), np.full(20_000, 200)
    draws = np.random.default_rng(3).random(40_000)
    found = table.predict(np.concatenate((short, long)), draws, "tokens")
    assert (found.classes[:20_000] == 1).mean() == pytest.approx(0.1, abs=0.01)
    assert (found.classes[20_000:] == 1).mean() == pytest.approx(0.8, abs=0.01)
    # of 11 that were given the first class 9 are below 100
    first = found[int(np.flatnonzero(found.classes == 0)[0])]
    assert first.below(99) == pytest.approx(9 / 11)
    assert found.length[0] in {law.length for law in (found[0], found[1], found[30_000])}


def test_the_classifier_is_as_good_on_other_lengths_at_equal_levels() -> None:
    table = load_table("bert-lmsys-4")
    lengths = np.random.default_rng(1).lognormal(7, 1.2, 40_000).astype(np.int64) + 1
    found = table.predict(lengths, np.random.default_rng(2).random(len(lengths)), "levels")
    shares = np.array(table.counts).sum(axis=1) / np.array(table.counts).sum()
    cuts = np.searchsorted(table.edges, [t - 1 for t in table.thresholds])
    levels = np.cumsum(shares)[cuts - 1]
    true = np.searchsorted(np.quantile(lengths, levels), lengths, side="left")
    assert (found.classes == true).mean() == pytest.approx(table.accuracy(), abs=0.01)


def test_what_a_classifier_says_is_taken_where_it_is_known() -> None:
    table = ConfusionTable.model_validate({**HAND, "says": [[1, 0], [0.5, 0.5]]})
    found = table.predict(np.array([50, 50]), np.array([0.0, 0.99]), "tokens")
    assert found.classes.tolist() == [0, 1]
    assert found[0].below(99) == 1 and found[1].below(99) == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edges": [0, 0, 400]}, "strictly increasing"),
        ({"counts": [[1, 1]]}, "a row a bin"),
        ({"counts": [[1, 1], [1]]}, "rows of one length"),
        ({"counts": [[1, 1], [0, 0]]}, "without requests"),
        ({"says": [[1, 0]]}, "a row a class"),
    ],
)
def test_a_table_that_does_not_fit_together_is_refused(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ConfusionTable.model_validate({**HAND, **change})


@pytest.mark.skipif(not LMSYS.exists(), reason="third-party data is not here")
@pytest.mark.parametrize(("thresholds", "accuracy"), [(2, 0.806), (4, 0.600)])
def test_the_shipped_tables_are_what_the_command_prints(
    thresholds: int, accuracy: float, capsys: pytest.CaptureFixture[str]
) -> None:
    table = load_table(f"bert-lmsys-{thresholds}")
    assert table.accuracy() == pytest.approx(accuracy, abs=0.0005)
    assert table.made_by is not None and table.source is not None
    arguments = table.made_by.removeprefix("python -m policies.predictors.confusion ").split()
    named = ["--name", table.name, "--summary", table.summary, "--source", table.source]
    assert main([str(LMSYS), *arguments[1:], *named]) == 0
    shipped = Path(__file__).parents[3] / f"yaml/predictors/{table.name}.yaml"
    assert shipped.read_text().partition("\n")[2] == capsys.readouterr().out


def test_a_table_counts_every_row_once() -> None:
    lengths = np.random.default_rng(4).integers(1, 400, 5_000)
    classes = (lengths >= 100).astype(np.int64)
    edges, counts = tabulate(lengths, classes, [100])
    assert np.sum(counts) == 5_000
    assert 99 in edges  # the classes are parted exactly, so that the table is diagonal
    assert all(min(row) == 0 for row in counts)


def test_mistakes_in_a_csv_have_their_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.csv.gz"
    options = ["--class-column", "c", "--thresholds", "3", "--name", "n", "--summary", "s"]
    with gzip.open(file, "wt") as out:
        out.write("output_tokens,c\n3,1\nx,1\n")
    assert main([str(file), *options]) == 2
    assert "a.csv.gz:3: expected whole numbers" in capsys.readouterr().err
    file.write_bytes(b"no gzip")
    assert main([str(file), *options]) == 2


def test_a_table_that_is_not_shipped_is_refused() -> None:
    with pytest.raises(DescriptionError, match="no shipped predictor"):
        predict(ConfusionPredictor(table="bert"), np.array([1]), 1)
