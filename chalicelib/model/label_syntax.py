"""What Kubernetes takes as the key and the value of a label, and as a taint.

Patterns are compiled at their first use, because every function loads the settings that need them.
"""

from __future__ import annotations

import re

TAINT_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
_LONGEST_DOMAIN = 253


def is_label_value(text: str) -> bool:
    """Whether the text is a valid Kubernetes label value."""
    return not text or re.fullmatch(_NAME, text) is not None


def is_label_key(text: str) -> bool:
    """Whether the text is a valid key of a Kubernetes label or taint: `name` or `domain/name`."""
    domain, slash, name = text.rpartition("/")
    if slash and not is_domain(domain):
        return False
    return re.fullmatch(_NAME, name) is not None


def is_domain(text: str) -> bool:
    """Whether the text is a DNS-1123 subdomain, like API groups and key prefixes."""
    return 0 < len(text) <= _LONGEST_DOMAIN and re.fullmatch(_DOMAIN, text) is not None
