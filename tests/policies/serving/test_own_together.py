"""Do connectors and controllers of one's own go with what moves KV between cards?"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from policies.engines.connected import Loads
from policies.serving.plugins import load_plugin
from tests.policies.serving import features
from tests.policies.serving.features import TIERS, Feature, always, audited, figure, prefixes
from tests.rotation import LONG

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
OWN = {
    "own connector": Feature(
        "own connector",
        {
            "policy": {"name": "paged", "prefix_caching": False},
            "connectors": {"second_pool": {"capacity": "64MB"}},
        },
        figure("second_pool", "tokens"), prefixes,
    ),
    "own controller": Feature(
        "own controller",
        {"cluster": {"cards": 2, "controllers": {"relief": {"every_s": 0.002}}}},
        lambda metrics: sum(figure(of, "relief", "moved")(metrics) for of in ("node", "pools")),
    ),
    "a fault": Feature(
        "faults", {"faults": [{"replica": 0, "at_s": 0.004, "down_s": 0.004}]},
        figure("node", "failures"),
    ),
    "push": Feature("mode", {"pools": {"mode": "push", "transfer": "layers"}}, always),
    "decode fails": Feature(
        "faults", {"faults": [{"side": "decode", "mean_up_s": 0.05, "down_s": 0.004}]},
        figure("pools", "failures", "replicas"),
    ),
    "layerwise": Feature(
        "tiers", {"tiers": {**TIERS, "layerwise": True}}, figure("tiers", "load", "transfers"),
        tokens=1024,
    ),
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("unplugged", "own")


@pytest.fixture
def own(unplugged: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("own_connector.py", "own_controller.py"):
        load_plugin(EXAMPLES / name)
    for name, feature in OWN.items():
        monkeypatch.setitem(features.FEATURES, name, feature)


@pytest.mark.parametrize(
    "names",
    [
        ("own connector", "dropping"), ("own connector", "lending"), ("own connector", "migration"),
        ("own connector", "dropping", "pools"), ("own connector", "lending", "a fault"),
        ("own controller", "pools"), ("own controller", "pools", "push"),
        ("own controller", "pools", "decode fails"), ("pools", "dropping", "push"),
        ("pools", "dropping", "decode fails"), ("pools", "dropping", "push", "decode fails"),
        ("pools", "decode fails"),
    ],
    ids=" + ".join,
)  # fmt: skip
def test_all_are_at_work_and_nothing_is_lost(names: tuple[str, ...]) -> None:
    found, audit = audited(names)
    assert audit.breaches == []
    assert all(features.FEATURES[name].shown(found.metrics) for name in names)


@pytest.mark.parametrize("engine", ["v1", "v0"])
def test_what_a_host_loses_while_layers_come_is_computed_again(engine: str) -> None:
    """Whenever the host fails: a request that runs while its layers come begins again."""
    begun: list[int] = []
    unload = Loads._unload

    def counts(self: Loads, request: int) -> None:
        begun.append(request)
        unload(self, request)

    for at in range(24) if LONG else (1, 3, 23):  # with either engine one does
        faults = [{"of": "host", "at_s": 0.03 + at * 0.0011 + step * 0.03} for step in range(8)]
        own = Feature("host", {"faults": faults, "engine": {"name": engine}}, always)
        with (
            patch.dict(features.FEATURES, {"host fails": own}),
            patch.object(Loads, "_unload", counts),
        ):
            _, audit = audited(("layerwise", "sessions", "host fails"))
        assert audit.breaches == []
    assert begun
