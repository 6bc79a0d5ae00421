"""Both API versions together and each alone, end to end.

Where Cluster API's real definitions are available, everything that the provider and the emulated
controllers wrote must satisfy them, and no field of it may be dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import InProgress, Succeeded
from infra.emulators.controllers import objects
from infra.emulators.kube import crds, validation
from infra.emulators.kube.objects import clone
from tests.providers.clusterapi.management import Management, management, operation
from tests.providers.clusterapi.objects import GROUP
from tests.reference_data import SHARED, needs_shared

VERSIONS = pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
KINDS = ("clusters", "machinedeployments", "machinesets", "machinepools", "machines")


def only(version: str, directory: Path, into: Path) -> Path:
    """Returns a directory's definitions as a server has them that serves and
    stores only this version."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    into.mkdir()
    for path in sorted(directory.glob("*.yaml")):
        crd = yaml.load(path.read_text(), Loader=loader)
        kept = [each for each in crd["spec"]["versions"] if each["name"] == version]
        if kept:
            crd["spec"]["versions"] = [{**kept[0], "storage": True}]
            (into / path.name).write_text(yaml.safe_dump(crd))
    return into


def populate(there: Management, version: str) -> None:
    """Adds one group of each kind, as users write them."""
    objects.apply(
        there.store,
        objects.cluster("c1", version=version),
        objects.machine_deployment("md-0", 3, 0, 6, cluster="c1", version=version),
        objects.machine_pool("backed", 3, 0, 6, machines=True, cluster="c1", version=version),
        objects.machine_pool("bare", 1, 0, 6, cluster="c1", version=version),
    )
    there.work(80)


def removed(there: Management, wanted: Operation) -> Succeeded:
    for _ in range(8):
        outcome = there.provider().delete_nodes(wanted)
        if isinstance(outcome, Succeeded):
            return outcome
        assert isinstance(outcome, InProgress), outcome
        wanted = wanted.with_status(data=outcome.data)
        there.clock.advance(outcome.after)
        there.work()
    raise AssertionError(f"still {outcome}")


def use(there: Management, version: str) -> None:
    """Reads, scales up, removes and reads a failure in every group."""
    provider = there.provider()
    groups = {group.id: group for group in provider.observe(there.nodes()).groups}
    assert {name: len(group.instances) for name, group in groups.items()} == {
        "MachineDeployment/default/md-0": 3,
        "MachinePool/default/backed": 3,
        "MachinePool/default/bare": 1,
    }
    assert all(each.node for group in groups.values() for each in group.instances)
    there.controllers.fail_next("default/md-0", "quota")
    for name, group in groups.items():
        target = group.instances[-1]
        wanted = operation(
            OperationKind.DELETE_NODES,
            group.target,
            group.target - 1,
            group=name,
            op=f"remove-{group.target}",
        ).with_spec(targets=(RemovalTarget(target.node, target.id, target.handle),))
        removed(there, wanted)
        there.work(40)
        assert target.node not in {each.name for each in there.nodes()}
        assert provider.scale_up(
            operation(OperationKind.SCALE_UP, group.target - 1, group.target + 1, group=name)
        ) == Succeeded({"from": group.target - 1, "to": group.target + 1})
    there.work(120)
    found = there.provider(settings={"stuckAfter": "30s"}).observe(there.nodes()).groups
    errors = {
        each.error.cls for group in found for each in group.instances if each.error is not None
    }
    assert errors == {"QuotaExceeded"}
    assert sum(1 for group in found for each in group.instances if each.node) == 9
    there.change("c1", "Cluster", paused=True)
    there.work()
    assert there.provider().observe(there.nodes()).groups == ()
    assert f"/apis/{GROUP}/{version}/" in "".join(each.path for each in there.server.requests)


def wrong(there: Management, version: str) -> Iterator[str]:
    """Validates the stored objects against the server's definitions and returns the errors."""
    for plural in KINDS:
        resource = there.store.resources.find(plural, GROUP)
        served = resource.version(version) if resource else None
        assert served is not None
        assert served.schema is not None
        for obj in there.store.list(plural, group=GROUP):
            yield from (f"{plural}: {cause}" for cause in validation.causes(served.schema, obj))
            if validation.prune(served.schema, clone(obj)) != obj:
                yield (
                    f"{plural} {obj['metadata']['name']}: has fields that the definition does not "
                    "know"
                )


@VERSIONS
def test_capi_server_of_one_version_works_end_to_end(version: str, tmp_path: Path) -> None:
    with management(crds=only(version, crds.OWN, tmp_path / "crds")) as there:
        populate(there, version)
        use(there, version)
        assert list(wrong(there, version)) == []


@needs_shared
@pytest.mark.shared
@VERSIONS
def test_capi_all_written_objects_satisfy_the_real_definitions(
    version: str, tmp_path: Path
) -> None:
    with management(crds=only(version, SHARED / "data" / "capi-crds", tmp_path / "crds")) as there:
        populate(there, version)
        assert list(wrong(there, version)) == []
        use(there, version)
        assert list(wrong(there, version)) == []
