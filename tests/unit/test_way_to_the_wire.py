"""The way from the Lambda handler of an operation to the wire stays short, for every vendor."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import requests

import chalicelib
from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.cherryservers.attached_account import CherryAccount
from infra.emulators.controllers import objects
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.kube import in_process_transport
from infra.emulators.local_world import LocalWorld

FRAMES, FILES = 12, 9
"""At most this many frames of chalicelib, in this many files, from the
handler to the HTTP library."""
ROOT = f"{Path(chalicelib.__file__).parent}/"
POLICY = """
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: shop}}
spec:
  mode: active
  scanInterval: 20s
  kubernetes: {{kubeconfigSecret: outscaler/shop/kubeconfig}}
  providers: {{{vendor}: {settings}}}
  nodeGroups: {groups}
"""
Headers = Mapping[str, str]


# Each fills an account and returns the policy's section of the vendor and the ids of its groups.


def alicloud(account: AlicloudAccount) -> tuple[Mapping[str, str], list[str]]:
    return account.settings(), [account.cloud.add_group("first", most=4).id]


def cherryservers(account: CherryAccount) -> tuple[Mapping[str, str], list[str]]:
    return account.settings({"first": {"plan": "e5_1620v4"}}), ["first"]


def exoscale(account: ExoscaleAccount) -> tuple[Mapping[str, str], list[str]]:
    account.zone.add_nodepool(account.zone.add_cluster("prod").id, "web", type="standard.large")
    return account.settings(), ["prod/web"]


def huaweicloud(account: HuaweiAccount) -> tuple[Mapping[str, str], list[str]]:
    account.cloud.add_pool(account.cluster.uid, "web", most=8)
    return account.settings(), []


Change = Callable[[str, str, Headers], bool]
VENDORS: Mapping[
    str, tuple[type[Any] | None, Callable[[Any], tuple[Mapping[str, str], list[str]]], Change]
] = {
    "alicloud": (
        AlicloudAccount,
        alicloud,
        lambda method, url, headers: headers.get("x-acs-action") == "ScaleWithAdjustment",
    ),
    "cherryservers": (
        CherryAccount,
        cherryservers,
        lambda method, url, headers: method == "POST" and url.endswith("/servers"),
    ),
    "clusterapi": (
        None,
        lambda account: ({}, []),
        lambda method, url, headers: method == "PATCH" and url.endswith("/scale"),
    ),
    "exoscale": (
        ExoscaleAccount,
        exoscale,
        lambda method, url, headers: method == "PUT" and url.endswith(":scale"),
    ),
    "huaweicloud": (
        HuaweiAccount,
        huaweicloud,
        lambda method, url, headers: method == "POST" and url.endswith("/operation/scale"),
    ),
}


def frames_of_ours(frame: FrameType | None) -> list[str]:
    """The call stack below the handler, outermost first, as file:function; empty if
    no handler of `act` runs."""
    stack: list[str] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(ROOT):
            stack.append(
                f"{frame.f_code.co_filename.removeprefix(ROOT)}:{frame.f_code.co_qualname}"
            )
        frame = frame.f_back
    stack.reverse()
    handler = next(
        (at for at, place in enumerate(stack) if place.startswith("functions/act.py:")), len(stack)
    )
    return stack[handler:]


def submitted_at_once(
    _: ThreadPoolExecutor, function: Callable[..., Any], *arguments: Any
) -> Future[Any]:
    """In place of `submit`: the stack of a thread would begin at the thread."""
    future = Future[Any]()
    future.set_result(function(*arguments))
    return future


@pytest.mark.parametrize("vendor", VENDORS)
def test_change_of_every_vendor_is_few_frames_and_files_below_the_handler(
    vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks: list[list[str]] = []
    account_class, fill, is_change = VENDORS[vendor]

    def watch(session: type[requests.Session]) -> None:
        send = session.request

        def request(self: requests.Session, method: str, url: str, **more: Any) -> Any:
            if is_change(method, url, more["headers"]) and (
                stack := frames_of_ours(sys._getframe(1))
            ):
                stacks.append(stack)
            return send(self, method, url, **more)

        monkeypatch.setattr(session, "request", request)

    watch(requests.Session)
    watch(in_process_transport._Session)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", submitted_at_once)
    account = account_class() if account_class is not None else None
    with LocalWorld(
        quick=True, clouds=() if account is None else (account,), forgetful=True
    ) as world:
        if account is None:
            world.seed(objects.machine_deployment("workers", 1, 1, 4))
        settings, groups = fill(account)
        entries = [{"provider": vendor, "id": group, "min": 0, "max": 4} for group in groups]
        world.apply_policy(
            POLICY.format(vendor=vendor, settings=json.dumps(settings), groups=json.dumps(entries))
        )
        world.seed(
            objects.node("system", cpu="1"),
            objects.deployment("web", replicas=2, cpu="3", memory="1Gi"),
        )
        world.step_until(lambda: bool(stacks), limit=600.0)
    way = "\n".join(stacks[0])
    assert len(stacks[0]) <= FRAMES, way
    assert len({place.partition(":")[0] for place in stacks[0]}) <= FILES, way
