"""The AWS identity of the person who runs a command, for the lines of the journal about what people did."""

from __future__ import annotations

from chalicelib.aws import session

UNKNOWN = "unknown"


def caller() -> str:
    """Return the ARN of the caller, UNKNOWN where AWS does not say it within seconds: no act of an operator waits for
    its own record. Every identity may ask for its own name."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client = session.client(
            "sts", connect_timeout=2, read_timeout=3, retries={"mode": "standard", "total_max_attempts": 2}
        )
        return str(client.get_caller_identity()["Arn"])[:2048]
    except (BotoCoreError, ClientError, KeyError):
        return UNKNOWN
