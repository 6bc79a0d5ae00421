"""`outscaler validate` of a configuration of Cluster Autoscaler names `outscaler import`,
and the other way round.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.cli.main import main
from tests.functional.import_runs import (
    ALICLOUD,
    Said,
    container,
    imported,
    manifest,
    workload,
    written,
)

FOREIGN = {
    "a Kubernetes manifest (Deployment cluster-autoscaler)": manifest(
        workload(container(ALICLOUD))
    ),
    "a Kubernetes manifest (ConfigMap x)": "kind: ConfigMap\nmetadata: {name: x}\n",
    "a Kubernetes manifest (ClusterAutoscaler default)": (
        "apiVersion: autoscaling.openshift.io/v1\nkind: ClusterAutoscaler\nmetadata: {name: "
        "default}\n"
    ),
    (
        "a values file of Cluster Autoscaler's Helm chart"
    ): "cloudProvider: exoscale\nextraArgs: {v: 4}\n",
    "a systemd unit": "[Service]\nExecStart=/bin/cluster-autoscaler --v=4\n",
}


@pytest.mark.parametrize("form", FOREIGN)
def test_validate_names_import_in_one_line(form: str, tmp_path: Path, capsys: Said) -> None:
    file = written(tmp_path, FOREIGN[form], "given.yaml")
    assert main(["validate", file]) == 2
    assert (
        capsys.readouterr().err
        == f"{file}: is {form}, not a policy; run outscaler import {file} to make one\n"
    )


def test_validate_reports_every_mistake_of_a_policy(tmp_path: Path, capsys: Said) -> None:
    file = written(
        tmp_path, "apiVersion: outscaler.dev/v1\nkind: Cluster\nspeck: {}\n", "shop.yaml"
    )
    assert main(["validate", file]) == 2
    assert len(capsys.readouterr().err.splitlines()) > 1


def test_import_of_a_policy_names_validate(tmp_path: Path, capsys: Said) -> None:
    file = written(tmp_path, "apiVersion: outscaler.dev/v1\nkind: Cluster\n", "shop.yaml")
    refused = imported(capsys, file)
    assert refused.code == 2
    assert refused.err == f"{file}: is an Outscaler policy already; run outscaler validate {file}\n"
