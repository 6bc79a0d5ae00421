"""The RAM policy in infra/alicloud lists exactly the actions that the provider uses, and it
suffices for all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from chalicelib.cli.doctor.finding import DoctorContext
from chalicelib.cli.doctor.vendor_checks import check_permissions
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.policy.settings.cluster_policy import Policy as OutscalerPolicy
from chalicelib.providers.alicloud.credentials import of_this_process
from chalicelib.providers.kit.errors import Unauthorized
from infra.emulators.alicloud.dispatcher import AlicloudLoggedRequest
from infra.emulators.alicloud.iam import Policy, Role, read_policy
from infra.emulators.alicloud.models import NO_STOCK, AlicloudDurations
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.operations import ask
from tests.providers.alicloud.fixture import AlicloudBench, drive, order, seen

FOLDER = Path(__file__).parents[3] / "infra" / "alicloud"
ROLE_ARN = "acs:ram::1000000000000001:role/outscaler"


UPSTREAM = json.dumps(
    {
        "Version": "1",
        "Statement": [
            {
                "Action": [
                    "ess:Describe*",
                    "ess:CreateScalingRule",
                    "ess:ModifyScalingGroup",
                    "ess:RemoveInstances",
                    "ess:ExecuteScalingRule",
                    "ess:ModifyScalingRule",
                    "ess:DeleteScalingRule",
                    "ess:DetachInstances",
                    "ecs:DescribeInstanceTypes",
                ],
                "Resource": ["*"],
                "Effect": "Allow",
            }
        ],
    }
)
"""The RAM policy in the documentation of Cluster Autoscaler for this provider."""


def policy(name: str) -> Policy:
    return read_policy((FOLDER / name).read_text())


def actions(held: Policy) -> set[str]:
    return {action for statement in held.statements for action in statement.actions}


def whole_policy() -> Policy:
    """Returns the policy of all functions: that of every key, and that of keys
    which may restart instances."""
    return Policy(
        (*policy("ram-policy.json").statements, *policy("ram-policy-restart.json").statements)
    )


@pytest.fixture
def bench() -> Iterator[AlicloudBench]:
    of_this_process.cache_clear()
    with AlicloudBench() as made:
        made.server.ring.keys[made.key_id].permissions = whole_policy()
        yield made
    of_this_process.cache_clear()


def everything(bench: AlicloudBench) -> list[AlicloudLoggedRequest]:
    """Runs every function of the provider and returns the calls that it made."""
    group, spot = bench.add_group("g", size=2), bench.add_spot_group("spot", size=1)
    template = bench.cloud.add_group("from-template", template=True)
    bench.bind(template.id, 0, 5)
    several = bench.cloud.add_group("several", zones=("cn-hangzhou-h", "cn-hangzhou-i"))
    bench.bind(several.id, 0, 5)
    assert seen(bench, several.id).zones == ("cn-hangzhou-h", "cn-hangzhou-i")
    assert not seen(bench, group).template_error
    assert not seen(bench, template.id).template_error
    assert seen(bench, group).price
    assert seen(bench, spot).interruption_rate
    assert not [
        gap for gap in bench.provider().observe(bench.nodes()).gaps if gap.kind == "Interruption"
    ]
    assert isinstance(
        drive(bench, order(bench, OperationKind.SCALE_UP, group, 2, 3, op="a-0123456789abcdef")),
        Succeeded,
    )
    bench.cloud.spoil(group, NO_STOCK, 1)
    assert isinstance(
        drive(bench, order(bench, OperationKind.SCALE_UP, group, 3, 4, op="b-0123456789abcdef")),
        Failed,
    )
    broken = [each.handle for each in seen(bench, group).instances if each.error]
    assert isinstance(
        drive(
            bench,
            order(
                bench, OperationKind.DELETE_INSTANCES, group, 4, 3, *broken, op="c-0123456789abcdef"
            ),
        ),
        Succeeded,
    )
    first = bench.machines(group)[0]
    operation = order(
        bench, OperationKind.DELETE_NODES, group, 3, 2, first, op="d-0123456789abcdef"
    )
    assert bench.provider().cancel_delete(operation)
    assert isinstance(drive(bench, operation), Succeeded)
    bench.cloud.groups[group].desired = 4
    assert isinstance(
        drive(
            bench, order(bench, OperationKind.DECREASE_TARGET, group, 4, 2, op="e-0123456789abcdef")
        ),
        Succeeded,
    )
    (first,) = bench.machines(spot)
    assert isinstance(
        drive(
            bench,
            order(bench, OperationKind.RESTART_NODE, spot, 1, 1, first, op="f-0123456789abcdef"),
        ),
        Succeeded,
    )
    return bench.look()


def test_alicloud_ram_policy_lists_exactly_the_used_actions_and_suffices(
    bench: AlicloudBench,
) -> None:
    calls = everything(bench)
    assert not [call.line for call in calls if call.code == "Forbidden.RAM"]
    assert {call.permission for call in calls} == actions(whole_policy())
    assert actions(policy("ram-policy-restart.json")) == {"ecs:RebootInstance"}


@pytest.mark.parametrize("missing", sorted(actions(whole_policy())))
def test_alicloud_each_action_of_the_ram_policy_is_needed(
    bench: AlicloudBench, missing: str
) -> None:
    held = whole_policy()
    fewer = tuple(
        msgspec.structs.replace(
            each, actions=tuple(name for name in each.actions if name != missing)
        )
        for each in held.statements
    )
    bench.server.ring.keys[bench.key_id].permissions = Policy(fewer)
    with pytest.raises((AssertionError, Unauthorized)):
        everything(bench)
    assert [
        call
        for call in bench.server.log
        if call.permission == missing and call.code == "Forbidden.RAM"
    ]


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


def test_alicloud_restarts_are_permitted_by_a_policy_of_their_own() -> None:
    assert not any(name.endswith("RebootInstance") for name in actions(policy("ram-policy.json")))
    assert policy("ram-policy-restart.json").allows(
        "ecs:RebootInstance", "acs:ecs:cn-hangzhou:1000000000000001:instance/i-1"
    )


def test_alicloud_key_that_only_assumes_a_role_with_the_policy_suffices(
    bench: AlicloudBench,
) -> None:
    key = bench.server.ring.keys[bench.key_id]
    key.permissions = policy("assume-role-policy.json")
    bench.server.ring.roles[ROLE_ARN] = Role(ROLE_ARN, frozenset({bench.key_id}), whole_policy())
    bench.settings["roleArn"] = ROLE_ARN
    calls = everything(bench)
    assert {call.permission for call in calls if call.key == bench.key_id} == {"sts:AssumeRole"}
    assert not [call.line for call in calls if call.code == "Forbidden.RAM"]


@pytest.mark.parametrize(
    ("name", "kind"), [("trust-access-key.json", "RAM"), ("trust-oidc.json", "Federated")]
)
def test_alicloud_trust_policy_examples_name_exactly_one_principal(name: str, kind: str) -> None:
    document = json.loads((FOLDER / name).read_text())
    [statement] = document["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "sts:AssumeRole")
    [principal] = statement["Principal"][kind]
    assert principal.startswith("acs:ram::1000000000000001:")
    if kind == "Federated":
        assert set(statement["Condition"]["StringEquals"]) == {"oidc:aud", "oidc:iss", "oidc:sub"}


@pytest.fixture
def upstream(bench: AlicloudBench) -> AlicloudBench:
    """A bench whose key has the rights that Cluster Autoscaler's
    documentation lists, and no others."""
    bench.server.ring.keys[bench.key_id].permissions = read_policy(UPSTREAM)
    return bench


def changes(bench: AlicloudBench) -> list[str]:
    """Returns the changes that were accepted, in order."""
    return [call.action for call in bench.server.log if call.writes and not call.code]


def test_alicloud_upstreams_ram_policy_suffices_to_grow_and_to_shrink_a_group(
    upstream: AlicloudBench,
) -> None:
    bench = upstream
    group = bench.add_group("g", size=1)
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 4)), Succeeded)
    assert (bench.target(group), len(bench.machines(group))) == (4, 4)
    first = bench.machines(group)[0]
    operation = order(
        bench, OperationKind.DELETE_NODES, group, 4, 3, first, op="d-0123456789abcdef"
    )
    assert bench.provider().cancel_delete(operation)
    assert isinstance(drive(bench, operation), Succeeded)
    assert (bench.target(group), len(bench.machines(group))) == (3, 3)
    bench.cloud.groups[group].desired = 5
    lowered = order(bench, OperationKind.DECREASE_TARGET, group, 5, 3, op="e-0123456789abcdef")
    assert isinstance(drive(bench, lowered), Succeeded)
    assert changes(bench) == ["ModifyScalingGroup", "RemoveInstances", "ModifyScalingGroup"]
    bench.settle(100_000.0)
    assert (bench.target(group), len(bench.machines(group))) == (3, 3)


def test_alicloud_growth_without_ids_is_not_repeated_by_killed_functions(
    upstream: AlicloudBench,
) -> None:
    bench = upstream
    group = bench.add_group("g", size=1)
    operation = order(bench, OperationKind.SCALE_UP, group, 1, 3)
    first = ask(bench.provider(), operation)
    assert isinstance(first, InProgress)
    # the first answer was lost with its function
    assert isinstance(ask(bench.provider(), operation), Succeeded)
    bench.settle(5.0)
    for _ in range(3):  # each message twice, with the data of the first attempt or without them
        ask(bench.provider(), operation.with_status(step=first.step, data=first.data))
        ask(bench.provider(), operation)
        bench.settle(20.0)
    assert isinstance(
        drive(bench, operation.with_status(step=first.step, data=first.data)), Succeeded
    )
    bench.settle(100_000.0)
    assert (bench.target(group), len(bench.machines(group))) == (3, 3)
    assert [each.wanted for each in bench.cloud.groups[group].activities] == [2]


def test_alicloud_lost_answer_of_a_changed_number_buys_nothing_twice(
    upstream: AlicloudBench,
) -> None:
    bench = upstream
    group = bench.add_group("g", size=0)
    bench.server.faults.next(VendorFault.LOST_ANSWER, on="ModifyScalingGroup")
    assert isinstance(drive(bench, order(bench, OperationKind.SCALE_UP, group, 0, 2)), Succeeded)
    assert changes(bench) == ["ModifyScalingGroup", "ModifyScalingGroup"]
    bench.settle(100_000.0)
    assert (bench.target(group), len(bench.machines(group))) == (2, 2)


@pytest.mark.parametrize("check", [1.0, 30.0, 7200.0])
def test_alicloud_failed_growth_with_upstreams_rights_takes_its_number_back(check: float) -> None:
    with AlicloudBench(times=AlicloudDurations(check=check)) as bench:
        bench.server.ring.keys[bench.key_id].permissions = read_policy(UPSTREAM)
        group = bench.add_group("g", size=1)
        bench.cloud.spoil(group, NO_STOCK, 1000)
        outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 4))
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "OutOfStock"
        bench.calm()
        bench.settle(100_000.0)
        assert (bench.target(group), len(bench.machines(group))) == (1, 1)


def test_alicloud_partly_failed_growth_with_upstreams_rights_keeps_what_came(
    upstream: AlicloudBench,
) -> None:
    bench = upstream
    group = bench.add_group("g", size=1)
    bench.cloud.spoil(group, NO_STOCK, 1)
    outcome = drive(bench, order(bench, OperationKind.SCALE_UP, group, 1, 4))
    assert isinstance(outcome, Failed)
    assert outcome.facts["created"] == 2
    bench.settle(100_000.0)
    assert (bench.target(group), len(bench.machines(group))) == (3, 3)


def test_alicloud_number_of_somebody_else_is_not_taken_back(upstream: AlicloudBench) -> None:
    bench = upstream
    group = bench.add_group("g", size=1)
    bench.cloud.spoil(group, NO_STOCK, 2)
    operation = order(bench, OperationKind.SCALE_UP, group, 1, 3)
    first = ask(bench.provider(), operation)
    assert isinstance(first, InProgress)
    bench.settle(60.0)
    bench.cloud.groups[group].desired = 6
    assert isinstance(drive(bench, operation.with_status(step=first.step, data=first.data)), Failed)
    assert bench.target(group) == 6


def test_alicloud_group_without_a_desired_number_names_the_right_that_it_needs() -> None:
    with AlicloudBench(desired=False) as bench:
        bench.server.ring.keys[bench.key_id].permissions = read_policy(UPSTREAM)
        group = bench.add_group("g", size=1)
        outcome = ask(bench.provider(), order(bench, OperationKind.SCALE_UP, group, 1, 2))
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "Unauthorized"
        assert "grant ess:ScaleWithAdjustment" in outcome.message
        assert "expected number of instances" in outcome.message
        assert changes(bench) == []


def test_doctor_names_the_rights_that_a_key_of_upstream_lacks(bench: AlicloudBench) -> None:
    context = DoctorContext(
        policy=OutscalerPolicy(name="prod", providers={"alicloud": {}}),
        clock=bench.now,
        read_secret=lambda name: name,
    )
    (finding,) = check_permissions(context)
    assert "ess:ScaleWithAdjustment" in finding.fix
    assert "docs/providers/alicloud.md" in finding.fix
    assert "ecs:DescribeInstances" not in finding.fix
