"""The complete definition of a pool's servers, which templates, requests and checks use."""

from __future__ import annotations

import msgspec


class Definition(msgspec.Struct, frozen=True):
    """The order parameters of one pool's servers.

    api_server_endpoint: `host:port` for the cloud-init; region, plan, os: slugs; cloudinit: a Go template in base64, ""
    for none; hostname_pattern: a Go template; os_partition_size: GB, 0 for none; spot: from the spot market;
    cpu_override: whole cores, 0 for the plan's value.
    """

    pool: str
    cluster_name: str
    project_id: int
    api_server_endpoint: str
    region: str
    plan: str
    os: str
    ssh_key_ids: tuple[int, ...]
    cloudinit: str
    hostname_pattern: str
    os_partition_size: int = 0
    spot: bool = False
    cpu_override: int = 0
