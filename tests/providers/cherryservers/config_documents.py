"""Configurations for the tests of pool definitions: a valid one in both forms, and
functions that modify it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.vendors.cherryservers import Bootstrap, CherryBounds, CherrySettings
from chalicelib.providers.cherryservers.definition_reader import Definitions, read_definitions
from chalicelib.providers.cherryservers.pool_definition import Definition

SCRIPT = (
    "#!/bin/bash\nkubeadm join --token {{.BootstrapTokenID}}.{{.BootstrapTokenSecret}} "
    "{{.APIServerEndpoint}} "
    "# {{.NodeGroup}}\n"
)
HEAD = """\
project-id=10001
api-server-endpoint=203.0.113.10:6443
region=eu_nord_1
plan=e5_1620v4
os=ubuntu_18_04
"""
KEPT = Bootstrap(secret="token")
WHOLE = f'[nodegroupdef "default"]\n{HEAD}'


def encoded(text: str | bytes) -> str:
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def no_secret(name: str) -> str:
    raise AssertionError(f"nobody asked for {name}")


def settings(
    text: str = "",
    *,
    mapping: object = None,
    secret: str = "",
    cluster: str = "cluster2",
    project: int = 0,
    bootstrap: Bootstrap = KEPT,
) -> CherrySettings:
    return CherrySettings(
        credentials_secret="key",
        groups=(CherryBounds("pool3", 0, 5),),
        cloud_config=text,
        cloud_config_secret=secret,
        node_group_defs=msgspec.json.encode(mapping).decode() if mapping is not None else "",
        cluster_name=cluster,
        project_id=project,
        bootstrap_token_secret=bootstrap.secret,
        create_bootstrap_tokens=bootstrap.create,
        bootstrap_token_lifetime=bootstrap.lifetime,
    )


def definitions(
    text: str = "", *, read: Callable[[str], str] = no_secret, **given: Any
) -> Definitions:
    return read_definitions(settings(text, **given), read)


def definition(extra: str = "", pool: str = "pool3", **given: Any) -> Definition:
    """The definition of a pool without its own section; extra: further lines
    of the default definition."""
    return definitions(f"{WHOLE}{extra}\n", **given).of(pool)


def refused(ask: Callable[[], object]) -> str:
    """Returns the text of the BadInput that is raised."""
    try:
        found = ask()
    except BadInput as mistake:
        return str(mistake)
    raise AssertionError(f"not refused: {found}")
