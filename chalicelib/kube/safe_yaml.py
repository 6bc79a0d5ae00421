"""YAML of strangers: a kubeconfig of a secret, a ConfigMap that anybody in the cluster may have written."""

from __future__ import annotations

from chalicelib.net.safe_yaml import DEEPEST, MOST_VALUES, parsed

__all__ = ["DEEPEST", "MOST_VALUES", "parsed"]
