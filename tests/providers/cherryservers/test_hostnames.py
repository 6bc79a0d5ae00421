"""Hostnames of new machines."""

from __future__ import annotations

import msgspec

from chalicelib.providers.cherryservers.pool_definition import hostname, letters_for
from tests.cases import each_row
from tests.providers.cherryservers.config_documents import definition, refused

DEFINITION = definition()


def test_cherry_hostname_without_a_pattern_uses_the_readmes_default() -> None:
    assert hostname(DEFINITION, "gndxdmmw") == "k8s-cluster2-pool3-gndxdmmw"


def test_cherry_hostname_has_eight_letters_without_b_fixed_by_its_seed() -> None:
    found = {letters_for(f"op-1/{n}") for n in range(2000)}
    assert len(found) == 2000
    assert {letter for letters in found for letter in letters} == set("acdefghijklmnopqrstuvwxyz")
    assert {len(letters) for letters in found} == {8}
    assert letters_for("op-1/7") == letters_for("op-1/7")


def test_cherry_hostname_letters_of_a_seed_never_change() -> None:
    """Machines are found by them, also by a later version."""
    assert letters_for("op-1/0") == "djrdjwup"


@each_row(
    ("pattern", "name"),
    [
        ("{{.RandString8}}", "gndxdmmw"),
        ("w-{{ .RandString8 }}.{{.ClusterName}}.example", "w-gndxdmmw.cluster2.example"),
        ("{{.NodeGroup -}} - {{- .RandString8}}", "pool3-gndxdmmw"),
    ],
)
def test_cherry_hostname_patterns_that_are_valid(pattern: str, name: str) -> None:
    assert (
        hostname(msgspec.structs.replace(DEFINITION, hostname_pattern=pattern), "gndxdmmw") == name
    )


@each_row(
    ("pattern", "problem"),
    [
        ("k8s-{{.NodeGroup}}", "gives all machines one name"),
        ("K8s-{{.RandString8}}", "which cannot be the name of a node"),
        ("k8s_{{.RandString8}}", "which cannot be the name of a node"),
        ("-{{.RandString8}}", "cannot be"),
        ("{{.RandString8}}.", "cannot be"),
        ("a..{{.RandString8}}", "cannot be"),
        ("{{.RandString8}} x", "cannot be"),
        ("ä{{.RandString8}}", "cannot be"),
        ("a" * 56 + "{{.RandString8}}", "at most 63"),
        ("{{.Random}}", "there is no field Random"),
        ("{{.BootstrapTokenSecret}}-{{.RandString8}}", "there is no field"),
    ],
)
def test_cherry_hostname_pattern_that_is_invalid_is_an_error_of_its_pool(
    pattern: str, problem: str
) -> None:
    message = refused(lambda: definition(f'hostname-pattern="{pattern}"'))
    assert message.startswith("pool pool3: hostname-pattern")
    assert problem in message


def test_cherry_pool_with_a_name_invalid_in_hostnames_needs_its_own_pattern() -> None:
    assert "k8s-cluster2-Pool_3-" in refused(lambda: definition(pool="Pool_3"))
    assert definition("hostname-pattern=k8s-{{.RandString8}}", pool="Pool_3").pool == "Pool_3"
