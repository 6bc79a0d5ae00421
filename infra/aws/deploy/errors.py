"""Errors of a deployment other than invalid input (BadInput)."""

from __future__ import annotations

from chalicelib.model.errors import OutscalerError


class DeployFailed(OutscalerError):
    """A deployment step failed. The message names the resource. Running the same command again
    continues the deployment."""
