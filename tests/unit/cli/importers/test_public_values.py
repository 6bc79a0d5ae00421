"""An import reads no value that may be a secret."""

from __future__ import annotations

import base64

from chalicelib.cli.migrate.public_values import is_secret_name, public_config, secret_value
from tests.cases import each_row

KEY = "not-a-real-key"


@each_row(
    "key, value",
    [
        ("region-id", "cn-hangzhou"),
        ("api-zone", "ch-gva-2"),
        ("role-arn", "acs:ram::1:role/x"),
        ("access-key-id", None),
        ("access-key-secret", None),
        ("token", None),
        ("absent", None),
    ],
)
def test_only_public_keys_of_a_secret_have_a_value(key: str, value: str | None) -> None:
    written = value or KEY
    encoded = base64.b64encode(f"{written}\n".encode()).decode()
    objects: list[dict[str, object]] = [{"data": {key: encoded}}, {"stringData": {key: written}}]
    assert [secret_value(document, key) for document in objects] == [value, value]


@each_row(
    "data",
    [
        {"region-id": 5},
        {"region-id": "!"},
        {"region-id": "A" * 10_000},
        {"region-id": "/w=="},
        None,
        [],
    ],
)
def test_malformed_values_of_a_secret_are_unknown(data: object) -> None:
    assert secret_value({"data": data}, "region-id") is None


@each_row(
    "name",
    ["ACCESS_KEY_ID", "EXOSCALE_API_SECRET", "CHERRY_AUTH_TOKEN", "DB_PASSWORD", "accessKey"],
)
def test_variables_with_the_name_of_a_secret_are_secret(name: str) -> None:
    assert is_secret_name(name)


def test_names_of_regions_and_labels_are_not_secret() -> None:
    assert not any(
        is_secret_name(name)
        for name in ("REGION_ID", "EXOSCALE_ZONE", "CAPI_GROUP", "CLUSTER_NAME")
    )


@each_row(
    "hidden",
    [
        f"cloudinit={KEY}",
        f'cloudinit="{KEY}\n{KEY}=1\nplan={KEY}"',
        f"cloudinit=a\\\nregion={KEY}",
        f"access-key = {KEY}",
        f"secret-key={KEY}",
        f"api-token={KEY}",
        f"{KEY}",
        f"; {KEY}",
    ],
)
def test_a_cloud_config_is_read_without_its_secrets(hidden: str) -> None:
    text = f'[nodegroupdef "default"]\nregion=eu_nord_1\n{hidden}\nos-partition-size = 60\n'
    kept = public_config(text).splitlines()
    assert KEY not in "\n".join(kept)
    assert kept[:2] == ['[nodegroupdef "default"]', "region=eu_nord_1"]
    assert kept[-1] == "os-partition-size = 60"
    assert len(kept) == len(text.splitlines())
