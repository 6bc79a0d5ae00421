"""Reads OpenShift's ClusterAutoscaler and MachineAutoscaler objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.policy.importers.autoscaler_input import AutoscalerInput


def read_openshift(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> AutoscalerInput:
    """Return the configuration of the objects, given as (place, document)."""
    raise BadInput(documents[0][0], "is an object of OpenShift, which is not read by this version", "")
