"""Each role policy in infra/exoscale lists exactly the operations that the provider uses, and it
suffices for all of them.

The operations of upstream's documented role also suffice, with calls per pool
instead of complete lists.
"""

from __future__ import annotations

import importlib.resources
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.providers.kit.errors import ProviderError, Unauthorized
from infra.emulators.exoscale.models import UNAVAILABLE
from infra.emulators.vendor_common.dispatcher import LoggedOperation
from tests.providers.exoscale.fixture import ExoscaleFixture, drive, order, seen

FOLDER = Path(__file__).parents[3] / "infra" / "exoscale"
OURS = {"iam-sks": False, "iam-instance-pool": True}  # policy -> whether it is for standalone pools
UPSTREAMS = {f"{name}-as-upstream": standalone for name, standalone in OURS.items()}
# Operations that are used if allowed and replaced if the key lacks them.
BULK = {"list-instances", "list-instance-pools", "get-instance-type"}
OPTIONAL = BULK | {"get-quota", "reboot-instance"}  # without which all others do their work


def rules(name: str) -> list[dict[str, str]]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    assert found.keys() == {"default-service-strategy", "services"}
    assert found["default-service-strategy"] == "deny"
    assert found["services"].keys() == {"compute"}
    assert found["services"]["compute"]["type"] == "rules"
    listed: list[dict[str, str]] = found["services"]["compute"]["rules"]
    return listed


def operations(name: str) -> frozenset[str]:
    """Returns the operations that a policy allows, parsed from the vendor's expressions:
    `operation in ['a', 'b']`."""
    found: list[str] = []
    for rule in rules(name):
        assert rule.keys() == {"action", "expression"}
        assert rule["action"] == "allow"
        match = re.fullmatch(r"operation in \[('[a-z-]+'(?:, '[a-z-]+')*)\]", rule["expression"])
        assert match, rule["expression"]
        found += re.findall(r"'([a-z-]+)'", match[1])
    assert len(found) == len(set(found))
    return frozenset(found)


def bench_with(name: str, *, standalone: bool, fewer: str = "") -> ExoscaleFixture:
    return ExoscaleFixture(standalone=standalone, operations=operations(name) - {fewer})


def everything(bench: ExoscaleFixture) -> list[LoggedOperation]:
    """Runs every function of the provider and returns the calls that it made."""
    group = bench.add_group("web", size=2, least=1)
    assert seen(bench, group).target == 2
    assert isinstance(
        drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 3, op="a-0123456789abcdef")),
        Succeeded,
    )
    bench.zone.spoil(group, UNAVAILABLE, 1)
    assert isinstance(
        drive(bench, order(bench, OperationKind.SCALE_UP, group, 3, 4, op="b-0123456789abcdef")),
        Failed,
    )
    missing = [each.handle for each in seen(bench, group).instances if each.error]
    assert isinstance(
        drive(
            bench,
            order(
                bench,
                OperationKind.DELETE_INSTANCES,
                group,
                4,
                3,
                *missing,
                op="c-0123456789abcdef",
            ),
        ),
        Succeeded,
    )
    first, second = bench.machines(group)[:2]
    drive(
        bench, order(bench, OperationKind.RESTART_NODE, group, 3, 3, first, op="r-0123456789abcdef")
    )
    operation = order(
        bench, OperationKind.DELETE_NODES, group, 3, 1, first, second, op="d-0123456789abcdef"
    )
    bench.zone.vanish(second)
    assert isinstance(drive(bench, operation), Succeeded)
    return bench.look()


READS = operations("iam-observe") - {"list-instance-types"}
CREATES = {"create-sks-nodepool", "delete-sks-nodepool"}


def test_only_the_role_for_managed_pools_may_create_and_delete() -> None:
    managed = operations("iam-sks-managed-pools")
    assert managed == operations("iam-sks") | CREATES | {"list-instance-types"}
    for name in (*OURS, *UPSTREAMS, "iam-observe"):
        assert not operations(name) & CREATES


def test_role_of_passes_reads_all_that_other_roles_read_and_changes_nothing() -> None:
    changes = {"scale-sks-nodepool", "evict-sks-nodepool-members", "reboot-instance"}
    assert operations("iam-sks") - changes == READS


@pytest.fixture(params=sorted(OURS))
def named(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def bench(named: str) -> Iterator[ExoscaleFixture]:
    with bench_with(named, standalone=OURS[named]) as made:
        yield made


def denied(calls: list[LoggedOperation]) -> set[str]:
    return {call.operation for call in calls if call.status == 403}


def test_exoscale_role_lists_exactly_the_used_operations_and_suffices(
    named: str, bench: ExoscaleFixture
) -> None:
    calls = everything(bench)
    assert denied(calls) == set()
    assert {call.operation for call in calls} == operations(named)


@pytest.mark.parametrize(
    ("name", "missing"),
    [(name, each) for name in sorted(OURS) for each in sorted(operations(name) - OPTIONAL)],
)
def test_exoscale_each_operation_of_a_role_is_needed(name: str, missing: str) -> None:
    with bench_with(name, standalone=OURS[name], fewer=missing) as bench:
        with pytest.raises((AssertionError, Unauthorized)):
            everything(bench)
        assert missing in denied(bench.server.log)


@pytest.mark.parametrize(
    ("name", "missing"), [(name, each) for name in sorted(OURS) for each in sorted(OPTIONAL)]
)
def test_exoscale_refusal_of_an_optional_operation_stops_nothing(name: str, missing: str) -> None:
    with bench_with(name, standalone=OURS[name], fewer=missing) as bench:
        assert denied(everything(bench)) - {"list-sks-clusters"} == {missing}


@pytest.mark.parametrize("name", sorted(UPSTREAMS))
def test_exoscale_key_with_upstreams_operations_reads_and_scales(name: str) -> None:
    with bench_with(name, standalone=UPSTREAMS[name]) as bench:
        calls = everything(bench)
        assert denied(calls) <= BULK | {"list-sks-clusters", "reboot-instance"}
        assert denied(calls)
        assert {call.operation for call in calls if call.status == 200} <= operations(name)


@pytest.mark.parametrize("name", sorted({**OURS, **UPSTREAMS}))
def test_exoscale_document_defines_every_operation_of_a_role(name: str) -> None:
    text = (importlib.resources.files("exoscale") / "openapi.json").read_text("utf-8")
    assert operations(name) <= set(re.findall(r'"operationId"\s*:\s*"([a-z-]+)"', text))


def test_exoscale_role_separates_reads_from_changes() -> None:
    for name in (*OURS, *UPSTREAMS):
        reads, changes = (rule["expression"] for rule in rules(name))
        assert not re.search(r"scale-|evict-|reboot-", reads)
        assert not re.search(r"'(get|list)-", changes)


def test_exoscale_role_equals_upstreams_operations_plus_complete_lists_and_restarts() -> None:
    assert len(OURS) == 2
    for name in OURS:
        assert operations(name) - operations(f"{name}-as-upstream") == BULK | {"reboot-instance"}


@pytest.mark.parametrize("name", sorted(OURS))
def test_exoscale_key_without_permissions_is_refused_and_nothing_changes(name: str) -> None:
    with ExoscaleFixture(standalone=OURS[name], operations=frozenset()) as bench:
        group = bench.add_group("web", size=2)
        with pytest.raises(ProviderError) as raised:
            bench.provider().observe(bench.nodes())
        assert raised.value.error_class == "Unauthorized"
        outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 3))
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "Unauthorized"
        assert bench.target(group) == 2
        assert not [call for call in bench.server.log if call.status == 200]
