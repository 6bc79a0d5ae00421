"""Unused code of what is deployed and of infra: `python -m
infra.tools.unused_code`, part of `make test`.

Tests are not users of chalicelib and app.py: code that only a test calls is unused. They are users
of infra, whose emulators exist for them. Exit code 1 names each unused definition that no exception
here names, and each exception that nothing needs any more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import msgspec
from vulture import Vulture


class UnusedException(msgspec.Struct, frozen=True):
    """Patterns (fnmatch) of the files and names that an exception is for."""

    files: str
    names: tuple[str, ...]
    reason: str


EXCEPTIONS = (
    UnusedException("app.py", ("dont_write_bytecode",), "a setting of the interpreter"),
    UnusedException("chalicelib/cli/main.py", ("FINDING",),
                    "one exit code of several that are set together"),
    UnusedException("chalicelib/cli/main.py", ("_split_lines", "_check_value"),
                    "argparse calls these"),
    UnusedException(
        "chalicelib/cli/ui_server.py",
        (
            "daemon_threads",
            "request_queue_size",
            "handle_error",
            "server_version",
            "sys_version",
            "do_GET",
            "do_HEAD",
            "log_message",
        ),
        "http.server uses these by name",
    ),
    UnusedException("chalicelib/functions/act.py", ("act_*",), "AWS Lambda enters these by name"),
    UnusedException("chalicelib/cluster/transport.py", ("verify_flags", "check_hostname"),
                    "settings of an SSLContext"),
    UnusedException("chalicelib/net/sockets.py", ("sslsocket_class",),
                    "a setting of an SSLContext"),
    UnusedException(
        "chalicelib/net/http_session.py",
        ("_new_conn", "ConnectionCls", "pool_classes_by_scheme", "cert_verify", "conn", "trust_env",
         "get_redirect_target"),
        "requests and urllib3 call and read these",
    ),
    UnusedException("chalicelib/model/disruption_reason.py", ("_value_",), "enum reads it"),
    UnusedException("chalicelib/model/reason.py", ("_value_",), "enum reads it"),
    UnusedException("chalicelib/model/health.py", ("POD_*",),
                    "found by their stable words, in OF_PODS"),
    UnusedException("chalicelib/page/render.py", ("runbook",), "templates use it"),
    UnusedException("chalicelib/views/rows.py", ("due_line",), "a template uses it"),
    UnusedException("chalicelib/views/cost_view.py", ("per_hour",), "a field of the JSON form"),
    UnusedException(
        "chalicelib/runtime/tracing.py",
        ("end_time", "trace_id", "parent_id", "subsegments"),
        "fields of X-Ray's segments",
    ),
    UnusedException("chalicelib/policy/go_patterns.py", ("log_errors", "max_mem", "never_capture"),
                    "options of re2"),
    UnusedException(
        "chalicelib/policy/vendors/*.py",
        ("reserved_*", "observe_secret"),
        "keys of the document, read by name (policy/vendors/settings.py, policy/secret_names.py)",
    ),
    UnusedException(
        "chalicelib/providers/*/decoding.py",
        ("activity_type", "end_time",
         "instance_type_family", "local_storage_amount", "region_id", "removing_capacity",
         "removing_wait_capacity",
         "unit_price", "region_iso_2", "href", "raid", "nics", "ip_addresses", "spot_market"),
        "fields of the vendors' answers and requests",
    ),
    UnusedException(
        "chalicelib/providers/huaweicloud/api.py", ("desired_node_count",),
        "fields of a request",
    ),
    UnusedException(
        "chalicelib/shadow/records.py",
        ("wanted_at", "resumed"),
        (
            "fields of stored rows: the place of one in rows of earlier releases, and a change "
            "that makes a row be written"
        ),
    ),
    UnusedException("chalicelib/store/tables.py", ("attr_type", "deserialize"),
                    "PynamoDB reads and calls these"),
    UnusedException("infra/aws/artifact.py", ("compress_type", "external_attr"),
                    "fields of an entry of a zip"),
    UnusedException("infra/aws/template_check.py", ("BOTO_SESSION_REGION_NAME",),
                    "a setting of cfn-lint"),
    UnusedException("infra/emulators/*server.py", ("*",),
                    "http.server and socketserver call and read these"),
    UnusedException("infra/emulators/tcp_servers.py", ("block_on_close", "daemon_threads"),
                    "socketserver reads these"),
    UnusedException("infra/tools/screenshots.py", ("do_GET", "log_message"),
                    "http.server uses these by name"),
    UnusedException("infra/release/wheel_build.py", ("*Package*",),
                    "setuptools takes these from pyproject.toml"),
    UnusedException("infra/emulators/fake_provider.py", ("exc",),
                    "a parameter of the context manager protocol"),
    UnusedException(
        "infra/emulators/lambda_events.py",
        ("memory_limit_in_mb", "invoked_function_arn"),
        "the context that AWS Lambda passes to functions",
    ),
    UnusedException("infra/emulators/memory_table.py", ("batch_get_item", "update_item"),
                    "called by operation name"),
    UnusedException("infra/emulators/moto_gaps/*.py", ("*",), "moto calls and reads these"),
)  # fmt: skip


ROOT = Path(__file__).resolve().parents[2]
_CONFIDENCE = 60  # percent; vulture gives 60 to every definition that nothing names
#: Folders in which unused code is looked for -> folders whose code counts as its user, beside
#: those of the rows above.
_RUNS = (
    (("app.py", "chalicelib"), ("app.py", "chalicelib", "infra")),
    (("infra",), ("tests",)),
)


class UnusedDefinition(msgspec.Struct, frozen=True, order=True):
    """A definition that nothing names. file: relative to the repository."""

    file: str
    line: int
    kind: str
    name: str


def unused(root: Path = ROOT) -> list[UnusedDefinition]:
    found: list[UnusedDefinition] = []
    vulture = Vulture(
        ignore_decorators=["@*.route", "@*.lambda_function", "@*.on_*", "@pytest.fixture"]
    )
    for searched, users in _RUNS:
        vulture.scavenge([str(root / each) for each in users if (root / each).exists()])
        for item in vulture.get_unused_code(min_confidence=_CONFIDENCE):
            file = Path(item.filename).relative_to(root).as_posix()
            if file.startswith(searched):
                found.append(UnusedDefinition(file, item.first_lineno, item.typ, item.name))
    return sorted(found)


def findings(
    found: Sequence[UnusedDefinition], exceptions: Sequence[UnusedException] = EXCEPTIONS
) -> list[str]:
    """One line for each definition that is not excepted and each pattern of an
    exception that matches nothing."""
    problems = []
    needed: set[tuple[str, str]] = set()
    for each in found:
        matching = [
            (exception.files, name)
            for exception in exceptions
            for name in exception.names
            if fnmatch(each.file, exception.files) and fnmatch(each.name, name)
        ]
        needed.update(matching)
        if not matching:
            problems.append(f"{each.file}:{each.line}: unused {each.kind} {each.name}")
    problems += [
        (
            f"infra/tools/unused_code.py: {exception.files}: {name} is used or gone; delete the "
            "exception"
        )
        for exception in exceptions
        for name in exception.names
        if (exception.files, name) not in needed
    ]
    return problems


def main() -> int:
    """Print the findings; 1 if there are any."""
    problems = findings(unused())
    sys.stdout.write("".join(f"{line}\n" for line in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
