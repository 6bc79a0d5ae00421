"""Commands that copy a Kubernetes Secret to Secrets Manager without a file or a value on the command line."""

from __future__ import annotations

import re
import shlex

_OBJECT = re.compile(r"(?:([a-z0-9-]{1,63})/)?([a-z0-9][a-z0-9.-]{0,252})\Z")


def store_command(kubernetes_object: str, name: str) -> str:
    """Return the command for `namespace/name` of a Secret; without one, the command for a file."""
    found = _OBJECT.match(kubernetes_object)
    create = f"aws secretsmanager create-secret --name {shlex.quote(name)} --secret-string"
    if found is None:
        return f"{create} file://FILE"
    return (
        f"kubectl -n {found[1] or 'kube-system'} get secret {found[2]} -o json | "
        f"jq '.data|map_values(@base64d)' | {create} file:///dev/stdin"
    )
