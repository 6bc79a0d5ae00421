"""A ConfigMap write changes only the given keys, against the version that was read."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.cluster import errors, objects
from infra.emulators.scripted_http_server import HttpScript, Reply
from tests.cases import each_row
from tests.unit.cluster.support import client, status

FOUND = {
    "metadata": {"uid": "u1", "resourceVersion": "41", "name": "s"},
    "data": {"status": "old", "theirs": "x"},
}


def test_kube_configmap_is_read() -> None:
    with HttpScript([Reply(200, FOUND)]) as server:
        found = objects.get_config_map(client(server), "kube-system", "s/x")
    assert (found.uid, found.text("status"), found.text("none")) == ("u1", "old", "")
    assert (server.requests[0].method, server.requests[0].path) == (
        "GET",
        "/api/v1/namespaces/kube-system/configmaps/s%2Fx",
    )


def test_kube_configmap_without_data_has_no_text() -> None:
    with HttpScript([Reply(200, {"metadata": {}})]) as server:
        assert objects.get_config_map(client(server), "n", "s").text("status") == ""


def test_kube_configmap_patch_names_our_keys_and_the_version_read() -> None:
    with HttpScript([Reply(200, FOUND), Reply(200, FOUND)]) as server:
        cluster = client(server)
        found = objects.get_config_map(cluster, "n", "s")
        objects.patch_config_map(cluster, "n", "s", found, {"status": "new"}, {"k": "v"})
    sent = server.requests[1]
    assert (sent.method, sent.headers["content-type"]) == ("PATCH", "application/merge-patch+json")
    assert sent.json() == {
        "metadata": {"resourceVersion": "41", "annotations": {"k": "v"}},
        "data": {"status": "new"},
    }


@each_row(
    ("reply", "error"),
    [
        (Reply(409, status(409, "Conflict")), errors.Conflict),
        (Reply(403, status(403)), errors.Forbidden),
        (Reply(404, status(404)), errors.NotFound),
        (Reply(200, ["no", "object"]), errors.Unavailable),
    ],
)
def test_kube_configmap_failure_is_a_cluster_error_and_write_is_not_retried(
    reply: Reply, error: type[errors.ClusterError]
) -> None:
    with HttpScript([Reply(200, FOUND), reply]) as server:
        cluster = client(server)
        found = objects.get_config_map(cluster, "n", "s")
        with pytest.raises(error):
            objects.patch_config_map(cluster, "n", "s", found, {"status": "new"}, {})
    assert len(server.requests) == 2


@each_row(
    "fields, writes",
    [
        ({"f:data": {".": {}, "f:status": {}}}, True),
        ({"f:data": {"f:other": {}}}, False),
        ({"f:data": {}}, False),
        ({"f:metadata": {"f:labels": {"f:a": {}}}}, False),
        (None, False),
    ],
)
def test_a_writer_of_a_key_is_who_owns_it(fields: dict[str, object] | None, writes: bool) -> None:
    managed = (
        {"manager": "other", "fieldsV1": fields} if fields is not None else {"manager": "other"}
    )
    body = msgspec.json.encode({"metadata": {"managedFields": [managed]}})
    found = msgspec.json.decode(body, type=objects.ConfigMap)
    assert found.writers("status") == (frozenset({"other"}) if writes else frozenset())
