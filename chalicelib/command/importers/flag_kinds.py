"""Which flags of Cluster Autoscaler take the next word as their value: a boolean never does."""

from __future__ import annotations

from chalicelib.command.importers.flag_table import KNOWN

# They have another place in a policy, where they are not options, so that the table has no type for them.
_SWITCHES = frozenset({"clusterapi-cloud-config-authoritative"})
SHORT = frozenset({"v"})  # the only flag of Cluster Autoscaler with a form of one dash
BOOLEANS = _SWITCHES | {
    flag for flag, known in KNOWN.items() if known.option is not None and known.option.kind.name == "true or false"
}
PATHS = frozenset({"kubeconfig", "cloud-config"})  # a path in a container, which nothing here opens


def flag_name(written: str) -> str:
    """Return a flag's name as Cluster Autoscaler normalises it."""
    return written.replace("_", "-")
