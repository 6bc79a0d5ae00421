"""What a function may not load before its first event: each of these costs CPU or memory at every cold start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chalicelib.dispatch.messages import PROVIDERS

#: By no function: tools, servers, the packager, what is not in the zip, and what no function uses.
NEVER = frozenset({
    "kubernetes", "moto", "rich", "click", "chalice.cli", "chalice.deploy", "pytest", "pydantic", "aws_xray_sdk",
    "boto3", "s3transfer", "charset_normalizer", "numpy.ma", "numpy.fft", "numpy.polynomial", "numpy.testing",
    "multiprocessing", "asyncio", "unittest", "sqlite3", "pdb", "doctest",
    "aws_lambda_powertools.event_handler", "aws_lambda_powertools.utilities.data_classes",
})

_SOLVER = frozenset({"highspy", "numpy.random", "chalicelib.plan.choose.least_cost.pricing"})
_CLOUDS = frozenset(f"chalicelib.providers.{name}" for name in PROVIDERS)
_PLANNER = frozenset({
    "numpy", "chalicelib.snapshot", "chalicelib.plan.decide", "chalicelib.plan.world", "chalicelib.plan.drain",
    "chalicelib.plan.fit", "chalicelib.plan.topology", "chalicelib.plan.choose.least_cost", "chalicelib.plan.removal",
    "chalicelib.plan.budgets", "chalicelib.handlers.reconciling", "chalicelib.handlers.rechecking",
    "cronsim", "zoneinfo",
})
_CLUSTER = frozenset({"requests", "idna", "chalicelib.kube.client", "chalicelib.net.session"})
_MESSENGER = _SOLVER | _CLOUDS | _PLANNER | _CLUSTER | {"chalicelib.plan", "chalicelib.execute"}

#: Module of the Handler -> what its functions have no use for at the start.
_BY: Mapping[str, frozenset[str]] = {
    "app": _MESSENGER | {"chalicelib.handlers.acting", "chalicelib.handlers.ticking"},
    "chalicelib.handlers.tick": _MESSENGER | {"chalicelib.handlers.acting", "chalicelib.record"},
    "chalicelib.handlers.act": _SOLVER | _CLOUDS | _PLANNER,
    "chalicelib.handlers.reconcile": _SOLVER | _CLOUDS | {"chalicelib.handlers.acting", "chalicelib.execute.recipe"},
}


def unwanted(handler: str, loaded: Iterable[str]) -> list[str]:
    """The modules among `loaded` that the function of this Handler may not load at its start."""
    module, _, function = handler.rpartition(".")
    not_by = NEVER | _BY[module] - {f"chalicelib.providers.{function.removeprefix('act_')}"}
    return sorted(name for name in loaded if any(f"{name}.".startswith(f"{one}.") for one in not_by))
