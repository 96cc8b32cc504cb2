"""Measures and verdict rules of one's own, beside what `policies.serving.plugins` takes: who loads
plug-ins, or descriptions that name them, imports this, and so all kinds are known."""

from __future__ import annotations

from policies.serving.plugins import KINDS, PluginKind, load_installed
from policies.serving.plugins import load_plugin as load_plugin
from policies.serving.plugins import register as register
from policies.serving.plugins import require as require
from sweeps.plan.experiment import Described
from sweeps.plan.measures import MEASURES
from sweeps.plan.rules import RULES
from sweeps.plan.sweep_spec import SweepSpec

KINDS["measure"] = PluginKind(Described, MEASURES, "name", ("measure",))
KINDS["verdict rule"] = PluginKind(SweepSpec, RULES, "rule", ("findings",))
load_installed(say=True)
