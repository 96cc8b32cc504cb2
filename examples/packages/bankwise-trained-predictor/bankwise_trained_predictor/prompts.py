"""Prompts with the lengths of their answers, to train and to judge a length predictor."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError
from hwmodel.description.packed import open_text
from policies.requests.requests import MAX_TOKENS, IntArray

TEXTS = (("prompt",), ("instruction", "input"), ("question",), ("text",))
"""Keys that may hold the text, in the order in which they are looked for."""
HELD_OUT = 51
"""Of 256 prompts, by their hash, so many are held out: a fifth."""


class Prompts(NamedTuple):
    """n answers. texts: the prompt of each, with the model that answered where the file names
    one; prompt: int64 (n,), which prompt it is, whoever answers; output_tokens: int64 (n,);
    held_out: bool (n,), the same for all answers to one prompt."""

    texts: list[str]
    prompt: IntArray
    output_tokens: IntArray
    held_out: NDArray[np.bool_]

    def part(self, held_out: bool) -> Prompts:
        """Those to judge by, or those to train on."""
        rows = np.flatnonzero(self.held_out == held_out)
        texts = [self.texts[row] for row in rows]
        return Prompts(texts, self.prompt[rows], self.output_tokens[rows], self.held_out[rows])


def read_prompts(path: str | Path) -> Prompts:
    """Read JSON lines, plain or gzip: a text (`prompt`, `instruction` with `input`, `question` or
    `text`) and `output_tokens`, a number or a list of several answers'; `model` where several
    answered. Raises DescriptionError with the line of what is wrong."""
    path = Path(path)
    texts: list[str] = []
    prompts: list[int] = []
    known: dict[str, int] = {}
    outputs: list[int] = []
    held: list[bool] = []
    try:
        with open_text(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    text, tokens = _row(line, path, number)
                    texts += [f"{text[0]}{text[1]}"] * len(tokens)
                    prompts += [known.setdefault(text[1], len(known))] * len(tokens)
                    outputs += tokens
                    digest = hashlib.sha256(text[1].encode()).digest()
                    held += [digest[0] < HELD_OUT] * len(tokens)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DescriptionError(f"cannot be read: {error}", path) from None
    columns = np.array(prompts, np.int64), np.array(outputs, np.int64)
    return Prompts(texts, *columns, np.array(held, np.bool_))


def _row(line: str, path: Path, number: int) -> tuple[tuple[str, str], list[int]]:
    """((the model's name as a line, or nothing; the prompt), output tokens of the answers)."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise DescriptionError("not JSON", path, number) from None
    if not isinstance(row, dict):
        raise DescriptionError("expected an object", path, number)
    keys = next((keys for keys in TEXTS if keys[0] in row), None)
    if keys is None:
        raise DescriptionError("no prompt, instruction, question or text", path, number)
    prompt = "\n".join(str(row[key]) for key in keys if row.get(key))
    tokens = row.get("output_tokens")
    answers: list[Any] = tokens if isinstance(tokens, list) else [tokens]
    if not all(type(count) is int and 1 <= count <= MAX_TOKENS for count in answers):
        raise DescriptionError("output_tokens: expected whole numbers above 0", path, number)
    return (f"model:{row['model']}\n" if "model" in row else "", prompt), answers
