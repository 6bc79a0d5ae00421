"""What a deployment fails with, besides a person's mistakes (BadInput)."""

from __future__ import annotations

from chalicelib.model.errors import OutscalerError


class DeployFailed(OutscalerError):
    """A step could not be done; the message names what it was about. The same command continues."""
