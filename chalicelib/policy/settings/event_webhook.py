"""spec.webhook: which events may request a pass."""

from typing import Annotated

import msgspec

from chalicelib.policy.schema import Required
from chalicelib.policy.value_types import SECRET, duration, listed, text


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.webhook: which senders and events may start a pass. secret: empty where no event is
    accepted."""

    secret: Annotated[str, SECRET, "Secret that senders sign or authenticate with.", Required()] = (
        ""
    )
    reasons: Annotated[
        tuple[str, ...],
        listed(
            text(
                "an Event's reason",
                r"[A-Za-z][A-Za-z0-9:._-]{0,127}",
                "something like FailedScheduling",
            )
        ),
        "Event reasons that request a pass, instead of the built-in list.",
    ] = ()
    debounce: Annotated[
        float,
        duration(0.0, 60.0),
        "Further events within this time cause no further reconcile; less than 1s counts as 1s.",
    ] = 2.0
