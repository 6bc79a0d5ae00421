"""The RAM policy in infra/alicloud lists exactly the actions that the provider uses, and it suffices for all of
them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.providers.alicloud.credentials import of_this_process
from chalicelib.providers.errors import Unauthorized
from infra.emulators.alicloud.dispatcher import AlicloudLoggedRequest
from infra.emulators.alicloud.iam import Policy, Role, read_policy
from infra.emulators.alicloud.models import NO_STOCK
from tests.contract.alicloud.fixtures import drive, order, seen
from tests.contract.provider_fixtures.alicloud import AlicloudBench

FOLDER = Path(__file__).parents[3] / "infra" / "alicloud"
ROLE_ARN = "acs:ram::1000000000000001:role/outscaler"


def policy(name: str) -> Policy:
    return read_policy((FOLDER / name).read_text())


def actions(held: Policy) -> set[str]:
    return {action for statement in held.statements for action in statement.actions}


@pytest.fixture
def bench() -> Iterator[AlicloudBench]:
    of_this_process.cache_clear()
    with AlicloudBench() as made:
        made.server.ring.keys[made.key_id].permissions = policy("ram-policy.json")
        yield made
    of_this_process.cache_clear()


def everything(bench: AlicloudBench) -> list[AlicloudLoggedRequest]:
    """Runs every function of the provider and returns the calls that it made."""
    group = bench.add_group("g", size=2)
    template = bench.cloud.add_group("from-template", template=True)
    bench.bind(template.id, 0, 5)
    assert not seen(bench, group).template_error
    assert not seen(bench, template.id).template_error
    assert isinstance(
        drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 3, op="a-0123456789abcdef")), Succeeded
    )
    bench.cloud.spoil(group, NO_STOCK, 1)
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 3, 4, op="b-0123456789abcdef")), Failed)
    broken = [each.handle for each in seen(bench, group).instances if each.error]
    assert isinstance(
        drive(bench, order(bench, OperationKind.DELETE_INSTANCES, group, 4, 3, *broken, op="c-0123456789abcdef")),
        Succeeded,
    )
    first = bench.machines(group)[0]
    operation = order(bench, OperationKind.DELETE_NODES, group, 3, 2, first, op="d-0123456789abcdef")
    assert bench.provider().release(operation)
    assert isinstance(drive(bench, operation), Succeeded)
    bench.cloud.groups[group].desired = 4
    assert isinstance(
        drive(bench, order(bench, OperationKind.DECREASE_TARGET, group, 4, 2, op="e-0123456789abcdef")), Succeeded
    )
    return bench.look()


def test_alicloud_ram_policy_lists_exactly_the_used_actions_and_suffices(bench: AlicloudBench) -> None:
    calls = everything(bench)
    assert not [call.line for call in calls if call.code == "Forbidden.RAM"]
    assert {call.permission for call in calls} == actions(policy("ram-policy.json"))


@pytest.mark.parametrize("missing", sorted(actions(policy("ram-policy.json"))))
def test_alicloud_each_action_of_the_ram_policy_is_needed(bench: AlicloudBench, missing: str) -> None:
    held = policy("ram-policy.json")
    fewer = tuple(
        msgspec.structs.replace(each, actions=tuple(name for name in each.actions if name != missing))
        for each in held.statements
    )
    bench.server.ring.keys[bench.key_id].permissions = Policy(fewer)
    with pytest.raises((AssertionError, Unauthorized)):
        everything(bench)
    assert [call for call in bench.server.log if call.permission == missing and call.code == "Forbidden.RAM"]


def test_alicloud_ram_policy_limits_changes_to_selectable_scaling_groups() -> None:
    document = json.loads((FOLDER / "ram-policy.json").read_text())
    reads, writes = document["Statement"]
    assert {name.partition(":")[2].startswith("Describe") for name in reads["Action"]} == {True}
    assert writes["Resource"] == "acs:ess:*:*:scalinggroup/*"
    writes["Resource"] = ["acs:ess:cn-hangzhou:1000000000000001:scalinggroup/asg-ours"]
    narrowed = read_policy(json.dumps(document))
    account = "acs:ess:cn-hangzhou:1000000000000001:scalinggroup"
    assert narrowed.allows("ess:RemoveInstances", f"{account}/asg-ours")
    assert not narrowed.allows("ess:RemoveInstances", f"{account}/asg-theirs")


def test_alicloud_key_that_only_assumes_a_role_with_the_policy_suffices(bench: AlicloudBench) -> None:
    key = bench.server.ring.keys[bench.key_id]
    key.permissions = policy("assume-role-policy.json")
    bench.server.ring.roles[ROLE_ARN] = Role(ROLE_ARN, frozenset({bench.key_id}), policy("ram-policy.json"))
    bench.settings["roleArn"] = ROLE_ARN
    calls = everything(bench)
    assert {call.permission for call in calls if call.key == bench.key_id} == {"sts:AssumeRole"}
    assert not [call.line for call in calls if call.code == "Forbidden.RAM"]


@pytest.mark.parametrize(("name", "kind"), [("trust-access-key.json", "RAM"), ("trust-oidc.json", "Federated")])
def test_alicloud_trust_policy_examples_name_exactly_one_principal(name: str, kind: str) -> None:
    document = json.loads((FOLDER / name).read_text())
    [statement] = document["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "sts:AssumeRole")
    [principal] = statement["Principal"][kind]
    assert principal.startswith("acs:ram::1000000000000001:")
    if kind == "Federated":
        assert set(statement["Condition"]["StringEquals"]) == {"oidc:aud", "oidc:iss", "oidc:sub"}
