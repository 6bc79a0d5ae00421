"""What the emulation lets policies name: its vendors are served on this machine, and a Lambda function's are not."""

from __future__ import annotations

from chalicelib.model.deployment import Deployment

LOOPBACK = Deployment(loopback=True)
"""The vendors' own hosts, and whatever is served on this machine."""
FILES = Deployment(loopback=True, files=True)
"""The same for a command, which may read files of its workstation."""
