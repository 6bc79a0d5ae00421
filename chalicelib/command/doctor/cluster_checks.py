"""Checks of the workload cluster, in the order of their results."""

from __future__ import annotations

from chalicelib.command.doctor import (
    budgets,
    cluster_state,
    drains,
    kubeconfig_checks,
    node_templates,
    other_autoscalers,
    permissions,
)
from chalicelib.command.doctor.context import Check

CLUSTER_CHECKS: tuple[Check, ...] = (
    Check(("DR01",), "kubeconfig", kubeconfig_checks.check_address),
    Check(("DR02",), "kubeconfig", kubeconfig_checks.check_login),
    Check(("DR03",), "kubeconfig", kubeconfig_checks.check_ends),
    Check(("DR26",), "versions", cluster_state.check_apis),
    Check(("DR04",), "rbac", permissions.check_permissions),
    Check(("DR04",), "rbac", permissions.check_admission),
    Check(("DR05",), "rbac", permissions.check_superfluous),
    Check(("DR06",), "clock", kubeconfig_checks.check_clocks),
    Check(("DR07",), "autoscaler", other_autoscalers.at_work),
    Check(("DR08",), "autoscaler", other_autoscalers.check_status),
    Check(("DR07", "DR09"), "autoscaler", other_autoscalers.check_traces),
    Check(("DR15", "DR16"), "template", node_templates.check_templates),
    Check(("DR17",), "template", node_templates.check_architectures),
    Check(("DR18", "DR20"), "pdb", budgets.check_budgets),
    Check(("DR19",), "pdb", budgets.check_overlaps),
    Check(("DR21", "DR22"), "drain", drains.check_drains),
    Check(("DR23",), "pods", cluster_state.check_simulation),
    Check(("DR24",), "nodes", cluster_state.check_provider_ids),
    Check(("DR25",), "nodes", cluster_state.check_startup_taints),
    Check(("DR31",), "expander", cluster_state.check_expander),
    Check(("DR32",), "removals", cluster_state.check_removals),
)
