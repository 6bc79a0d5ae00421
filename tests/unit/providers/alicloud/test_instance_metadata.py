"""The role of an ECS instance: read only from a named or discovered role, with short timeouts."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.errors import Transient, Unauthorized
from tests.cases import each_row
from tests.unit.providers.alicloud.scripted_api import (
    GROUP,
    HttpScript,
    Reply,
    ScriptedApiClock,
    Seen,
    api_for,
    groups_page,
)

CREDENTIAL = {
    "Code": "Success",
    "AccessKeyId": "STS.9",
    "AccessKeySecret": "s",
    "SecurityToken": "CAIS9",
    "Expiration": "2026-01-15T14:00:00Z",
    "LastUpdated": "2026-01-15T08:00:00Z",
}
ROLES = "/latest/meta-data/ram/security-credentials/"


@each_row("protected", [True, False])
def test_alicloud_metadata_service_in_both_modes(protected: bool) -> None:
    def metadata(seen: Seen) -> Reply:
        if seen.method == "PUT":
            assert seen.headers["x-aliyun-ecs-metadata-token-ttl-seconds"]
            return Reply(200, "meta-token", {"Content-Type": "text/plain"}) if protected else Reply(404, "no")
        if protected and seen.headers.get("x-aliyun-ecs-metadata-token") != "meta-token":
            return Reply(403, "no")
        if seen.path == ROLES:
            return Reply(200, "worker-role\nanother", {"Content-Type": "text/plain"})
        return Reply(200, CREDENTIAL) if seen.path == ROLES + "worker-role" else Reply(404, "no")

    with HttpScript(metadata) as service, HttpScript([groups_page(GROUP)]) as server:
        api_for(server.url, metadataEndpoint=service.url).groups([GROUP])
    assert server.requests[0].headers["x-acs-security-token"] == "CAIS9"


def test_alicloud_metadata_named_role_is_not_looked_up() -> None:
    def metadata(seen: Seen) -> Reply:
        return Reply(200, CREDENTIAL) if seen.path == ROLES + "mine" else Reply(404, "no")

    with HttpScript(metadata) as service, HttpScript([groups_page(GROUP)]) as server:
        api_for(server.url, metadataEndpoint=service.url, ramRole="mine").groups([GROUP])
    assert [seen.path for seen in service.requests] == ["/latest/api/token", ROLES + "mine"]


@each_row(
    ("reply", "cls"),
    [
        (Reply(404, "no"), Unauthorized),
        (Reply(200, ""), Unauthorized),
        (Reply(200, {"Code": "Failed"}), Unauthorized),
        (Reply(500, "no"), Transient),
    ],
)
def test_alicloud_metadata_instance_without_a_role_has_no_credentials(reply: Reply, cls: type[OutscalerError]) -> None:
    with HttpScript(lambda _: reply) as service, pytest.raises(cls, match="instance metadata"):
        api_for("http://127.0.0.1:9", metadataEndpoint=service.url).groups([GROUP])


def test_alicloud_metadata_without_an_answer_is_tried_once() -> None:
    clock = ScriptedApiClock()
    with HttpScript(lambda _: Reply(hang_up=True)) as service, pytest.raises(Transient, match="instance metadata"):
        api_for("http://127.0.0.1:9", clock=clock, metadataEndpoint=service.url).groups([GROUP])
    assert len(service.requests) == 1
    assert clock.slept == 0.0
