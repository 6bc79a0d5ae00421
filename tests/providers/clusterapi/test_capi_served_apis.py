"""Tests of the choice of API group and version, and of the number of discovery calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.kit.errors import InvalidRequest, Transient
from infra.emulators.kube import crds
from tests.providers.clusterapi.management import Management, fill, management, operation
from tests.providers.clusterapi.objects import GROUP


def definitions(folder: Path, *versions: str) -> Path:
    """Returns Cluster API's kinds, served in these versions only; the first
    one is the storage version."""
    for path in crds.OWN.glob("*.yaml"):
        crd = yaml.safe_load(path.read_text())
        if crd["spec"]["group"] != GROUP:
            continue
        kept = [each for each in crd["spec"]["versions"] if each["name"] in versions]
        for each in kept:
            each["storage"] = each["name"] == versions[0]
        crd["spec"]["versions"] = kept
        (folder / path.name).write_text(yaml.safe_dump(crd))
    return folder


def discovery(there: Management) -> list[str]:
    """Returns the discovery paths that were requested."""
    base = f"/apis/{GROUP}"
    return [
        each.path
        for each in there.server.requests
        if each.path.count("/") <= 3 and each.path.startswith(base)
    ]


def versions_spoken(there: Management) -> set[str]:
    return {
        each.path.split("/")[3]
        for each in there.server.requests
        if each.path.startswith(f"/apis/{GROUP}/")
    }


def everything(there: Management, settings: dict[str, str]) -> None:
    """Runs one reconcile pass and two changes with one provider object."""
    nodes = fill(there, 2)
    provider = there.provider(settings=settings)
    [group] = provider.observe(nodes).groups
    assert len(group.instances) == 2
    assert isinstance(provider.scale_up(operation(OperationKind.SCALE_UP, 2, 3)), Succeeded)
    there.work()
    assert isinstance(
        provider.delete_nodes(operation(OperationKind.DELETE_NODES, 3, 2, 0)), InProgress
    )


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({}, ["", "/v1beta2"]),
        ({"version": "v1beta2"}, ["/v1beta2"]),
        ({"version": "v1beta1"}, ["/v1beta1"]),
    ],
)
def test_capi_discovery_runs_once_per_pass(settings: dict[str, str], asked: list[str]) -> None:
    with management() as there:
        everything(there, settings)
        assert discovery(there) == [f"/apis/{GROUP}{path}" for path in asked]
        assert versions_spoken(there) == {asked[-1].lstrip("/")}


def test_capi_single_change_requests_only_the_version() -> None:
    with management() as there:
        fill(there, 2)
        there.provider().scale_up(operation(OperationKind.SCALE_UP, 2, 3))
        assert discovery(there) == [f"/apis/{GROUP}"]


def test_capi_failed_discovery_is_retried() -> None:
    with management() as there:
        nodes = fill(there, 2)
        provider = there.provider()
        there.fault("GET", f"/apis/{GROUP}$", 503, times=4)
        with pytest.raises(Transient):
            provider.scale_up(operation(OperationKind.SCALE_UP, 2, 3))
        assert isinstance(provider.scale_up(operation(OperationKind.SCALE_UP, 2, 3)), Succeeded)
        assert len(provider.observe(nodes).groups) == 1


def test_capi_server_with_the_old_version_only(tmp_path: Path) -> None:
    with management(crds=definitions(tmp_path, "v1beta1")) as there:
        everything(there, {})
        assert versions_spoken(there) == {"v1beta1"}


def test_capi_unserved_version_changes_nothing_and_loses_no_annotation(tmp_path: Path) -> None:
    """In that version every object seems absent: an annotation to be removed
    must not count as removed."""
    with management(crds=definitions(tmp_path, "v1beta1")) as there:
        nodes = fill(there, 2)
        provider = there.provider(settings={"version": "v1beta2"})
        for asked in (
            lambda: provider.observe(nodes),
            lambda: provider.cancel_delete(operation(OperationKind.DELETE_NODES, 2, 1, 0)),
        ):
            with pytest.raises(InvalidRequest, match=r"providers\.clusterapi\.version"):
                asked()
        outcome = provider.delete_nodes(operation(OperationKind.DELETE_NODES, 2, 1, 0))
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "InvalidRequest"
        assert there.writes() == []
