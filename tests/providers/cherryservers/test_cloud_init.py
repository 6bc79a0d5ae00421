"""The user data script of a new machine."""

from __future__ import annotations

import base64

import msgspec
import pytest

from chalicelib.model.secret import Secret
from chalicelib.policy.vendors.cherryservers import Bootstrap
from chalicelib.providers.cherryservers.pool_definition import MOST_BYTES, needs_token, user_data
from chalicelib.providers.cherryservers.tokens import Token
from tests.cases import each_row
from tests.providers.cherryservers.config_documents import (
    HEAD,
    SCRIPT,
    WHOLE,
    definition,
    definitions,
    encoded,
    refused,
)

TOKEN = Token("nf8atf", Secret("kwfs1t15pjmhk7n4"))
VECTOR = (
    "IyEvYmluL2Jhc2gKa3ViZWFkbSBqb2luIC0tdG9rZW4gbmY4YXRmLmt3ZnMxdDE1cGptaGs3bjQgMjAzLjAuMTEzLjEwOj"
    "Y0NDMgIyBwb29sMwo="
)


def with_script(script: str | bytes) -> str:
    return user_data(definition(f"cloudinit={encoded(script)}"), TOKEN)


def test_cloudinit_known_vector_matches_byte_for_byte() -> None:
    assert with_script(SCRIPT) == VECTOR


def test_cloudinit_user_data_is_empty_without_a_script() -> None:
    assert user_data(definition(), None) == ""
    assert not needs_token(definition())


def test_cloudinit_token_is_needed_only_by_scripts_that_use_it() -> None:
    plain = definition(f"cloudinit={encoded('echo {{.NodeGroup}}')}")
    assert not needs_token(plain)
    assert base64.b64decode(user_data(plain, None)) == b"echo pool3"
    for field in ("BootstrapTokenID", "BootstrapTokenSecret"):
        asking = definition(f"cloudinit={encoded('{{.' + field + '}}')}")
        assert needs_token(asking)
        assert "none is configured" in refused(lambda asking=asking: user_data(asking, None))  # type: ignore[misc]


@each_row(
    ("cloudinit", "problem"),
    [
        (encoded("hunter2 {{.Hostname}}"), "line 1, column 9: there is no field Hostname"),
        (encoded("hunter2\n{{if .X}}"), "line 2, column 1: an action that is not supported"),
        ("hunter2 is not base64!", "is not base64"),
        ("aHVudGVyMg", "is not base64"),
        ("aHVudGVyMg==x", "is not base64"),
        ("aHVud_VyMg==", "is not base64"),
        (encoded("a" * (MOST_BYTES + 1)), f"is {MOST_BYTES + 1} bytes long"),
    ],
)
def test_cloudinit_unusable_script_fails_only_its_pool(
    cloudinit: str,
    problem: str,
) -> None:
    found = definitions(f'{WHOLE}[nodegroupdef "bad"]\n{HEAD}cloudinit="{cloudinit}"\n')
    message = refused(lambda: found.of("bad"))
    assert message.startswith("pool bad: cloudinit: ")
    assert problem in message
    assert "hunter2" not in message
    assert cloudinit not in message
    assert found.of("pool3").plan == "e5_1620v4"


def test_cloudinit_base64_may_have_line_breaks_as_in_go() -> None:
    text = encoded(SCRIPT)
    written = definition(f'cloudinit="{text[:60]}\\n{text[60:]}"')
    assert user_data(written, TOKEN) == VECTOR


def test_cloudinit_literal_brace_works_and_bytes_pass_unchanged() -> None:
    assert base64.b64decode(with_script('jinja {{"{{"}} x }}')) == b"jinja {{ x }}"
    blob = b"\x1f\x8b\x08\x00\xff" + bytes(range(128))
    assert base64.b64decode(with_script(blob)) == blob


def test_cloudinit_endpoint_used_but_not_set_is_refused() -> None:
    text = WHOLE.replace(
        "api-server-endpoint=203.0.113.10:6443\n", f"cloudinit={encoded(SCRIPT)}\n"
    )
    assert "api-server-endpoint is not set" in refused(lambda: definitions(text).of("pool3"))


def test_cloudinit_token_used_but_not_configured_fails_its_pool_and_names_setting() -> None:
    message = refused(lambda: definition(f"cloudinit={encoded(SCRIPT)}", bootstrap=Bootstrap()))
    assert message.startswith(
        "providers.cherryservers.bootstrapTokenSecret: is missing, and the cloudinit of pool po"
    )
    assert "createBootstrapTokens" in message
    assert (
        definition(f"cloudinit={encoded(SCRIPT)}", bootstrap=Bootstrap(create=True)).pool == "pool3"
    )


def test_cloudinit_secret_part_of_a_token_is_never_shown() -> None:
    assert "kwfs" not in f"{TOKEN!r} {TOKEN}"
    with pytest.raises(TypeError):
        msgspec.json.encode(TOKEN)
