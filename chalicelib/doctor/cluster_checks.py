"""Checks of the workload cluster, in the order of their results."""

from __future__ import annotations

from chalicelib.doctor.context import Check

CLUSTER_CHECKS: tuple[Check, ...] = ()
