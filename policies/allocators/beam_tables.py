"""Block tables of beam search: beams hold together the blocks that they have in common.

Kwon et al. 2023, section 4.4. A beam that gives way is a fork of another one from then on: its row
names the other's blocks, each of which counts its users, and those that nobody uses are free. The
beam that first writes into a block that several use gets a copy of it (copy-on-write). The prompt's
full blocks are common to all, as those of samples are (`policies.allocators.sample_tables`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.allocators.allocator import Demand, Limits
from policies.allocators.block_allocator import BlockOptions
from policies.allocators.capabilities import Forks, Migration
from policies.allocators.kv_layout import KvLayout
from policies.allocators.table_allocator import TableAllocator
from policies.requests.requests import IntArray


class BeamTables(TableAllocator, Forks):
    """`_others[block]` counts users of a block but for the first, among beams as among requests, so
    that `stored` and `reserved` count what beams share once for each, and `reserved_total` once."""

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: BlockOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self._forked = False
        """Whether a beam ever was."""
        self._away: dict[int, tuple[IntArray, int]] = {}
        """Of requests of beams that are swapped out: the rows' own blocks by number, int64 (beams,
        places), and how many there are."""
        self._blocks_apart = self._blocks_saved = 0
        """Blocks of beams over all steps, had each all its own, and those of them that sharing
        saves."""

    def needs_of_beams(self, prompt: IntArray, output: IntArray, beams: IntArray) -> IntArray:
        return self.needs(prompt, output, beams)

    def fork(self, request: int, parents: IntArray) -> None:
        self._require(request)
        if request not in self._samples:
            return  # all of them go on from the prompt
        rows, first = self._rows(request), self._demands[request].prompt // self.block
        self._count_blocks(rows, first)
        for row, parent in zip(rows, parents.tolist(), strict=True):
            if rows[parent] == row:
                continue
            left, held = (self._tables.blocks(each)[first:].copy() for each in (row, rows[parent]))
            self._others[held] += 1
            self._tables.replace(row, first, held)
            self._free(left, 0)
            self.reserved_total -= len(left) * self.block  # `_free` has added those that stay
            self._shares = self._forked = True

    def _count_blocks(self, rows: list[int], first: int) -> None:
        """What sharing saves in a step of these beams, whose prompts have so many full blocks."""
        own = np.concatenate([self._tables.blocks(row)[first:] for row in rows])
        whole = len(own) + first * len(rows)
        self._blocks_apart += whole
        self._blocks_saved += whole - first - len(np.unique(own))

    def report(self) -> dict[str, Any]:
        """As `SampleTables.report`, and the share of blocks that beams save by sharing, over all
        steps (Kwon et al. 2023, figure 15)."""
        if not self._blocks_apart:
            return super().report()
        saved = {"beam_blocks_saved_share": self._blocks_saved / self._blocks_apart}
        return super().report() | saved

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        self._away.pop(request, None)  # what the host had of it is lost
        return super().reserve(request, demand, tokens)

    def _written_apart(self, requests: IntArray) -> list[tuple[int, int]]:
        """(request, row) of beams whose next token is written into a copy, since another one writes
        into the block."""
        if not self._forked:
            return []
        found: list[tuple[int, int]] = []
        for request in requests.tolist():
            if not self._demands[request].beams or request not in self._samples:
                continue
            taken: set[int] = set()
            for row in self._rows(request):
                if self._tables.tokens[row] % self.block:
                    last = int(self._tables.blocks(row)[-1])
                    if last in taken:
                        found.append((request, row))
                    taken.add(last)
        return found

    def _write_apart(self, requests: IntArray) -> None:
        """The copies that the next tokens of `requests` need; there is room."""
        for request, row in self._written_apart(requests):
            place, part = divmod(int(self._tables.tokens[row]), self.block)
            old, fresh = int(self._tables.blocks(row)[place]), self._list.pop(1)
            self._tables.replace(row, place, fresh)
            self._tables.uses[fresh] += 1
            self._others[old] -= 1
            self.reserved_total += self.block
            source, target = old * self.block, int(fresh[0]) * self.block
            self._copies.append(Migration(request, source, target, part, self.block))
            self._copied_tokens += part

    def _free_to_grow(self, requests: IntArray) -> int:
        return self._list.free - len(self._written_apart(requests))

    def taken(self, requests: IntArray, rounds: int) -> int:
        copies = len(self._written_apart(requests)) * bool(rounds)
        return super().taken(requests, rounds) + copies * self.block

    def grow(self, request: int, tokens: int) -> bool:
        if self._forked and self._written_apart(one := np.array([request])):
            rounds = tokens // self._demands[request].samples
            if self.headroom(one, rounds) < rounds:
                return False
            self._write_apart(one)
        return super().grow(request, tokens)

    def advance(self, requests: IntArray, rounds: int) -> None:
        if rounds and self._forked:
            self._write_apart(requests)
        super().advance(requests, rounds)

    def tokens_to_copy(self, request: int) -> int:
        """Those of beams lie in as many blocks as they have together."""
        if (named := self._blocks_by_number(request)) is None:
            return super().tokens_to_copy(request)
        blocks, many = named
        tokens, last = int(self._tables.tokens[self._first_row[request]]), blocks[:, -1:]
        lacking = len(np.unique(last)) * (-tokens % self.block)
        whole = self._demands[request].prompt // self.block + many
        return whole * self.block - lacking

    def _blocks_by_number(self, request: int) -> tuple[IntArray, int] | None:
        """See `_away`; None: no beams, or none that has a row."""
        if not self._demands[request].beams or request not in self._samples:
            return None
        first = self._demands[request].prompt // self.block
        own = [self._tables.blocks(row)[first:] for row in self._rows(request)]
        blocks, numbers = np.unique(np.stack(own), return_inverse=True)
        return numbers.reshape(len(own), -1), len(blocks)

    def swap_out(self, request: int) -> int:
        named = self._blocks_by_number(request)
        stored = super().swap_out(request)
        if named is not None:
            self._away[request] = named
        return stored

    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        if request not in self._away:
            return super().fits(tokens, request, demand)
        whole, samples = self._blocks_away(request), self._demands[request].samples
        return whole + samples + self._kept_free <= self._list.free

    def _blocks_away(self, request: int) -> int:
        return self._demands[request].prompt // self.block + self._away[request][1]

    def swap_in(self, request: int) -> bool:
        if request not in self._away:
            return super().swap_in(request)
        if self._blocks_away(request) + self._kept_free > self._list.free:
            return False
        self._come_back(request, *self._away.pop(request))
        return True

    def _come_back(self, request: int, numbers: IntArray, many: int) -> None:
        """Beams that were swapped out share as before; there is room."""
        demand, stored = self._demands[request], self._swapped.pop(request)
        beams, places = numbers.shape
        first, tables = demand.prompt // self.block, self._tables
        blocks = self._list.pop(first + many)
        tables.uses[blocks] += 1
        self._admitted(request, demand, 0)
        self._admit(request, (first + beams * places) * self.block, stored, beams)
        self.reserved_total -= (beams * places - many) * self.block
        self._windows.enter(request, 0)
        self.reserved_total += self._beside.enter(request) * self.block
        self._others[blocks[first:]] = np.bincount(numbers.ravel(), minlength=many) - 1
        rows = [tables.add(request) for _ in range(beams)]
        for row, own in zip(rows, numbers, strict=True):
            tables.append(row, np.concatenate((blocks[:first], blocks[first:][own])))
            tables.tokens[row] = demand.prompt + (stored - demand.prompt) // beams
        self._set_row(request, rows[0])
        self._samples[request] = rows[1:]

    def finished(self, request: int, prompt: int, output: int) -> None:
        super().finished(request, prompt, output)
        self._away.pop(request, None)
