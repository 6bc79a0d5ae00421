"""spec.webhook: which events may request a pass."""

from __future__ import annotations

import msgspec


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Webhook settings: which senders and events may start a pass. reasons: relevant Event reasons;
    empty means the default list."""

    secret: str = ""
    reasons: tuple[str, ...] = ()
    debounce: float = 2.0
