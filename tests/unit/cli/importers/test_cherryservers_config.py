"""The report names mistakes of a cloud-config of Cherry Servers, which is not in the policy."""

from __future__ import annotations

import msgspec

from chalicelib.cli.migrate.autoscaler_input import FileMount, ImportArguments
from chalicelib.cli.migrate.autoscaler_policy import Converted, convert
from chalicelib.cli.migrate.report import Verdict
from tests.cases import each_row
from tests.unit.cli.importers.autoscaler_inputs import autoscaler

FLAGS = (
    "--cloud-provider=cherryservers",
    "--cluster-name=a",
    "--cloud-config=/config/cloud-config",
)
DEFAULT = (
    '[nodegroupdef "default"]\nproject-id=1\nregion=eu_nord_1\nplan=e5_1620v4\nos=ubuntu_18_04\n'
)


def imported(text: str | None, *flags: str) -> Converted:
    read = autoscaler(*FLAGS, *(flags or ("--nodes=0:10:pool1",)))
    mount = FileMount(
        "deploy.yaml:40", "/config/cloud-config", "kube-system/cherry", "cloud-config", text=text
    )
    return convert(msgspec.structs.replace(read, mounts=(mount,)), ImportArguments(name="shop"))


def rows(found: Converted) -> str:
    return "\n".join(f"{row.verdict} | {row.word} | {row.text}" for row in found.rows)


@each_row(
    "text, row",
    [
        (
            DEFAULT,
            (
                'read | line 1: [nodegroupdef "default"] | project-id 1, region eu_nord_1, plan '
                "e5_1620v4"
            ),
        ),
        (DEFAULT, "told | pool pool1 | has no section of its own: it is made as default"),
        (
            DEFAULT,
            (
                "told | region eu_nord_1, plan e5_1620v4, os ubuntu_18_04 | outscaler doctor asks "
                "the vendor"
            ),
        ),
        (
            DEFAULT + '[nodegroupdef "pool1"]\nplan=x\n',
            "leaves out region, os: Cluster Autoscaler sent empty values",
        ),
        (
            DEFAULT + '[nodegroupdef "pool1"]\nproject-id=2\n',
            "told | line 7: project-id | differs from that",
        ),
        (
            DEFAULT + "[Global]\nregion=x\n",
            'told | line 6: [Global] | ignored, because [nodegroupdef "default"]',
        ),
        ("[Global]\nregion=eu_nord_1\n", "read | line 1: [Global] | region eu_nord_1"),
        (
            "[Global]\napi-server=1.2.3.4:6443\n",
            "line 2: api-server | is not a key of a cloud-config: write api",
        ),
        ("[Global]\nreigon=a\n", "line 2: reigon | is not a key of a cloud-config: write region"),
        (
            "[Global]\nproject-id=YOUR_PROJECT_ID\n",
            "line 2: project-id | project-id is YOUR_PROJECT_ID: a placeholder",
        ),
        ("[Global]\nregion=eu ; near\nwords\nos=a\n", "read | line 1: [Global] | region eu, os a"),
        ("", "told | pool pool1 | has no section of its own"),
        (None, "told | cloud-config | its text is not in the input"),
    ],
)
def test_IMP_33_sections_of_a_cloud_config_are_described(text: str | None, row: str) -> None:
    assert row in rows(imported(text))


def test_the_vendors_hostname_pattern_is_no_placeholder() -> None:
    pattern = "hostname-pattern=k8s-{{.ClusterName}}-{{.NodeGroup}}-{{.RandString8}}\n"
    assert "a placeholder" not in rows(imported(DEFAULT + pattern))
    assert "hostname-pattern is k8s-{{.Values.a}}: a placeholder" in rows(
        imported(DEFAULT + "hostname-pattern=k8s-{{.Values.a}}\n")
    )
    assert "plan is {{.NodeGroup}}: a placeholder" in rows(
        imported(DEFAULT + "plan={{.NodeGroup}}\n")
    )


@each_row(
    "text, missing",
    [
        (None, True),
        (DEFAULT, True),
        (DEFAULT + "cluster-name=a\n", False),
        (DEFAULT + 'cluster-name=a\n[nodegroupdef "pool1"]\nplan=x\n', True),
        (DEFAULT + 'cluster-name=a\n[nodegroupdef "pool1"]\ncluster-name=b\n', False),
        ("[Global]\ncluster-name=a\n", False),
    ],
)
def test_a_cluster_without_a_name_is_missing_unless_each_section_names_it(
    text: str | None, missing: bool
) -> None:
    read = autoscaler(
        "--cloud-provider=cherryservers",
        "--cloud-config=/config/cloud-config",
        "--nodes=0:10:pool1",
    )
    mount = FileMount(
        "deploy.yaml:40", "/config/cloud-config", "kube-system/cherry", "cloud-config", text=text
    )
    found = convert(msgspec.structs.replace(read, mounts=(mount,)), ImportArguments(name="shop"))
    assert ("missing | no --cluster-name" in rows(found)) is missing


def test_pools_with_their_own_sections_inherit_without_a_remark() -> None:
    own = DEFAULT.replace("default", "pool1")
    found = rows(imported(DEFAULT + own))
    assert "leaves out" not in found
    assert "differs" not in found
    assert "section of its own" not in found


def test_scripts_of_a_cloud_config_are_in_no_row() -> None:
    found = rows(imported(DEFAULT + "cloudinit=aHVzaA==\nssh-key-ids=hush\n"))
    assert "aHVzaA" not in found
    assert "hush" not in found
    assert "is not a key" not in found


def test_hostile_cloud_configs_stay_within_their_limits() -> None:
    found = imported(
        "\n".join(f'[nodegroupdef "p{at}"]\nregion={"x" * 5000}' for at in range(3000))
    )
    assert len(found.rows) < 1000


def test_three_removal_times_of_one_minute_are_told_to_be_for_trying_out() -> None:
    times = ("--scale-down-unneeded-time=1m", "--scale-down-delay-after-add=1m")
    assert "three removal times" not in rows(imported(DEFAULT, *times))
    found = imported(DEFAULT, *times, "--scale-down-unready-time=60s")
    told = [row.text for row in found.rows if row.word == "three removal times of one minute"]
    assert told == [
        (
            "the vendor's example has them for trying out; Cluster Autoscaler's defaults are 10m, "
            "10m and 20m"
        )
    ]


def test_a_longer_time_to_join_is_advised() -> None:
    found = imported(DEFAULT)
    assert any(
        "maxNodeProvisionTime: 1h" in row.text and row.verdict is Verdict.TOLD for row in found.rows
    )
