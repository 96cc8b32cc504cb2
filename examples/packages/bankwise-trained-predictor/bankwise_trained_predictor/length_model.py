"""A light model from the text of a prompt to a law of the output length.

Words and pairs of words, hashed, go into class heads: a multinomial logistic regression over bins
of equal shares, with its regularisation and a temperature chosen by cross-validation. Quantile
heads, linear in what the class heads say, give quantiles of ln(length). The point prediction is the
quantile head of 0.5; the uncertainty is the entropy of the class heads. The weights are numbers in
a JSON file; scikit-learn trains and hashes.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.requests.requests import FloatArray, IntArray

BINS = 20
"""Classes of the class heads: 2, 4, 5 and 10 equal ones are made of them."""
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Levels of the quantile heads."""
FEATURES = 1 << 12
"""Hashed words."""
STRENGTHS = (0.3, 1.0, 3.0, 10.0)
"""Inverse regularisations that are tried."""
TEMPERATURES = tuple(np.geomspace(0.5, 3, 26).tolist())
"""Divisors of the class heads' scores that are tried."""
FOLDS = 5
LEAST, MOST = 400, 20_000
"""Answers that a model is trained on, at least and at most; more are thinned evenly."""
MOST_QUANTILES = 2_000
"""The same of quantile heads, which are linear programs."""

_WORD = r"\w+|[^\w\s]"
_CHARACTERS = 5.0
"""ln(characters) is divided by this, so that it weighs about as much as the words."""


class LengthLaw(NamedTuple):
    """Predictions of n prompts. shares: float64 (n, BINS), of the class heads; quantiles: float64
    (n, len(LEVELS)), tokens, ascending; length: float64 (n,), tokens."""

    shares: FloatArray
    quantiles: FloatArray

    @property
    def length(self) -> FloatArray:
        return self.quantiles[:, LEVELS.index(0.5)]

    def classes(self, count: int) -> FloatArray:
        """Shares of `count` equal classes (a divisor of BINS), float64 (n, count)."""
        return self.shares.reshape(len(self.shares), count, BINS // count).sum(axis=2)

    def uncertainty(self, count: int = 4) -> FloatArray:
        """Entropy over `count` classes, over ln(count): 0 to 1, float64 (n,)."""
        shares = np.clip(self.classes(count), 1e-300, None)
        return -(shares * np.log(shares)).sum(axis=1) / np.log(count)


class LengthModel(NamedTuple):
    """edges: int64 (BINS - 1,), the longest output of each bin but the last; weights: float64
    (features, BINS); offset: float64 (BINS,); heads: float64 (len(LEVELS), 2 + BINS)."""

    edges: IntArray
    longest: int
    weights: FloatArray
    offset: FloatArray
    heads: FloatArray
    strength: float
    temperature: float

    def predict(self, texts: list[str]) -> LengthLaw:
        """The laws of prompts."""
        matrix = features(texts)
        shares = _softmax((matrix @ self.weights + self.offset) / self.temperature)
        return LengthLaw(shares, _quantiles(self.heads, shares))

    def bin_of(self, output_tokens: IntArray) -> IntArray:
        """The bin of each length, int64 (n,)."""
        return np.searchsorted(self.edges, output_tokens, side="left").astype(np.int64)

    def dump(self) -> dict[str, Any]:
        """The model as plain data; numbers have six significant digits."""
        plain: dict[str, Any] = self._asdict()
        for name in ("weights", "offset", "heads"):
            plain[name] = _rounded(plain[name])
        return {**plain, "edges": self.edges.tolist()}

    def rounded(self) -> LengthModel:
        """The model as it comes out of its file."""
        return restore(json.loads(json.dumps(self.dump())))


def restore(data: dict[str, Any]) -> LengthModel:
    """A model from plain data."""
    return LengthModel(
        np.array(data["edges"], np.int64), int(data["longest"]), np.array(data["weights"]),
        np.array(data["offset"]), np.array(data["heads"]), float(data["strength"]),
        float(data["temperature"]),
    )  # fmt: skip


def fit(texts: list[str], prompt: IntArray, output_tokens: IntArray) -> LengthModel:
    """Train on these; answers to one `prompt`, int64 (n,), stay in one fold. Raises
    DescriptionError where they are too few."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # threads that wait for each other cost more than they gain here
        return _fit(texts, prompt, output_tokens)


def _fit(texts: list[str], prompt: IntArray, output_tokens: IntArray) -> LengthModel:
    if len(texts) < LEAST:
        raise DescriptionError(f"{len(texts)} answers to train on; expected {LEAST} or more")
    rows = _thinned(len(texts), MOST)
    texts, output_tokens = [texts[row] for row in rows], output_tokens[rows]
    fold = prompt[rows] % FOLDS
    cuts = np.quantile(output_tokens, np.arange(1, BINS) / BINS, method="inverted_cdf")
    edges = cuts.astype(np.int64)
    bins = np.searchsorted(edges, output_tokens, side="left")
    matrix = features(texts)
    scores = {strength: _out_of_fold(matrix, bins, fold, strength) for strength in STRENGTHS}
    losses = {
        (strength, temperature): _loss(scores[strength] / temperature, bins)
        for strength in STRENGTHS
        for temperature in TEMPERATURES
    }
    strength, temperature = min(losses, key=lambda pair: losses[pair])
    weights, offset = _classify(matrix, bins, strength)
    shares = _softmax(scores[strength] / temperature)
    rows = _thinned(len(texts), MOST_QUANTILES)
    heads = _quantile_heads(shares[rows], np.log(output_tokens[rows]))
    longest = int(output_tokens.max())
    return LengthModel(edges, longest, weights, offset, heads, strength, temperature).rounded()


def _thinned(count: int, most: int) -> IntArray:
    """Rows of `count`, all or `most` of them at equal distances."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def features(texts: list[str]) -> Any:
    """Sparse features of texts, (n, FEATURES + 1): hashed words and pairs of words, and
    ln(1 + characters)."""
    from scipy.sparse import csr_matrix, hstack
    from sklearn.feature_extraction.text import HashingVectorizer

    hashed = HashingVectorizer(
        n_features=FEATURES, ngram_range=(1, 2), alternate_sign=False, token_pattern=_WORD
    ).transform(texts)
    characters = np.log1p([[len(re.sub(r"\s+", " ", text))] for text in texts]) / _CHARACTERS
    return hstack([hashed, csr_matrix(characters)]).tocsr()


def _classify(matrix: Any, bins: IntArray, strength: float) -> tuple[FloatArray, FloatArray]:
    """(weights, offset) of the class heads; bins that are not there never come out."""
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=strength, max_iter=1000, tol=1e-3).fit(matrix, bins)
    weights, offset = np.zeros((matrix.shape[1], BINS)), np.full(BINS, -1e3)
    weights[:, fitted.classes_], offset[fitted.classes_] = fitted.coef_.T, fitted.intercept_
    return weights, offset


def _out_of_fold(matrix: Any, bins: IntArray, fold: IntArray, strength: float) -> FloatArray:
    """Scores (n, BINS) of each answer by class heads that have not seen its prompt."""
    scores = np.zeros((len(bins), BINS))
    for left_out in range(FOLDS):
        rows = fold == left_out
        weights, offset = _classify(matrix[~rows], bins[~rows], strength)
        scores[rows] = matrix[rows] @ weights + offset
    return scores


def _loss(scores: FloatArray, bins: IntArray) -> float:
    shares = _softmax(scores)[np.arange(len(bins)), bins]
    return float(-np.log(np.clip(shares, 1e-12, None)).mean())


def _softmax(scores: FloatArray) -> FloatArray:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _inputs(shares: FloatArray) -> FloatArray:
    """What quantile heads are linear in: (n, 1 + BINS), the mean class and the shares below each
    bin's end."""
    below = np.cumsum(shares, axis=1)
    return np.column_stack((shares @ np.arange(BINS) / BINS, below))


def _quantile_heads(shares: FloatArray, logs: FloatArray) -> FloatArray:
    """Linear quantile regressions, (len(LEVELS), 2 + BINS): the constant first."""
    from sklearn.linear_model import QuantileRegressor

    inputs = _inputs(shares)
    heads = []
    for level in LEVELS:
        head = QuantileRegressor(quantile=level, alpha=1e-4, solver="highs").fit(inputs, logs)
        heads.append([head.intercept_, *head.coef_])
    return np.array(heads)


def _quantiles(heads: FloatArray, shares: FloatArray) -> FloatArray:
    inputs = _inputs(shares)
    logs = heads[:, 0] + inputs @ heads[:, 1:].T
    return np.maximum(np.exp(np.sort(logs, axis=1)), 1.0)


def _rounded(values: FloatArray) -> Any:
    return [float(f"{v:.6g}") for v in values] if values.ndim == 1 else [*map(_rounded, values)]
