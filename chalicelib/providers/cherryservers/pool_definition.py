"""The definition of a pool's servers, and what it renders: the host name and
the script of a new server.

Both are templates, of which a subset of Go's is supported: substitution of fields. A complete
template language would let a policy compute text that runs as root on a new server. Fields, trim
markers, comments and string literals (for a literal `{{`) are enough; every other action is refused
when the definitions are read. Works on bytes, because a cloud-init may be anything, including a
gzip file, and must stay unchanged.

An error never quotes a script or a template, because they may contain
passwords; it may name fields.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Collection, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.providers.cherryservers.tokens import Token


class Definition(msgspec.Struct, frozen=True):
    """The order parameters of one pool's servers. api_server_endpoint: `host:port` for the
    cloud-init; region, plan, os: slugs; cloudinit: a Go template in base64, "" for none;
    hostname_pattern: a Go template; os_partition_size: GB, 0 for none; spot: from the spot market;
    cpu_override: whole cores, 0 for the plan's value; mark: of a group that Outscaler makes itself,
    "" for another one."""

    pool: str
    cluster_name: str
    project_id: int
    api_server_endpoint: str
    region: str
    plan: str
    os: str
    ssh_key_ids: tuple[int, ...]
    cloudinit: str
    hostname_pattern: str
    os_partition_size: int = 0
    spot: bool = False
    cpu_override: int = 0
    mark: str = ""


# -- templates

_BLANKS = b" \t\r\n"
_COMMENT = re.compile(rb"(?:-[ \t\r\n])?/\*")
_END = re.compile(rb"([ \t\r\n]-)?\}\}")  # immediately, or after a trim marker
_ACTION = re.compile(
    rb"(?P<trim>-[ \t\r\n])?[ \t\r\n]*"
    rb'(?:\.(?P<field>[A-Za-z_][A-Za-z0-9_]*)|"(?P<text>(?:[^"\\\n]|\\.)*)"|`(?P<raw>[^`]*)`)'
    rb"(?:[ \t\r\n]*?(?P<trimmed>[ \t\r\n]-)|[ \t\r\n]*)\}\}",
    re.DOTALL,
)
_ESCAPE = re.compile(
    rb'\\(?:([abfnrtv\\"])|([0-3][0-7]{2})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|)'
)
_LETTERS = dict(
    zip((b"a", b"b", b"f", b"n", b"r", b"t", b"v", b"\\", b'"'), b'\a\b\f\n\r\t\v\\"', strict=True)
)
_REMEDY = 'only {{.Field}} is filled in; write {{"{{"}} for two braces that are meant'


class Hole(msgspec.Struct, frozen=True):
    """The place of a field's value."""

    field: str


class GoTemplate(msgspec.Struct, frozen=True):
    """A parsed template."""

    parts: tuple[bytes | Hole, ...]

    @property
    def fields(self) -> frozenset[str]:
        """The fields that the template uses."""
        return frozenset(part.field for part in self.parts if isinstance(part, Hole))

    def fill(self, values: Mapping[str, str]) -> bytes:
        """Return the text with the fields' values; values must contain all of `fields`."""
        return b"".join(
            values[part.field].encode() if isinstance(part, Hole) else part for part in self.parts
        )


def parse_template(source: bytes, fields: Collection[str], place: str) -> GoTemplate:
    """Parse a template. fields: the permitted ones. Raises BadInput with place, line
    and column (of the `{{`)."""
    parts: list[bytes | Hole] = []
    at, trimming = 0, False
    while True:
        start = source.find(b"{{", at)
        text = source[at:] if start < 0 else source[at:start]
        text = text.lstrip(_BLANKS) if trimming else text
        if start < 0:
            return GoTemplate((*parts, text) if text else tuple(parts))
        try:
            trims_before, part, at, trimming = _action(source, start + 2, fields)
        except BadInput as mistake:
            line, column = source.count(b"\n", 0, start) + 1, start - source.rfind(b"\n", 0, start)
            where = f"{place}: line {line}, column {column}"
            raise BadInput(where, mistake.problem, mistake.remedy) from None
        text = text.rstrip(_BLANKS) if trims_before else text
        parts.extend(item for item in (text, part) if item)


def _action(
    source: bytes, at: int, fields: Collection[str]
) -> tuple[bool, bytes | Hole, int, bool]:
    """Return whether the text before is trimmed, the action's content, its end, and whether
    the text after is trimmed."""
    if comment := _COMMENT.match(source, at):
        end = (
            _END.match(source, closed + 2)
            if (closed := source.find(b"*/", comment.end())) >= 0
            else None
        )
        if end is None:
            raise BadInput("", "a comment does not end with */}}", "write {{/* … */}}")
        return source[at : at + 1] == b"-", b"", end.end(), end[1] is not None
    action = _ACTION.match(source, at)
    if action is None:
        unclosed = source.find(b"}}", at) < 0
        raise BadInput(
            "",
            "{{ is not closed by }}" if unclosed else "an action that is not supported here",
            _REMEDY,
        )
    part: bytes | Hole
    if action["field"] is not None:
        name = action["field"].decode()
        if name not in fields:
            shown = name if len(name) <= 40 else "of that name"
            raise BadInput("", f"there is no field {shown}", f"the fields are {', '.join(fields)}")
        part = Hole(name)
    else:
        part = (
            action["raw"].replace(b"\r", b"")
            if action["text"] is None
            else _unquoted(action["text"])
        )
    return action["trim"] is not None, part, action.end(), action["trimmed"] is not None


def _unquoted(text: bytes) -> bytes:
    """Return the value of a Go string literal."""

    def replace(match: re.Match[bytes]) -> bytes:
        letter, octal, byte, short, long = match.groups()
        if letter:
            return bytes((_LETTERS[letter],))
        if octal or byte:
            return bytes((int(octal, 8) if octal else int(byte, 16),))
        try:
            return chr(int(short or long or b"", 16)).encode()
        except (ValueError, OverflowError):
            # not a Go escape, half a surrogate pair, or beyond Unicode
            raise BadInput("", "a string has an escape that Go does not know", _REMEDY) from None

    return _ESCAPE.sub(replace, text)


# -- script

MOST_BYTES = 65536
"""Maximum bytes of a rendered script. The vendor names no limit of its own; other
vendors take 16 to 64 KiB."""

_ID, _SECRET, _ENDPOINT, _POOL = (
    "BootstrapTokenID",
    "BootstrapTokenSecret",
    "APIServerEndpoint",
    "NodeGroup",
)
_SCRIPT_FIELDS = (_ID, _SECRET, _ENDPOINT, _POOL)
# changes with what `fingerprint` contains: older tags then prove nothing
_FINGERPRINT_PREFIX = "v1-"


def needs_token(definition: Definition) -> bool:
    """Whether the script uses a bootstrap token. Raises BadInput as check does."""
    return bool(_template(definition).fields & {_ID, _SECRET})


def check(definition: Definition) -> None:
    """Raise BadInput for a script that cannot be rendered."""
    if _ENDPOINT in _template(definition).fields and not definition.api_server_endpoint:
        raise BadInput(
            _place(definition),
            f"asks for {_ENDPOINT}, and api-server-endpoint is not set",
            "add it to the default definition, like 203.0.113.10:6443",
        )
    _script(definition, "x" * 6, "x" * 16)


def labels_pool(definition: Definition) -> bool:
    """Whether the script seems to set the label `pool` that a template promises. Raises BadInput as
    check does. True if there is no script, because the image may set the label."""
    return not definition.cloudinit or b"pool=" in _decoded(definition)


def user_data(definition: Definition, token: Token | None) -> str:
    """Return the user data of the request in base64 (standard alphabet, padded, one
    line); "" without a script. It contains the token. token: may be None if needs_token
    is False. Raises BadInput."""
    if token is None and needs_token(definition):
        problem = "needs a bootstrap token, but none is configured"
        raise BadInput(_place(definition), problem, "see bootstrapTokenSecret")
    script = (
        _script(definition, token.id, token.secret.reveal())
        if token
        else _script(definition, "", "")
    )
    return base64.b64encode(script).decode("ascii")


def fingerprint(definition: Definition) -> str:
    """Return the value of a new server's tag outscaler-definition: equal for definitions that make
    equal machines. The host name, the bootstrap token and what only the planner reads do not count.
    Raises BadInput as check does."""
    machine = (
        definition.plan,
        definition.region,
        definition.os,
        definition.spot,
        definition.os_partition_size,
        sorted(set(definition.ssh_key_ids)),
        hashlib.sha256(_script(definition, "", "")).hexdigest(),
    )
    return _FINGERPRINT_PREFIX + hashlib.sha256(msgspec.json.encode(machine)).hexdigest()[:16]


def is_fingerprint(text: str) -> bool:
    """Whether a tag's value can be compared with `fingerprint`; another version's, or
    a person's text, cannot."""
    return re.fullmatch(_FINGERPRINT_PREFIX + "[0-9a-f]{16}", text) is not None


def _script(definition: Definition, token_id: str, token_secret: str) -> bytes:
    values = {
        _ID: token_id,
        _SECRET: token_secret,
        _ENDPOINT: definition.api_server_endpoint,
        _POOL: definition.pool,
    }
    script = _template(definition).fill(values)
    if len(script) > MOST_BYTES:
        raise BadInput(
            _place(definition), f"is {len(script)} bytes long", f"keep it under {MOST_BYTES} bytes"
        )
    return script


def _template(definition: Definition) -> GoTemplate:
    return parse_template(_decoded(definition), _SCRIPT_FIELDS, _place(definition))


def _decoded(definition: Definition) -> bytes:
    """Decode base64 as Go does: embedded line breaks are ignored, any other
    invalid character is an error."""
    try:
        text = definition.cloudinit.replace("\r", "").replace("\n", "").encode("ascii")
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput(
            _place(definition), "is not base64", "encode the script, such as by `base64 -w0`"
        ) from None


def _place(definition: Definition) -> str:
    return f"pool {definition.pool}: cloudinit"


# -- host name

DEFAULT_PATTERN = "k8s-{{.ClusterName}}-{{.NodeGroup}}-{{.RandString8}}"

_HOSTNAME_LETTERS = "acdefghijklmnopqrstuvwxyz"  # upstream's alphabet, which has no b
_COUNT = 8
_RANDOM = "RandString8"
_NAME_FIELDS = ("ClusterName", "NodeGroup", _RANDOM)
_LONGEST_HOSTNAME = 63
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*\Z", re.ASCII)


def letters_for(seed: str) -> str:
    """Return eight letters, always the same for the same seed: the operation determines the names
    of its servers, so they can be found again after a crash."""
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest())
    letters = ""
    for _ in range(_COUNT):
        number, rest = divmod(number, len(_HOSTNAME_LETTERS))
        letters += _HOSTNAME_LETTERS[rest]
    return letters


def hostname(definition: Definition, letters: str) -> str:
    """Return the pattern with all fields filled in. Raises BadInput if the result
    is not a valid node name."""
    values = {
        "ClusterName": definition.cluster_name,
        "NodeGroup": definition.pool,
        _RANDOM: letters,
    }
    place = f"pool {definition.pool}: hostname-pattern"
    pattern = parse_template(definition.hostname_pattern.encode(), _NAME_FIELDS, place)
    if _RANDOM not in pattern.fields:
        raise BadInput(place, "gives all machines one name", f"put {{{{.{_RANDOM}}}}} into it")
    name = pattern.fill(values).decode("utf-8", "replace")
    if len(name) > _LONGEST_HOSTNAME or not _NAME.match(name):
        raise BadInput(
            place,
            f"gives {name[:100]!r}, which cannot be the name of a node",
            f"give the pool a pattern of its own, like k8s-a-{{{{.{_RANDOM}}}}}, that makes small "
            "letters, "
            f"digits and inner dashes, at most {_LONGEST_HOSTNAME} in all",
        )
    return name
