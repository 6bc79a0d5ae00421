"""Decides which values of Secrets and variables an import may read.

An import prints a document and a report. A value that is not read cannot appear in them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

_PUBLIC_KEYS = frozenset({"region-id", "api-zone", "role-arn", "oidc-provider-arn", "session-name"})
_HIDDEN_SETTINGS = frozenset({"cloudinit", "access-key", "secret-key"})
_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|ACCESS_?KEY|API_?KEY|PRIVATE|CREDENTIAL", re.IGNORECASE
)
_PUBLIC_NAME = re.compile(
    r"REGION_ID|EXOSCALE_(ZONE|API_ENVIRONMENT)|CAPI_(GROUP|VERSION|SCALE_ZERO_DEFAULT_ARCH)"
    r"|CHERRY_CONTROLLER_NODE_IDENTIFIER_LABEL|ALI(BABA_)?CLOUD_(OIDC_PROVIDER_ARN|ROLE_ARN|"
    r"SESSION_NAME)"
)
_SECRET_SETTING = re.compile(r"key|secret|token|passw|auth", re.IGNORECASE)
_SECTION = re.compile(r"\s*\[[A-Za-z]{1,40}(?: +\"[^\"\n]{1,100}\")?\]\s*\Z")
_SETTING = re.compile(r"\s*([a-z]+(?:-[a-z]+)*)\s*=\s*(.{0,200})\Z")
_LONGEST = 256
_LONGEST_CONFIG = 256 * 1024


def is_secret_name(variable: str) -> bool:
    """Return whether the name of a variable says that its value is a secret. Paths and identifiers
    of tokens count as well, because nothing here needs their values."""
    return _SECRET_NAME.search(variable) is not None


def is_public_name(variable: str) -> bool:
    """Return whether the value of a variable becomes a setting of the policy, and
    may therefore be quoted."""
    return _PUBLIC_NAME.fullmatch(variable) is not None


def secret_value(document: Mapping[str, Any], key: str) -> str | None:
    """Return the value of a Secret's key if that key is public; None for all others."""
    if key not in _PUBLIC_KEYS:
        return None
    value = _at(document, "data", key)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return f"[{value[0][:_LONGEST]}]"  # the placeholder [NAME] of an example, without quotes
    return secret_text(document, key, _LONGEST)


def secret_text(
    document: Mapping[str, Any], key: str, longest: int = _LONGEST_CONFIG
) -> str | None:
    """Return the text of a Secret's key, None where it is absent, longer, or not text. Not
    for any output as it is."""
    plain, encoded = _at(document, "stringData", key), _at(document, "data", key)
    if isinstance(plain, str):
        return plain if len(plain) <= longest else None
    if not isinstance(encoded, str) or len(encoded) > 2 * longest:
        return None
    try:
        return base64.b64decode("".join(encoded.split()), validate=True).decode().strip()
    except (binascii.Error, ValueError):
        return encoded if "<" in encoded else None  # a placeholder of an example


def public_config(text: str) -> str:
    """Return the sections and settings of a cloud-config that are not secret.
    Lines keep their numbers.

    A value that continues on further lines is left out, because a part of a secret
    may look like a setting.
    """
    lines: list[str] = []
    quoted = joined = False
    for line in text[:_LONGEST_CONFIG].splitlines():
        setting = _SETTING.match(line)
        odd = line.count('"') % 2 == 1
        public = (
            setting is not None
            and setting[1] not in _HIDDEN_SETTINGS
            and not _SECRET_SETTING.search(setting[1])
        )
        whole = not (quoted or joined or odd or line.endswith("\\"))
        lines.append(line if whole and (public or _SECTION.match(line)) else "")
        quoted, joined = quoted != odd, line.endswith("\\")
    return "\n".join(lines)


def _at(document: Mapping[str, Any], part: str, key: str) -> Any:
    values = document.get(part)
    return values.get(key) if isinstance(values, Mapping) else None
