"""The routers that `cluster.placement` can name. To add one, add a line here; the first is the
default."""

from __future__ import annotations

from policies.routers.kv_aware import KvAware
from policies.routers.least_kv import LeastKv
from policies.routers.least_requests import LeastRequests
from policies.routers.prefix import Prefix
from policies.routers.pressure import Pressure
from policies.routers.round_robin import RoundRobin
from policies.routers.router import Router
from policies.routers.session import Session

ROUTERS: dict[str, type[Router]] = {
    "round_robin": RoundRobin,
    "least_requests": LeastRequests,
    "pressure": Pressure,
    "session": Session,
    "prefix": Prefix,
    "kv_aware": KvAware,
    "least_kv": LeastKv,
}
