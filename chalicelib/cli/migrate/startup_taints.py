"""Startup taints that a Cluster Autoscaler does not know by its command line: it buys again
while new nodes have them.

It counts a ready node with a taint as full-grown unless `--startup-taint` names the taint. A status
taint does not help, because its node counts as ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from chalicelib.cli.migrate.autoscaler_input import Argument
from chalicelib.plan.state.readiness import STARTUP_PREFIXES, STARTUP_TAINTS

CLUSTER_API = "clusterapi"
_KEYS = ("startup-taint", "ignore-taint")
_PREFIXES = "startup-taint-prefix"
_OF_THE_ENVIRONMENT = ("$", "`")  # no taint has these characters
_NEWER_FLAG = (1, 29)  # the first release with --startup-taint


def unknown_startup_taints(
    by_flag: Mapping[str, Sequence[Argument]], seen: Iterable[str] = (), provider: str = ""
) -> tuple[str, ...]:
    """Return the startup taints that it does not know; none where the environment may name them.

    seen: startup taints that nodes have. provider: where the command line does not say it. With
    Cluster API each new node has a startup taint.
    """
    keys = _values(by_flag, *_KEYS)
    prefixes = _values(by_flag, _PREFIXES)
    if any(mark in value for value in (*keys, *prefixes) for mark in _OF_THE_ENVIRONMENT):
        return ()
    named = [value for value in _values(by_flag, "cloud-provider")[-1:] if "$" not in value]
    new_nodes_have = STARTUP_TAINTS if (named or [provider])[0] == CLUSTER_API else frozenset[str]()
    known = (*STARTUP_PREFIXES, *filter(None, prefixes))
    return tuple(
        key
        for key in sorted({*new_nodes_have, *seen})
        if key not in keys and not key.startswith(known)
    )


def startup_taint_flag(taint: str, version: tuple[int, int] | None = None) -> str:
    """Return the flag that names a startup taint. version: of the Cluster
    Autoscaler, None: a present one."""
    is_older = version is not None and version < _NEWER_FLAG
    return f"--{'ignore' if is_older else 'startup'}-taint={taint}"


def _values(by_flag: Mapping[str, Sequence[Argument]], *flags: str) -> list[str]:
    return [argument.value or "" for flag in flags for argument in by_flag.get(flag, ())]
