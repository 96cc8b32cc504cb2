"""The rooms that requests of one card have on others, and how much of each is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(eq=False)
class Loan:
    """Room for tokens of a request on another card, `filled` from its start. `moving`: tokens that
    the home holds and copies there."""

    lender: int
    room: int = 0
    filled: int = 0
    moving: int = 0

    @property
    def open(self) -> int:
        """Tokens that it takes of those computed next."""
        return self.room - self.filled - self.moving


class Loans(dict[int, list[Loan]]):
    """Of each request that has any, in the order in which they were made."""

    @property
    def moving(self) -> int:
        """Tokens that wait to be copied to lenders, or are on their way."""
        return sum(loan.moving for loans in self.values() for loan in loans)

    def moving_of(self, request: int) -> int:
        return sum(loan.moving for loan in self.get(request, ()))

    def filled_of(self, request: int) -> int:
        return sum(loan.filled for loan in self.get(request, ()))

    def room_of(self, request: int) -> int:
        return sum(loan.room for loan in self.get(request, ()))

    def at(self, lender: int) -> list[int]:
        """Requests for which this card keeps something."""
        return [
            request for request, loans in self.items()
            if any(loan.lender == lender for loan in loans)
        ]  # fmt: skip

    def extend(self, request: int, lender: int, tokens: int, moving: int) -> None:
        """The room of a request on a card is so much larger, for `moving` tokens that it has."""
        loans = self.setdefault(request, [])
        loan = next((each for each in loans if each.lender == lender), None)
        if loan is None:
            loans.append(loan := Loan(lender))
        loan.room += tokens
        loan.moving += moving

    def deal(self, request: int, tokens: int) -> list[int]:
        """How many of the next tokens of a request each of its lenders keeps."""
        away: list[int] = []
        for loan in self[request]:
            away.append(min(loan.open, tokens))
            tokens -= away[-1]
        return away

    def land(self, tokens: int, block: int) -> Iterator[tuple[int, Loan, int]]:
        """So many tokens have been copied: (request, loan, tokens) of the whole blocks that are
        there now."""
        for request, loan in [(r, loan) for r, loans in self.items() for loan in loans]:
            if landed := min(tokens, loan.moving) // block * block:
                tokens -= landed
                loan.moving -= landed
                loan.filled += landed
                yield request, loan, landed
