"""Renders the script of a new server: a base64 template is filled in and encoded as base64 again.

No part of a script appears in an error. The result contains a token: `user_data` must be used only in the request.
"""

from __future__ import annotations

import base64
import binascii

from chalicelib.model.errors import BadInput
from chalicelib.providers.cherryservers.go_template import GoTemplate, parse
from chalicelib.providers.cherryservers.pool_definition import Definition
from chalicelib.providers.cherryservers.token_source import Token

MOST_BYTES = 65536
"""Maximum bytes of a rendered script. The vendor names no limit of its own; other vendors take 16 to 64 KiB."""

_ID, _SECRET, _ENDPOINT, _POOL = "BootstrapTokenID", "BootstrapTokenSecret", "APIServerEndpoint", "NodeGroup"
_FIELDS = (_ID, _SECRET, _ENDPOINT, _POOL)


def needs_token(definition: Definition) -> bool:
    """Whether the script uses a bootstrap token. Raises BadInput as check does."""
    return bool(_template(definition).fields & {_ID, _SECRET})


def check(definition: Definition) -> None:
    """Raise BadInput for a script that cannot be rendered."""
    template = _template(definition)
    if _ENDPOINT in template.fields and not definition.api_server_endpoint:
        raise BadInput(
            _place(definition),
            f"asks for {_ENDPOINT}, and api-server-endpoint is not set",
            "add it to the default definition, like 203.0.113.10:6443",
        )
    _filled(definition, template, "x" * 6, "x" * 16)


def labels_pool(definition: Definition) -> bool:
    """Whether the script seems to set the label `pool` that a template promises. Raises BadInput as check does.

    True if there is no script, because the image may set the label."""
    return not definition.cloudinit or b"pool=" in _decoded(definition)


def user_data(definition: Definition, token: Token | None) -> str:
    """Return the user data of the request in base64 (standard alphabet, padded, one line); "" without a script.

    token: may be None if needs_token is False. Raises BadInput.
    """
    template = _template(definition)
    if token is None:
        if template.fields & {_ID, _SECRET}:
            raise BadInput(
                _place(definition), "needs a bootstrap token, but none is configured", "see bootstrapTokenSecret"
            )
        return _encoded(_filled(definition, template, "", ""))
    return _encoded(_filled(definition, template, token.id, token.secret.reveal()))


def _filled(definition: Definition, template: GoTemplate, token_id: str, token_secret: str) -> bytes:
    values = {_ID: token_id, _SECRET: token_secret, _ENDPOINT: definition.api_server_endpoint, _POOL: definition.pool}
    filled = template.fill(values)
    if len(filled) > MOST_BYTES:
        raise BadInput(_place(definition), f"is {len(filled)} bytes long", f"keep it under {MOST_BYTES} bytes")
    return filled


def _template(definition: Definition) -> GoTemplate:
    return parse(_decoded(definition), _FIELDS, _place(definition))


def _decoded(definition: Definition) -> bytes:
    """Decode base64 as Go does: embedded line breaks are ignored, any other invalid character is an error."""
    try:
        text = definition.cloudinit.replace("\r", "").replace("\n", "").encode("ascii")
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput(_place(definition), "is not base64", "encode the script, such as by `base64 -w0`") from None


def _encoded(script: bytes) -> str:
    return base64.b64encode(script).decode("ascii")


def _place(definition: Definition) -> str:
    return f"pool {definition.pool}: cloudinit"
