"""Modules that a function may not load before its first event: each costs CPU or
memory at every cold start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chalicelib.runtime.messages import PROVIDERS

#: : Forbidden in all functions: tools, servers, the packager, modules not in the zip, and
#: modules no function uses.
NEVER = frozenset(
    {
        "kubernetes",
        "moto",
        "rich",
        "click",
        "chalice.cli",
        "chalice.deploy",
        "pytest",
        "pydantic",
        "aws_xray_sdk",
        "chalicelib.net.xray_daemon",
        "boto3",
        "s3transfer",
        "charset_normalizer",
        "numpy.ma",
        "numpy.fft",
        "numpy.polynomial",
        "numpy.testing",
        "multiprocessing",
        "asyncio",
        "unittest",
        "sqlite3",
        "pdb",
        "doctest",
        "aws_lambda_powertools.event_handler",
        "aws_lambda_powertools.utilities.data_classes",
    }
)

#: Both serve expanders that few policies name.
_SOLVER = frozenset({"highspy", "re2", "chalicelib.plan.scale_up.least_cost.node_filling"})
_CLOUDS = frozenset(f"chalicelib.providers.{name}" for name in PROVIDERS)
#: What makes a snapshot; the client of the cluster's API stands beside it in the same package.
_SNAPSHOT = frozenset(
    f"chalicelib.cluster.{name}"
    for name in (
        "api_types",
        "class_table",
        "input_limits",
        "list_archive",
        "list_changes",
        "list_reader",
        "list_state",
        "listed_resources",
        "live_cluster",
        "node_decoding",
        "node_groups",
        "object_versions",
        "pod_classes",
        "snapshot_builder",
        "storage",
    )
)
_PLANNER = _SNAPSHOT | frozenset(
    {
        "numpy",
        "chalicelib.plan.planner",
        "chalicelib.plan.state.cluster_state",
        "chalicelib.plan.removal.drain_rules",
        "chalicelib.plan.predicates",
        "chalicelib.plan.simulation.pod_topology",
        "chalicelib.plan.scale_up.least_cost",
        "chalicelib.plan.removal.simulate",
        "chalicelib.passes.reconciler",
        "chalicelib.operations.drain_recheck",
        "cronsim",
        "zoneinfo",
    }
)
_CLUSTER = frozenset(
    {"requests", "idna", "chalicelib.cluster.client", "chalicelib.net.http_session"}
)
_MESSENGER = (
    _SOLVER | _CLOUDS | _PLANNER | _CLUSTER | {"chalicelib.plan", "chalicelib.operations.steps"}
)

#: : Handler module -> modules that its functions do not need at the start.
_BY: Mapping[str, frozenset[str]] = {
    "app": _MESSENGER | {"chalicelib.operations.runner", "chalicelib.passes.scan_scheduler"},
    "chalicelib.functions.tick": _MESSENGER
    | {"chalicelib.operations.runner", "chalicelib.journal"},
    "chalicelib.functions.act": _SOLVER | _CLOUDS | _PLANNER,
    "chalicelib.functions.reconcile": _SOLVER
    | _CLOUDS
    | {"chalicelib.operations.runner", "chalicelib.operations.step_context"},
}


def unwanted(handler: str, loaded: Iterable[str]) -> list[str]:
    """The modules among `loaded` that the function of this Handler may not load at its start."""
    module, _, function = handler.rpartition(".")
    not_by = NEVER | _BY[module] - {f"chalicelib.providers.{function.removeprefix('act_')}"}
    return sorted(
        name for name in loaded if any(f"{name}.".startswith(f"{one}.") for one in not_by)
    )
