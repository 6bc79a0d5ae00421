"""Ownership of secrets, decided by their names alone."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.policy.admission import Admission, Purpose
from chalicelib.policy.load import load
from chalicelib.policy.secret_names import ClusterSecrets, never, problem
from tests.cases import each_row
from tests.unit.policy.policy_documents import GOOD

SHARED = Deployment(
    shared_secrets=frozenset({"outscaler/shared/exoscale", "elsewhere/exoscale-ro"})
)


@each_row(
    "name",
    [
        "outscaler/prod/exoscale",
        "outscaler/prod/exoscale-observe",
        "outscaler/prod/exoscale.old",
        "outscaler/prod/exoscale/eu/1",
        "outscaler/prod/exoscale-a_b+c=d@e",
    ],
)
def test_secret_names_cluster_uses_the_secrets_named_after_it(name: str) -> None:
    assert problem(name, "prod", ("exoscale",), STRICT) == ""


@each_row(
    "name",
    [
        "outscaler/other/exoscale",
        "outscaler/prod-eu/exoscale",
        "outscaler/pro/exoscale",
        "outscaler/prodexoscale",
        "outscaler/prod/exoscaleother",
        "outscaler/prod/exoscale_x",
        "outscaler/prod/kubeconfig",
        "outscaler/prod",
        "outscaler/prod/",
        "outscaler/prod//exoscale",
        "outscaler/prod/x/exoscale",
        "x/outscaler/prod/exoscale",
        "outscaler/prod/exoscale/../../other/exoscale",
        "outscaler/prod/exoscale..",
        "Outscaler/prod/exoscale",
        "outscaler/PROD/exoscale",
        "outscaler/prod/exoscale\n",
        "outscaler/prod/exoscale x",
        "",
        "exoscale",
        "arn:aws:secretsmanager:eu-central-2:123456789012:secret:outscaler/prod/exoscale-Q1w2E3",
        "outscaler/shared/exoscale-other",
        "outscaler/shared/exoscale/x",
    ],
)
def test_secret_names_of_other_forms_are_not_a_clusters_own(name: str) -> None:
    assert problem(name, "prod", ("exoscale",), SHARED)


@each_row("cluster", ["prod/exoscale", "", "-", "..", "PROD", "a" * 64, "prod/x", "*"])
def test_secret_names_invalid_cluster_name_has_no_secrets(cluster: str) -> None:
    """A stored row can have any cluster name."""
    assert problem(f"outscaler/{cluster}/exoscale", cluster, ("exoscale",), STRICT)


def test_secret_names_of_clusters_with_a_common_prefix_are_distinct() -> None:
    for mine, theirs in (("a", "a-b"), ("a-b", "a"), ("a", "ab")):
        assert problem(f"outscaler/{theirs}/webhook", mine, ("webhook",), STRICT)


def test_secret_names_shared_secrets_serve_every_cluster_for_their_use() -> None:
    for cluster in ("prod", "other", "shared"):
        assert problem("outscaler/shared/exoscale", cluster, ("exoscale",), SHARED) == ""
        assert problem("elsewhere/exoscale-ro", cluster, ("exoscale",), SHARED) == ""
        assert problem("outscaler/shared/exoscale", cluster, ("kubeconfig",), SHARED)


def test_secret_names_cluster_called_shared_has_only_its_own_secrets() -> None:
    assert problem("outscaler/shared/webhook", "shared", ("webhook",), SHARED) == ""
    assert problem("outscaler/prod/webhook", "shared", ("webhook",), SHARED)


def test_secret_names_wrong_in_every_deployment_are_refused_without_one() -> None:
    assert never("outscaler/prod/exoscale", ("kubeconfig",))
    assert never(
        "arn:aws:secretsmanager:eu-central-2:123456789012:secret:a/exoscale", ("exoscale",)
    )
    assert not never("any/prefix/of/prod/exoscale-x", ("exoscale",))


def test_secret_names_use_the_prefix_of_the_deployment() -> None:
    team = Deployment(secret_prefix="team-a/scaler-")
    assert problem("team-a/scaler-prod/exoscale", "prod", ("exoscale",), team) == ""
    assert problem("outscaler/prod/exoscale", "prod", ("exoscale",), team)


def test_secret_names_reader_requests_no_other_name_cached_or_not() -> None:
    asked: list[str] = []

    class Reader:
        def __call__(self, name: str) -> str:
            asked.append(name)
            return "cached"

        def fresh(self, name: str) -> str:
            asked.append(name)
            return "fresh"

    mine = ClusterSecrets(Reader(), "prod", ("exoscale",), STRICT)
    assert (mine("outscaler/prod/exoscale"), mine.fresh("outscaler/prod/exoscale")) == (
        "cached",
        "fresh",
    )
    for read in (mine, mine.fresh):
        with pytest.raises(BadInput, match="is not a secret of cluster prod"):
            read("outscaler/other/exoscale")
    assert asked == ["outscaler/prod/exoscale"] * 2
    plain = ClusterSecrets(lambda name: f"read {name}", "prod", ("exoscale",), STRICT)
    assert plain.fresh("outscaler/prod/exoscale") == "read outscaler/prod/exoscale"


def test_secret_of_an_unknown_prefix_is_refused_where_the_document_is_stored() -> None:
    text = GOOD.replace("outscaler/prod-geneva/kubeconfig", "elsewhere/prod-geneva/kubeconfig")
    unknown = Deployment(prefix_known=False)
    for refusing in (Admission(unknown), Admission(STRICT, Purpose.VALIDATED)):
        with pytest.raises(InputErrors, match=r"spec\.kubernetes\.kubeconfigSecret"):
            load(text, place="p.yaml", admission=refusing)
    _, warnings = load(text, place="p.yaml", admission=Admission(unknown, Purpose.VALIDATED))
    assert any(
        "outscaler apply refuses this unless the deployment shares it" in warning
        for warning in warnings
    )
    assert load(text, place="p.yaml", admission=Admission(unknown, Purpose.PLANNED))[1] == ()
