"""A rotated secret is used after the first rejected call, although secrets
are cached for ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.model.secret import PARAMETER, parameter_name
from chalicelib.runtime.runtime import SECRET_KEPT_FOR
from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.aws_services import QuickServices
from infra.emulators.cherryservers.attached_account import TOKEN, CherryAccount
from infra.emulators.controllers import objects
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.kube.auth import MASTERS, User
from infra.emulators.local_world import LocalWorld
from tests.functional.test_observe_secret import SCENES
from tests.scenario.policies import document

NEW, NEW_SECRET = "EXAMPLE-NEW-KEY", "example-new-secret"


def _ring(account: AlicloudAccount | ExoscaleAccount | HuaweiAccount, _: LocalWorld) -> str:
    """Makes another key valid and the previous ones invalid."""
    account.server.ring.keys.clear()
    account.server.ring.add(NEW, NEW_SECRET)
    return account.secret(NEW)


def _token(account: CherryAccount, _: LocalWorld) -> str:
    account.server.front.tokens.pop(TOKEN)
    account.server.add_token(NEW)
    return NEW


def _user(_: None, world: LocalWorld) -> str:
    """The management cluster is the scaled cluster, so both secrets belong to one user."""
    return _new_token(world)


def _new_token(world: LocalWorld) -> str:
    world.server.api.authority.admit(User("admin", NEW, (MASTERS,)), [])
    return world.server.kubeconfig()


ROTATE: dict[str, Callable[[Any, LocalWorld], str]] = {
    "alicloud": _ring,
    "exoscale": _ring,
    "huaweicloud": _ring,
    "cherryservers": _token,
    "clusterapi": _user,
}


def _reads(world: LocalWorld, secret: str) -> int:
    """How often the secret was read since the last call."""
    assert isinstance(world.services, QuickServices)
    kept = world.services.parameters if secret.startswith(PARAMETER) else world.services.secrets
    count = kept.asked.count(parameter_name(secret) if secret.startswith(PARAMETER) else secret)
    kept.asked.clear()
    return count


@pytest.mark.parametrize("kind", ["", PARAMETER], ids=["secret", "parameter"])
@pytest.mark.parametrize("provider", SCENES)
def test_next_pass_and_next_operation_use_the_rotated_credential(provider: str, kind: str) -> None:
    make, prepare, key = SCENES[provider]
    account = make() if make is not None else None
    secret = f"{kind}outscaler/shop/{provider}"
    kubeconfig = f"{kind}outscaler/shop/kubeconfig"
    with LocalWorld(quick=True, clouds=() if account is None else (account,)) as world:
        scene = prepare(world, account)
        world.put_secret(kubeconfig, world.server.kubeconfig())
        world.put_secret(secret, scene.changes)
        world.apply_policy(
            document(
                secret=kubeconfig,
                providers={provider: scene.settings | {key: secret}},
                nodeGroups=[{"provider": provider, "id": scene.group, "min": 0, "max": 5}],
            )
        )
        world.seed(objects.node("system", cpu="2"))
        world.step(180)
        assert _reads(world, secret) == 1, "three passes, one read"

        text = ROTATE[provider](account, world)
        for name in {secret} | ({kubeconfig} if provider == "clusterapi" else set()):
            world.put_secret(name, text)
        world.seed(objects.deployment("web", replicas=2, cpu="3", memory="1Gi"))
        world.step(60)
        assert _reads(world, secret) == 1, "one read for what was refused"
        assert not world.plans()[-1].get("gaps")
        world.step_until(lambda: not world.pending(), limit=SECRET_KEPT_FOR * 6)


def test_kubeconfig_of_another_user_is_used_where_the_first_lacks_a_right() -> None:
    with LocalWorld(quick=True) as world:
        world.apply_policy(document())
        world.step(120)
        world.server.api.authority.admit(User("less", "token-of-less"), [])
        world.put_secret(world.kubeconfig_secret, world.server.kubeconfig("less"))
        world.step(SECRET_KEPT_FOR + 60)
        assert _reads(world, world.kubeconfig_secret)
        before = len(world.server.requests)
        world.put_secret(world.kubeconfig_secret, world.server.kubeconfig())
        world.step(60)
        users = {call.user for call in world.server.requests[before:]}
        assert "admin" in users
        assert _reads(world, world.kubeconfig_secret) == 1


def test_permanently_missing_right_costs_one_secret_read_per_pass() -> None:
    with LocalWorld(quick=True) as world:
        world.apply_policy(document())
        world.server.api.authority.admit(User("less", "token-of-less"), [])
        world.put_secret(world.kubeconfig_secret, world.server.kubeconfig("less"))
        world.step(60)
        _reads(world, world.kubeconfig_secret)
        world.step(300)
        assert 1 <= _reads(world, world.kubeconfig_secret) <= 5
