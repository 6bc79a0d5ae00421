"""Clusters and uses with a common name prefix: each secret belongs to one cluster, and only the
roles of its use read it."""

from __future__ import annotations

import itertools
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.net.vendor_hosts import VENDORS
from chalicelib.policy.secret_names import KUBECONFIG, WEBHOOK, problem
from infra.emulators.aws_services import QuickServices
from infra.emulators.iam import SUFFIX, Statement, arn, roles
from tests.cases import each_row

RECONCILERS = {"reconcile", "reconcile_large"}
EXECUTORS = {f"act_{vendor}" for vendor in VENDORS}
READERS: dict[str, set[str]] = {
    KUBECONFIG: {*RECONCILERS, *EXECUTORS},
    WEBHOOK: {"api_handler"},
    **{vendor: {*RECONCILERS, f"act_{vendor}"} for vendor in VENDORS},
}
QUEUES = ("reconcile", *sorted(EXECUTORS))
PREFIXES = ("outscaler/", "outscaler", "team-a/scaler/", "")
ALIKE = (
    "a",
    "a-b",
    "a-b-c",
    "b",
    "ab",
    "a0",
    "a--b",
    "webhook",
    "kubeconfig",
    "exoscale",
    "webhook-a",
    "a-webhook",
)
FURTHER = (
    "",
    "-b",
    ".b",
    "/b",
    "-observe",
    "/a/b",
    "-a/b.c",
    "/a-b/exo",
    "-kubeconfig",
    ".webhook",
)
cluster_names = st.from_regex(r"\A[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?\Z")


def may(name: str, cluster: str, use: str, prefix: str = "outscaler/") -> bool:
    """Tells whether a policy of that cluster may name the secret for that use."""
    return not problem(name, cluster, (use,), Deployment(secret_prefix=prefix))


@cache
def _roles(prefix: str) -> dict[str, tuple[Statement, ...]]:
    return roles(QuickServices().table, QUEUES, prefix)


def readers(name: str, prefix: str = "outscaler/") -> set[str]:
    """Returns the functions whose deployed roles allow them to read the secret."""
    resource = arn("secretsmanager", f"secret:{name}{SUFFIX}")
    return {
        function
        for function, statements in _roles(prefix).items()
        if any(
            each.allows("secretsmanager:GetSecretValue", resource, frozenset())
            for each in statements
        )
    }


@each_row("prefix", PREFIXES)
@each_row("use", READERS)
def test_secret_names_cluster_uses_no_secret_of_a_similarly_named_cluster(
    prefix: str, use: str
) -> None:
    for mine, theirs, further in itertools.product(ALIKE, ALIKE, FURTHER):
        assert may(f"{prefix}{theirs}/{use}{further}", mine, use, prefix) == (mine == theirs), (
            mine,
            theirs,
            further,
        )


@each_row(
    "name",
    ["a/b", "a.b", "a/", "/a", "a/exoscale", "a..b", "a-", "-a", "A", "a b", "a\n", "a*", "?"],
)
def test_secret_names_cluster_name_with_a_separator_is_invalid(name: str) -> None:
    for further in FURTHER:
        assert not may(f"outscaler/{name}/exoscale{further}", name, "exoscale")
        assert (
            not may(f"outscaler/{name}/exoscale{further}", "a", "exoscale") or name == "a/exoscale"
        )


@given(
    st.lists(cluster_names, min_size=2, max_size=2, unique=True),
    st.sampled_from(PREFIXES),
    st.sampled_from(sorted(READERS)),
    st.lists(st.sampled_from([*ALIKE, *READERS, "x"]), max_size=3),
    st.lists(st.sampled_from(["-", ".", "/", "", "//"]), min_size=3, max_size=3),
)
def test_secret_names_secret_belongs_to_at_most_one_cluster(
    clusters: list[str],
    prefix: str,
    use: str,
    words: list[str],
    between: list[str],
) -> None:
    tail = "".join(each + word for each, word in zip(between, words, strict=False))
    first = f"{prefix}{clusters[0]}"
    for name in (f"{first}{tail}", f"{first}/{use}{tail}", f"{first}/{clusters[1]}{tail}"):
        assert sum(may(name, cluster, use, prefix) for cluster in clusters) <= 1


@each_row("prefix", PREFIXES)
@each_row("use", READERS)
def test_secret_names_allowed_in_a_policy_are_read_only_by_roles_of_their_use(
    prefix: str, use: str
) -> None:
    for cluster, further in itertools.product(ALIKE, FURTHER):
        name = f"{prefix}{cluster}/{use}{further}"
        assert may(name, cluster, use, prefix)
        assert readers(name, prefix) == READERS[use], name


@each_row(
    ("name", "use"),
    [
        ("outscaler/a/kubeconfig/webhook", KUBECONFIG),
        ("outscaler/a/exoscale/webhook-x", "exoscale"),
        ("outscaler/a/exoscale-x/kubeconfig", "exoscale"),
        ("outscaler/a/webhook/x/alicloud.y", WEBHOOK),
        ("outscaler/a/kubeconfig/webhooks", KUBECONFIG),
    ],
)
def test_secret_names_naming_two_uses_are_refused(name: str, use: str) -> None:
    assert readers(name) > READERS[use]  # the roles of the second use could also read it
    assert not may(name, "a", use)
    assert problem(name, "a", (use,), Deployment(shared_secrets=frozenset({name})))


def test_secret_names_same_use_twice_is_one_use() -> None:
    assert problem("outscaler/a/exoscale/exoscale-2", "a", ("exoscale",), STRICT) == ""
