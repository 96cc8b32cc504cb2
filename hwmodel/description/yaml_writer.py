"""Plain data as JSON types and as strict YAML that `yaml_reader` takes back."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

import yaml


def plain(value: Any) -> Any:
    """`value` in JSON's types: numpy scalars to numbers, what is not finite to None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)


class _Dumper(yaml.SafeDumper):
    """Writes what our strict reader takes: no exponents, no plain text that looks like one."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _float(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    text = format(Decimal(repr(value)), "f") if math.isfinite(value) else repr(value)
    return dumper.represent_scalar("tag:yaml.org,2002:float", text if "." in text else text + ".0")


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    odd = re.fullmatch(r"[-+0-9._:eE]+|y|n|Y|N", value)
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"' if odd else None)


_Dumper.add_representer(float, _float)
_Dumper.add_representer(str, _text)


def to_yaml(data: Any) -> str:
    """`data` as strict YAML, keys in their order."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def to_yaml_flow(value: Any) -> str:
    """`value` as strict YAML on one line."""
    return _word(value) if isinstance(value, (str, int)) else _flow(value)


def _flow(value: Any) -> str:
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=True,
        width=10**9,
    )  # fmt: skip
    return text.removesuffix("\n").removesuffix("\n...")


_word = lru_cache(maxsize=4096, typed=True)(_flow)
"""Overrides say the same words for every point."""
