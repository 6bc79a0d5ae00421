"""AWS permissions as far as the functions' policy files use them: evaluates which function may call
what, on which resource.

Policies are read as they are deployed (`infra/aws/policies`), with the emulation's names instead of
the template's. A call that no statement allows is refused as AWS refuses it, and recorded. Allowed
calls are recorded as well, so that unused permissions can be found. Policy elements that this
module does not support (Deny, NotAction, other conditions) are an error, because a policy must not
be read as wider or narrower than it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from chalicelib.store.tables import policy_table_of
from infra.emulators.lambda_events import ACCOUNT, REGION

POLICIES = Path(__file__).resolve().parents[1] / "aws" / "policies"
SUFFIX = "-a1B2c3"
"""The suffix that Secrets Manager appends to a secret's name in its ARN."""
LEADING_KEYS = "dynamodb:LeadingKeys"

_FUNCTIONS = {"api": "api_handler"}  # Chalice's name of the function of all routes

_ONLY_THESE = {"ForAllValues:StringEquals", "Null"}
_TRANSACTION = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}


class Statement(msgspec.Struct, frozen=True):
    """resources: patterns of ARNs. partitions: the only partition keys it allows, None for all."""

    sid: str
    actions: frozenset[str]
    resources: tuple[str, ...]
    partitions: frozenset[str] | None = None

    def allows(self, action: str, resource: str, partitions: frozenset[str]) -> bool:
        """Return whether a call is covered. partitions: the partition keys in it."""
        return (
            action in self.actions
            and any(matches(pattern, resource) for pattern in self.resources)
            and (self.partitions is None or (bool(partitions) and partitions <= self.partitions))
        )


class IamRequest(msgspec.Struct, frozen=True):
    """One action on a resource that needs permission."""

    action: str
    resource: str
    partitions: frozenset[str] = frozenset()


@lru_cache(maxsize=4096)
def matches(pattern: str, resource: str) -> bool:
    """Match IAM's wildcards: `*` is any text, including slashes and colons; `?` is one
    character."""
    return (
        re.fullmatch(
            "".join({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in pattern),
            resource,
            re.DOTALL,
        )
        is not None
    )


def arn(service: str, name: str, account: str = ACCOUNT) -> str:
    return f"arn:aws:{service}:{REGION}:{account}:{name}"


def policy_files() -> dict[str, Path]:
    return {_FUNCTIONS.get(file.stem, file.stem): file for file in sorted(POLICIES.glob("*.json"))}


def statements(
    file: Path, arns: Mapping[str, str], names: Mapping[str, str]
) -> tuple[Statement, ...]:
    """Read a policy file. arns: logical id -> ARN, for Fn::GetAtt. names:
    replacements of Fn::Sub."""

    def resolved(resource: Mapping[str, Any]) -> str:
        if "Fn::GetAtt" in resource:
            logical, attribute = resource["Fn::GetAtt"]
            assert attribute == "Arn"
            return arns[logical]
        return re.sub(r"\$\{([^}]*)\}", lambda found: names[found[1]], resource["Fn::Sub"])

    return _statements(json.loads(file.read_text("utf-8")), resolved)


def literal_statements(document: Mapping[str, Any]) -> tuple[Statement, ...]:
    """Read a policy in IAM's form: resources are patterns of ARNs, such as
    `arn:*:sqs:*:*:outscaler-dev-reconcile`."""
    return _statements(document, str)


def _statements(
    document: Mapping[str, Any], resolved: Callable[[Any], str]
) -> tuple[Statement, ...]:
    def read(given: Mapping[str, Any]) -> Statement:
        assert given["Effect"] == "Allow"
        assert given.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}, given.keys()
        actions = frozenset(_listed(given["Action"]))
        assert not any("*" in action for action in actions), actions
        return Statement(
            given["Sid"],
            actions,
            tuple(map(resolved, _listed(given["Resource"]))),
            _partitions(given.get("Condition")),
        )

    return tuple(read(given) for given in document["Statement"])


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _partitions(condition: Mapping[str, Any] | None) -> frozenset[str] | None:
    """Return the partition keys of a condition. ForAllValues alone also matches a call without any
    key; a Null condition excludes that."""
    if condition is None:
        return None
    assert condition.keys() == _ONLY_THESE, condition
    assert condition["Null"] == {LEADING_KEYS: "false"}
    return frozenset(condition["ForAllValues:StringEquals"][LEADING_KEYS])


def roles(
    table: str, queues: Iterable[str], prefix: str = "outscaler/"
) -> dict[str, tuple[Statement, ...]]:
    """Return function -> its policy, for an emulation with this state table and these queues."""
    arns = {
        "StateTable": arn("dynamodb", f"table/{table}"),
        "PolicyTable": arn("dynamodb", f"table/{policy_table_of(table)}"),
    }
    arns |= {
        "".join(part.capitalize() for part in name.split("_")) + "Queue": arn("sqs", name)
        for name in queues
    }
    arns["ReconcileLarge"] = arn("lambda", "function:reconcile_large")
    names = {
        "AWS::Partition": "aws",
        "AWS::Region": REGION,
        "AWS::AccountId": ACCOUNT,
        "SecretPrefix": prefix,
        "EksClusters": "*",
    }
    return {function: statements(file, arns, names) for function, file in policy_files().items()}


class Judge:
    """Evaluates permissions. roles: function -> its statements. current: the running function.

    denied: refused calls with the function. used: allowed calls, as the function
    and its statement's sid.
    """

    def __init__(
        self, given: Mapping[str, Sequence[Statement]], current: Callable[[], str]
    ) -> None:
        self.roles, self._current = given, current
        self.denied: list[tuple[str, IamRequest]] = []
        self.used: set[tuple[str, str, IamRequest]] = set()

    def ask(self, asked: IamRequest) -> None:
        """Raise ClientError AccessDeniedException unless a statement allows the call."""
        function = self._current()
        for statement in self.roles[function]:
            if statement.allows(asked.action, asked.resource, asked.partitions):
                self.used.add((function, statement.sid, asked))
                return
        self.denied.append((function, asked))
        message = (
            f"{function} is not authorized to perform: {asked.action} on resource: {asked.resource}"
        )
        raise ClientError(
            {"Error": {"Code": "AccessDeniedException", "Message": message}}, asked.action
        )


class Judged:
    """A botocore client whose calls are checked by the judge. needs: method, arguments
    -> required permissions."""

    def __init__(
        self,
        client: Any,
        judge: Judge,
        needs: Callable[[str, Mapping[str, Any]], Iterator[IamRequest]],
    ) -> None:
        self._client, self._judge, self._needs = client, judge, needs

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._client, method)
        if not callable(found):
            return found

        def call(**arguments: Any) -> Any:
            for asked in self._needs(method, arguments):
                self._judge.ask(asked)
            return found(**arguments)

        return call


class JudgedSender:
    """A Sender whose calls are checked by the judge."""

    def __init__(self, sender: Any, judge: Judge) -> None:
        self._sender, self._judge = sender, judge

    def send(self, queue: str, body: bytes, delay: int) -> None:
        self._judge.ask(IamRequest("sqs:SendMessage", arn("sqs", queue)))
        self._sender.send(queue, body, delay)


def of_dynamodb(
    method: str, arguments: Mapping[str, Any], account: str = ACCOUNT
) -> Iterator[IamRequest]:
    """Yield the permissions of a DynamoDB call. A transaction needs those of its parts."""
    if method == "transact_write_items":
        for item in arguments["TransactItems"]:
            [(kind, given)] = item.items()
            yield _on_table(
                _TRANSACTION[kind], given["TableName"], [given.get("Key") or given["Item"]], account
            )
    elif method == "batch_get_item":
        for table, given in arguments["RequestItems"].items():
            yield _on_table("BatchGetItem", table, given["Keys"], account)
    elif method == "query":
        values = arguments["ExpressionAttributeValues"]
        yield _on_table("Query", arguments["TableName"], [{"cluster": values[":cluster"]}], account)
    else:
        action = "".join(part.capitalize() for part in method.split("_"))
        yield _on_table(
            action, arguments["TableName"], [arguments.get("Key") or arguments["Item"]], account
        )


def _on_table(
    action: str, table: str, keys: Sequence[Mapping[str, Any]], account: str
) -> IamRequest:
    partitions = frozenset(key["cluster"]["S"] for key in keys)
    return IamRequest(f"dynamodb:{action}", arn("dynamodb", f"table/{table}", account), partitions)


def of_secrets(
    method: str, arguments: Mapping[str, Any], account: str = ACCOUNT
) -> Iterator[IamRequest]:
    if method == "get_parameter":
        yield IamRequest("ssm:GetParameter", arn("ssm", f"parameter{arguments['Name']}"))
        return
    assert method == "get_secret_value"
    name = f"secret:{arguments['SecretId']}{SUFFIX}"
    yield IamRequest("secretsmanager:GetSecretValue", arn("secretsmanager", name, account))
