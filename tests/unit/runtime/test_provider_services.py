"""The services that a provider receives in addition to its settings: rate limiter, cache, wait
limit, and other clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from chalicelib.cluster.client import KubeClient
from chalicelib.model.errors import BadInput
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.providers import registry
from chalicelib.providers.kit.base import Provider
from chalicelib.providers.kit.services import ProviderServices
from chalicelib.runtime.runtime import Runtime, build
from chalicelib.store import Store
from infra.emulators.aws_faults import FunctionKilled, Life
from infra.emulators.aws_services import Account, QuickServices
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.memory_table import MemoryAccount

WAY = KubernetesAccess(kubeconfig_secret="outscaler/c/clusterapi")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[ProviderServices]:
    """Returns the services that the registry was given, in order."""
    seen: list[ProviderServices] = []

    def providers(
        policy: Policy, kube: object, secret: object, now: object, means: ProviderServices
    ) -> Sequence[Provider]:
        del policy, kube, secret, now
        seen.append(means)
        return ()

    monkeypatch.setattr(registry, "providers", providers)
    return seen


def _store(clock: ManualClock) -> Store:
    return MemoryAccount().store("t", clock=clock)


def _asked(rt: Runtime) -> None:
    rt.providers(
        Policy(name="c", providers={"clusterapi": {}}), cast(KubeClient, None), rt.read_secret
    )


def test_providers_share_the_tables_rate_limits_and_cache(given: list[ProviderServices]) -> None:
    clock, slept = ManualClock(1000.0), list[float]()
    store = _store(clock)
    made = build(
        clock=clock,
        store=store,
        sender=cast(Any, None),
        read_secret=str,
        sleep=slept.append,
        chance=lambda: 0.25,
    )
    _asked(made)
    (means,) = given
    assert means.rate_limiter is store.rate_limits
    assert means.cache is store.cache
    means.sleep(2.0)
    assert (slept, means.chance()) == ([2.0], 0.25)


def test_management_cluster_uses_the_same_secrets_and_wait_limit(
    given: list[ProviderServices],
) -> None:
    clock = ManualClock(1000.0)
    with ApiServer(ObjectStore(clock)) as server:
        made = build(
            clock=clock,
            store=_store(clock),
            sender=cast(Any, None),
            read_secret={"outscaler/c/clusterapi": server.kubeconfig()}.__getitem__,
            sleep=clock.advance,
        )
        _asked(made)
        there = cast(KubeClient, given[0].connect(WAY))
        assert b'"Namespace' in there.request("GET", "/api/v1/namespaces")
        with pytest.raises(BadInput, match="how to reach the cluster"):
            given[0].connect(KubernetesAccess())


def test_emulated_account_waits_virtually_and_only_as_long_as_the_function(
    given: list[ProviderServices],
) -> None:
    clock, lines = ManualClock(1000.0), list[str]()
    account, life = Account(QuickServices(), clock), Life(lambda place: place == "here")
    account.create()
    with ApiServer(ObjectStore(clock)) as server:
        account.put_secret("outscaler/c/clusterapi", server.kubeconfig())
        made = account.runtime(cast(Any, object()), life, str, lines.append)
        _asked(made)
        means = given[0]
        means.sleep(30.0)
        assert (clock.now(), means.chance()) == (1030.0, 0.5)
        assert b'"Namespace' in cast(KubeClient, means.connect(WAY)).request(
            "GET", "/api/v1/namespaces"
        )
        with pytest.raises(FunctionKilled):
            made.checkpoint("here")
        with pytest.raises(FunctionKilled):
            means.connect(WAY)
        with pytest.raises(FunctionKilled):
            means.cache.get("anything")
