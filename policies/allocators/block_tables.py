"""Block tables: which physical block holds which tokens of a sequence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.jit import kernel
from policies.requests.requests import IntArray


class BlockTables:
    """A row for each sequence, with as many places in each group of layers; rows are used again.

    `count`, `tokens`, `runs` and `owner`, int64 (rows,): places, tokens, physically contiguous runs
    of the first group's blocks, and the request the row belongs to. `block`: tokens in a block.
    Blocks of several groups are given one group after another.
    """

    def __init__(self, block: int, groups: int = 1) -> None:
        self.block = block
        self.groups = groups
        self.count = np.zeros(0, np.int64)
        self.tokens = np.zeros(0, np.int64)
        self.runs = np.zeros(0, np.int64)
        self.owner = np.zeros(0, np.int64)
        self._table = np.zeros((groups, 0, 8), np.int64)
        self._unused: list[int] = []

    def add(self, owner: int) -> int:
        """An empty row."""
        if not self._unused:
            self._more_rows()
        row = self._unused.pop()
        self.count[row] = self.tokens[row] = self.runs[row] = 0
        self.owner[row] = owner
        return row

    def remove(self, row: int) -> None:
        self._unused.append(row)

    def blocks(self, row: int, group: int = 0) -> IntArray:
        """The blocks of a row in token order; a view."""
        return self._table[group, row, : self.count[row]]

    def append(self, row: int, blocks: IntArray) -> None:
        """These blocks follow those of the row."""
        self._widen(int(self.count[row]) + len(blocks) // self.groups)
        _append(self._table, self.count, self.runs, row, blocks)

    def replace(self, row: int, first: int, blocks: IntArray, group: int = 0) -> None:
        """These blocks, which hold the same, stand for those of a row from its `first` on."""
        self.blocks(row, group)[first : first + len(blocks)] = blocks
        self._count_runs(row)

    def drop_first(self, row: int, places: int) -> None:
        """The row begins behind so many of its places."""
        left = int(self.count[row]) - places
        self._table[:, row, :left] = self._table[:, row, places : places + left].copy()
        self.count[row] = left
        self.tokens[row] -= places * self.block
        self._count_runs(row)

    def last(self, row: int) -> IntArray:
        """The last block of a row in each group, int64 (groups,); -1 where it has none."""
        count = int(self.count[row])
        return self._table[:, row, count - 1] if count else np.full(self.groups, -1)

    def asks(self, rows: IntArray, rounds: int, wanted: int) -> tuple[IntArray, IntArray]:
        """(whose block each of the `wanted` of `advance` is, as an index of `rows`; the last block
        that each of these has, -1 for none). For one group of layers."""
        asks, last = np.empty(wanted, np.int64), np.full(len(rows), -1)
        _asks(self._table[0], self.count, self.tokens, rows, self.block, rounds, asks, last)
        return asks, last

    def wanted(self, rows: IntArray, rounds: int) -> tuple[int, int]:
        """(blocks that `rows` need to hold `rounds` tokens more each, the most that one then
        has)."""
        wanted: tuple[int, int] = _wanted(self.count, self.tokens, rows, self.block, rounds)
        return wanted

    def rounds(self, rows: IntArray, free: int, limit: int) -> int:
        """How many tokens, up to `limit`, each of `rows` can store with so many free blocks."""
        if len(rows) * -(-limit // self.block) <= free:  # none needs more for so many tokens
            return limit
        return int(_rounds(self.count, self.tokens, rows, self.block, free, limit))

    def growing(self, rows: IntArray, free: int) -> int:
        """How many of the first of `rows` can store a token more with so many free blocks."""
        return int(_growing(self.count, self.tokens, rows, self.block, free))

    def advance(
        self, rows: IntArray, rounds: int, blocks: IntArray, most: int, stored: IntArray,
        reserved: IntArray,
    ) -> None:  # fmt: skip
        """`rounds` times a token for each of `rows`, in order; a row without room takes the next of
        `blocks` (as many as `wanted` said, and the `most`). For one group of layers.

        stored, reserved: int64 (requests,), of which those of the owners are modified in place.
        """
        if len(blocks):
            self._widen(most)
        _advance(
            self._table[0], self.count, self.tokens, self.runs, self.owner, rows, self.block,
            rounds, blocks, stored, reserved,
        )  # fmt: skip

    def grown(self, rows: IntArray, rounds: int) -> IntArray:
        """How many blocks fewer `rows` had after each of the last `rounds` rounds of `advance` than
        now, int64 (rounds,)."""
        fewer = np.zeros(rounds, np.int64)
        _grown(self.tokens, rows, self.block, fewer)
        return fewer

    def _count_runs(self, row: int) -> None:
        held = self.blocks(row)
        self.runs[row] = 1 + np.count_nonzero(np.diff(held) != 1) if len(held) else 0

    def _widen(self, columns: int) -> None:
        groups, rows, have = self._table.shape
        if columns > have:
            more = np.zeros((groups, rows, max(columns, 2 * have) - have), np.int64)
            self._table = np.concatenate((self._table, more), axis=2)

    def _more_rows(self) -> None:
        groups, old, columns = self._table.shape
        more = max(old, 8)
        self._table = np.concatenate(
            (self._table, np.zeros((groups, more, columns), np.int64)), axis=1
        )
        for name in ("count", "tokens", "runs", "owner"):
            self.__dict__[name] = np.concatenate((self.__dict__[name], np.zeros(more, np.int64)))
        self._unused.extend(range(old + more - 1, old - 1, -1))


@kernel
def _append(
    table: NDArray[np.int64], count: IntArray, runs: IntArray, row: int, blocks: IntArray
) -> None:  # fmt: skip
    """Modifies table (groups, rows, places), count and runs in place."""
    groups, first = table.shape[0], count[row]
    places = len(blocks) // groups
    for nth in range(places):
        at = first + nth
        if at == 0 or table[0, row, at - 1] + 1 != blocks[nth]:
            runs[row] += 1
        for group in range(groups):
            table[group, row, at] = blocks[group * places + nth]
    count[row] = first + places


@kernel
def _wanted(
    count: IntArray, tokens: IntArray, rows: IntArray, block: int, rounds: int
) -> tuple[int, int]:
    """See `BlockTables.wanted`."""
    total = most = 0
    for row in rows:
        held = (tokens[row] + rounds + block - 1) // block
        most = max(most, held)
        total += max(held - count[row], 0)
    return total, most


@kernel
def _rounds(
    count: IntArray, tokens: IntArray, rows: IntArray, block: int, free: int, limit: int
) -> int:
    """The largest number of rounds up to `limit` for which `_wanted` is at most `free`."""
    low, high = 0, limit
    while low < high:  # the blocks wanted grow with the rounds: bisect, with `_wanted` inlined
        middle = (low + high + 1) // 2
        total = 0
        for row in rows:
            total += max((tokens[row] + middle + block - 1) // block - count[row], 0)
        if total <= free:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def _growing(count: IntArray, tokens: IntArray, rows: IntArray, block: int, free: int) -> int:
    """See `BlockTables.growing`."""
    for place in range(len(rows)):
        row = rows[place]
        free -= max((tokens[row] + block) // block - count[row], 0)
        if free < 0:
            return place
    return len(rows)


@kernel
def _first_asked(
    count: IntArray, tokens: IntArray, rows: IntArray, block: int, rounds: int
) -> IntArray:
    """Of the blocks of `advance`, the first that each round asks for, int64 (rounds + 1,)."""
    first = np.zeros(rounds + 1, np.int64)  # counted one place behind
    for row in rows:
        full = count[row] * block - tokens[row]
        while full < rounds:
            first[full + 1] += 1
            full += block
    for done in range(1, rounds):
        first[done] += first[done - 1]
    return first


@kernel
def _advance(
    table: NDArray[np.int64], count: IntArray, tokens: IntArray, runs: IntArray, owner: IntArray,
    rows: IntArray, block: int, rounds: int, blocks: IntArray, stored: IntArray, reserved: IntArray,
) -> None:  # fmt: skip
    """See `BlockTables.advance`. Modifies table, count, tokens, runs, stored and reserved.

    A row asks in the rounds that find it full. Of all that ask in a round the first row is first,
    so that each round's first block is known once it is counted who asks when."""
    if len(blocks):
        first = _first_asked(count, tokens, rows, block, rounds)
        for row in rows:
            full = count[row] * block - tokens[row]
            while full < rounds:
                taken = blocks[first[full]]
                first[full] += 1
                full += block
                at = count[row]
                if at == 0 or table[row, at - 1] + 1 != taken:
                    runs[row] += 1
                table[row, at] = taken
                count[row] = at + 1
                reserved[owner[row]] += block
    for row in rows:
        tokens[row] += rounds
        stored[owner[row]] += rounds


@kernel
def _asks(
    table: NDArray[np.int64], count: IntArray, tokens: IntArray, rows: IntArray, block: int,
    rounds: int, asks: IntArray, last: IntArray,
) -> None:  # fmt: skip
    """See `BlockTables.asks`; in the order of `_advance`. Modifies asks and last."""
    first = _first_asked(count, tokens, rows, block, rounds)
    for at in range(len(rows)):
        row = rows[at]
        if count[row]:
            last[at] = table[row, count[row] - 1]
        full = count[row] * block - tokens[row]
        while full < rounds:
            asks[first[full]] = at
            first[full] += 1
            full += block


@kernel
def _grown(tokens: IntArray, rows: IntArray, block: int, fewer: IntArray) -> None:
    """See `BlockTables.grown`: a row has a new block in each round after which it holds one token
    of it. Modifies `fewer`, all 0."""
    rounds = len(fewer)
    for row in rows:
        at = rounds - 1 - (tokens[row] - 1) % block
        while at > 0:
            fewer[at - 1] += 1
            at -= block
    for at in range(rounds - 2, -1, -1):
        fewer[at] += fewer[at + 1]
