"""Units are read with systemd's quotes, prefixes and variables."""

from __future__ import annotations

import pytest

from chalicelib.command.importers.autoscaler_input import AutoscalerInput
from chalicelib.command.importers.unit_file import environment_files, is_unit, read_unit
from chalicelib.model.errors import InputErrors
from tests.cases import each_row


def read(*lines: str, **others: str) -> AutoscalerInput | None:
    text = "\n".join(["[Service]", *lines])
    assert is_unit(text)
    return read_unit("a.service", text, others, {}, "")


def words(*lines: str) -> list[str]:
    found = read(*lines)
    assert found is not None
    return [argument.word for argument in found.arguments]


@each_row(
    "start",
    [
        "ExecStart=/bin/cluster-autoscaler --v=4",
        "ExecStart = /bin/cluster-autoscaler --v=4",
        "ExecStart=-/bin/cluster-autoscaler --v=4",
        "ExecStart=@/bin/cluster-autoscaler any-name --v=4",
        "ExecStart=+!:/bin/cluster-autoscaler --v=4",
        'ExecStart="/bin/cluster-autoscaler" "--v=4"',
        "ExecStart=/bin/cluster-autoscaler '--v\\x3d4'",
        "ExecStart=/bin/sh -c 'exec /bin/cluster-autoscaler --v=4 >/dev/null'",
        "ExecStart=/bin/cluster-autoscaler \\\n  ; a comment\n\\\n  --v=4",
        "ExecStart=/usr/bin/docker run --rm image/cluster-autoscaler --v=4",
    ],
)
def test_the_start_command_of_a_unit_is_read(start: str) -> None:
    assert words(start) == ["--v=4"]


def test_an_empty_start_command_resets_those_before_it() -> None:
    assert words(
        "ExecStart=/bin/cluster-autoscaler --v=1", "ExecStart=", "ExecStart=/bin/cluster-autoscaler --v=2"
    ) == ["--v=2"]


@each_row(
    "written, found",
    [
        ("--cluster-name=${NAME}", ["--cluster-name=a b"]),
        ("--cluster-name=$NAME", ["--cluster-name=a b"]),
        ("$FLAGS", ["--v=1", "--v=2"]),
        ("--cluster-name=$$NAME", ["--cluster-name=$NAME"]),
        ("--cluster-name=100%%", ["--cluster-name=100%"]),
    ],
)
def test_variables_of_a_unit_are_replaced(written: str, found: list[str]) -> None:
    lines = ('Environment="NAME=a b" OTHER=1', "Environment=FLAGS='--v=1 --v=2'")
    if "$$" in written:
        with pytest.raises(InputErrors, match="placeholder"):
            words(*lines, f"ExecStart=/bin/cluster-autoscaler {written}")
        return
    assert words(*lines, f"ExecStart=/bin/cluster-autoscaler {written}") == found


def test_an_environment_file_is_found_by_its_name() -> None:
    lines = ("EnvironmentFile=-/etc/default/ca", "ExecStart=/bin/cluster-autoscaler --cluster-name=${NAME}")
    assert environment_files("\n".join(lines)) == ["/etc/default/ca"]
    found = read(*lines, **{"files/ca": "; a comment\nNAME='orchard'\nREGION_ID=x\n"})
    assert found is not None
    assert [each.value for each in found.arguments] == ["orchard"]
    assert ("files/ca:3", "REGION_ID", "x") in [(each.place, each.name, each.value) for each in found.variables]


def test_a_specifier_is_refused_with_its_line() -> None:
    with pytest.raises(InputErrors) as refused:
        read("ExecStart=/bin/cluster-autoscaler \\", "  --cluster-name=%i")
    assert str(refused.value).startswith("a.service:3: '--cluster-name=%i' has the specifier '%i'")


def test_a_unit_of_another_program_has_no_configuration() -> None:
    assert read("ExecStart=/usr/bin/web --v=4") is None
