"""Calls that the deployed policies allow and refuse, checked one by one in the emulation's IAM."""

from __future__ import annotations

from contextlib import suppress

import pytest
from botocore.exceptions import ClientError

from infra.emulators import deployed_functions
from infra.emulators.iam import SUFFIX, IamRequest, Judge, Statement, arn, of_dynamodb, roles

TABLE = "outscaler"
STATE, POLICIES = arn("dynamodb", f"table/{TABLE}"), arn("dynamodb", f"table/{TABLE}-policies")
VENDORS = ("alicloud", "cherryservers", "clusterapi", "exoscale", "huaweicloud")
EXECUTORS = tuple(f"act_{name}" for name in VENDORS)
FUNCTIONS = ("api_handler", "tick", "reconcile", *EXECUTORS)
WRITES = ("PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem")


def _may(function: str, action: str, resource: str, *partitions: str) -> bool:
    judge = Judge(roles(TABLE, deployed_functions.queues()), lambda: function)
    with suppress(ClientError):
        judge.ask(IamRequest(action, resource, frozenset(partitions)))
    assert bool(judge.used) is not bool(judge.denied)
    return bool(judge.used)


def _readers(name: str) -> set[str]:
    resource = arn("secretsmanager", f"secret:{name}{SUFFIX}")
    return {
        function
        for function in FUNCTIONS
        if _may(function, "secretsmanager:GetSecretValue", resource)
    }


@pytest.mark.parametrize(
    ("name", "readers"),
    [
        ("outscaler/shop/webhook", {"api_handler"}),
        ("outscaler/shop/webhook-next", {"api_handler"}),
        ("outscaler/shop/webhook.old", {"api_handler"}),
        ("outscaler/shop/kubeconfig", {"reconcile", *EXECUTORS}),
        ("outscaler/shop/kubeconfig/blue", {"reconcile", *EXECUTORS}),
        *(
            (f"outscaler/shop/{vendor}{more}", {"reconcile", f"act_{vendor}"})
            for vendor in VENDORS
            for more in ("", "-bootstrap")
        ),
        *((f"outscaler/shared/{vendor}", {"reconcile", f"act_{vendor}"}) for vendor in VENDORS),
        ("outscaler/shop/other", set()),
        ("outscaler/webhook", set()),
        ("outscaler/webhook-shop/kubeconfig", {"reconcile", *EXECUTORS}),
        ("other/shop/webhook", set()),
    ],
)
def test_iam_secret_is_readable_only_by_functions_that_use_it(name: str, readers: set[str]) -> None:
    assert _readers(name) == readers


@pytest.mark.parametrize("function", FUNCTIONS)
def test_iam_no_function_writes_policies(function: str) -> None:
    for action in WRITES:
        assert not _may(function, f"dynamodb:{action}", POLICIES, "!policies"), action


def test_iam_api_function_writes_only_its_own_partition() -> None:
    put = "dynamodb:PutItem"
    assert _may("api_handler", put, STATE, "!web")
    assert not _may("api_handler", put, STATE, "shop")
    assert not _may("api_handler", put, STATE, "!web", "shop")
    assert not _may("api_handler", put, STATE), "a call that names no key"
    for action in ("UpdateItem", "DeleteItem", "ConditionCheckItem"):
        assert not _may("api_handler", f"dynamodb:{action}", STATE, "!web")


def test_iam_function_sends_only_to_the_queues_it_needs() -> None:
    sent = {
        function: {
            queue
            for queue in deployed_functions.queues()
            if _may(function, "sqs:SendMessage", arn("sqs", queue))
        }
        for function in FUNCTIONS
    }
    every = {"reconcile", *EXECUTORS}
    assert sent == {
        "api_handler": {"reconcile"},
        "tick": every,
        "reconcile": every,
        **{executor: {"reconcile", executor} for executor in EXECUTORS},
    }


def test_iam_function_receives_only_from_its_own_queue() -> None:
    taken = {
        function: {
            queue
            for queue in deployed_functions.queues()
            if _may(function, "sqs:ReceiveMessage", arn("sqs", queue))
        }
        for function in FUNCTIONS
    }
    assert taken == {
        "api_handler": set(),
        "tick": set(),
        "reconcile": {"reconcile"},
        **{executor: {executor} for executor in EXECUTORS},
    }


def test_iam_only_functions_that_reach_clusters_describe_eks_clusters() -> None:
    resource = "arn:aws:eks:eu-west-1:000000000000:cluster/shop"
    assert {
        function for function in FUNCTIONS if _may(function, "eks:DescribeCluster", resource)
    } == {
        "reconcile",
        *EXECUTORS,
    }


def test_iam_transaction_needs_the_permissions_of_its_parts() -> None:
    key = {"cluster": {"S": "shop"}, "item": {"S": "x"}}
    asked = list(
        of_dynamodb(
            "transact_write_items",
            {
                "TransactItems": [
                    {"Put": {"TableName": TABLE, "Item": key}},
                    {"ConditionCheck": {"TableName": TABLE, "Key": key}},
                ]
            },
        )
    )
    assert asked == [
        IamRequest("dynamodb:PutItem", STATE, frozenset({"shop"})),
        IamRequest("dynamodb:ConditionCheckItem", STATE, frozenset({"shop"})),
    ]


def test_iam_wildcard_spans_slashes() -> None:
    statement = Statement("Any", frozenset({"a:B"}), ("arn:x/*/webhook*",))
    assert statement.allows("a:B", "arn:x/shop/team/webhook-1", frozenset())
    assert not statement.allows("a:B", "arn:x/webhook", frozenset())
    assert not statement.allows("a:C", "arn:x/shop/webhook", frozenset())
