"""Pool definitions: default, inheritance, errors of one pool and of all."""

from __future__ import annotations

import pytest

from chalicelib.model.secret import SecretUnavailable
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.providers import registry
from chalicelib.providers.cherryservers.pool_definition import Definition
from tests.cases import each_row
from tests.providers.cherryservers.config_documents import (
    HEAD,
    SCRIPT,
    WHOLE,
    definition,
    definitions,
    encoded,
    refused,
    settings,
)


def test_cherry_pool_definition_is_read_from_the_file() -> None:
    assert definition(
        f"ssh-key-ids=101\nssh-key-ids=102\nos-partition-size=60\ncloudinit={encoded(SCRIPT)}\n"
        "hostname-pattern=w-{{.RandString8}}\nspot-market=true\ncpu-override=32"
    ) == Definition(
        pool="pool3",
        cluster_name="cluster2",
        project_id=10001,
        api_server_endpoint="203.0.113.10:6443",
        region="eu_nord_1",
        plan="e5_1620v4",
        os="ubuntu_18_04",
        ssh_key_ids=(101, 102),
        cloudinit=encoded(SCRIPT),
        hostname_pattern="w-{{.RandString8}}",
        os_partition_size=60,
        spot=True,
        cpu_override=32,
    )


def test_cherry_default_section_is_global_unless_another_is_named_default() -> None:
    common = f"[Global]\n{HEAD}plan=from-global\nssh-key-ids=1\n"
    assert definitions(common).of("pool3").plan == "from-global"
    both = definitions(f"{common}{WHOLE}").of("pool3")
    assert (both.plan, both.ssh_key_ids) == ("e5_1620v4", ())
    message = refused(lambda: definitions(f'[nodegroupdef "pool3"]\n{HEAD}'))
    assert message.startswith("providers.cherryservers.cloudConfig: has no default definition; ")
    assert "empty default" in refused(lambda: definitions("[Global]\nos=x\nssh-key-ids=1\n"))
    assert "has no default" in refused(lambda: definitions(""))


@pytest.mark.parametrize("key", ["cluster-name", "cloudinit", "region", "plan", "project-id"])
def test_cherry_one_key_of_a_pool_makes_a_default_definition(key: str) -> None:
    message = refused(lambda: definitions(f"[Global]\n{key}=1\n").of("pool3"))
    assert "empty default" not in message


def test_cherry_four_configuration_errors_are_each_reported() -> None:
    assert refused(lambda: definition("api-server=203.0.113.10:6443")) == (
        "providers.cherryservers.cloudConfig: line 7: there is no key api-server; "
        "upstream's README means api-server-endpoint; write that"
    )
    message = refused(lambda: definition("ssh-key-ids=101\nssh-key-ids=a1"))
    assert message.startswith(
        "providers.cherryservers.cloudConfig: line 8: ssh-key-ids: number 2 is 'a1'; "
    )
    assert refused(lambda: definition(cluster="")).startswith(
        "providers.cherryservers.clusterName: is missing"
    )
    # the fourth, the token, is in test_settings.py


def test_cherry_pool_without_a_section_is_the_default_with_its_own_name() -> None:
    found = definitions(f"{WHOLE}ssh-key-ids=101\n")
    first, second = found.of("pool9"), found.of("default")
    assert (first.pool, second.pool) == ("pool9", "default")
    assert {(each.plan, each.cluster_name, each.ssh_key_ids) for each in (first, second)} == {
        ("e5_1620v4", "cluster2", (101,))
    }


def test_cherry_unset_fields_of_a_pool_are_inherited() -> None:
    pool = definitions(
        f"{WHOLE}ssh-key-ids=101\ncloudinit={encoded(SCRIPT)}\nos-partition-size=60\n"
        '[nodegroupdef "pool2"]\nplan=e3_1240v3\nos-partition-size=0\nregion=\n'
    ).of("pool2")
    assert (pool.plan, pool.region, pool.os, pool.ssh_key_ids) == (
        "e3_1240v3",
        "eu_nord_1",
        "ubuntu_18_04",
        (101,),
    )
    assert (pool.cloudinit, pool.os_partition_size) == (encoded(SCRIPT), 0)
    assert pool.hostname_pattern == "k8s-{{.ClusterName}}-{{.NodeGroup}}-{{.RandString8}}"


def test_cherry_pool_without_plan_region_or_os_is_refused_alone() -> None:
    found = definitions(
        '[Global]\nproject-id=1\n[nodegroupdef "a"]\nplan=p\nregion=r\nos=o\n[nodegroupdef "b"]\n'
        "region=r\n"
    )
    assert found.of("a").plan == "p"
    assert refused(lambda: found.of("b")).startswith(
        'providers.cherryservers.cloudConfig: [nodegroupdef "b"]: pool b has no plan, no os; '
    )
    assert "pool c has no plan, no region, no os" in refused(lambda: found.of("c"))


def test_cherry_list_is_inherited_as_a_whole_and_can_be_emptied() -> None:
    found = definitions(
        f'{WHOLE}ssh-key-ids=1\n[nodegroupdef "a"]\nssh-key-ids=2\n[nodegroupdef "b"]\n'
        "ssh-key-ids\n"
    )
    assert [found.of(pool).ssh_key_ids for pool in ("a", "b", "c")] == [(2,), (), (1,)]


def test_cherry_sections_of_one_name_are_merged_and_pool_names_are_case_sensitive() -> None:
    found = definitions(
        f'{WHOLE}[nodegroupdef "a"]\nplan=x\nssh-key-ids=1\n[NODEGROUPDEF "a"]\nPLAN=y\n'
        "ssh-key-ids=2\n"
        '[nodegroupdef "A"]\nplan=z\nhostname-pattern={{.RandString8}}\n'
    )
    assert (found.of("a").plan, found.of("a").ssh_key_ids) == ("y", (1, 2))
    assert found.of("A").plan == "z"


def test_cherry_section_without_a_name_is_a_pool_without_a_name_as_upstream() -> None:
    assert definitions(f"{WHOLE}[nodegroupdef]\nplan=x\n").of("pool3").plan == "e5_1620v4"


@each_row(
    ("line", "problem"),
    [
        ("planet=x", "there is no key planet; did you mean plan"),
        ("plan", "plan has no value"),
        ('[Global "x"]', "there is no section global"),
        ("[nodegroup]", "there is no section nodegroup"),
        ("secretword1=2", "there is no key of that name"),
    ],
)
def test_cherry_unknown_key_fails_the_whole_file_by_its_line(line: str, problem: str) -> None:
    message = refused(lambda: definitions(f'{WHOLE}{line}\n[nodegroupdef "pool3"]\n{HEAD}'))
    assert message.startswith("providers.cherryservers.cloudConfig: line 7: ")
    assert problem in message


@each_row(
    ("line", "problem"),
    [
        ("os-partition-size=1e3", "os-partition-size is '1e3'"),
        ("os-partition-size=-1", "os-partition-size is '-1'"),
        ("spot-market=maybe", "spot-market is neither"),
        ("cpu-override=99999", "cpu-override is '99999'"),
        ("ssh-key-ids=1,2", "number 1 is '1,2'"),
        ("ssh-key-ids=2147483648", "number 1 is"),
        ("ssh-key-ids=", "number 1"),
        ("plan=é", "plan contains special characters"),
        ("cluster-name=a b", "cannot name a cluster"),
    ],
)
def test_cherry_invalid_value_is_an_error_of_its_pool(line: str, problem: str) -> None:
    found = definitions(f'{WHOLE}[nodegroupdef "bad"]\n{line}\n')
    message = refused(lambda: found.of("bad"))
    assert problem in message
    assert "line 8" in message
    assert found.of("pool3").pool == "pool3"


def test_cherry_spot_market_without_a_value_is_true_as_in_git_config() -> None:
    assert definition("spot-market").spot
    assert not definition("spot-market=off").spot


@each_row("line", ["project-id=10002", "api-server-endpoint=198.51.100.1:6443"])
def test_cherry_pool_specific_project_or_endpoint_is_refused(line: str) -> None:
    found = definitions(
        f'{WHOLE}[nodegroupdef "b"]\n{line}\n[nodegroupdef "c"]\nproject-id=10001\n[nodegroupdef '
        '"d"]\nproject-id=0\n'
    )
    message = refused(lambda: found.of("b"))
    assert "line 8" in message
    assert f"{line.partition('=')[0]} differs from the default definition's" in message
    assert {found.of(pool).project_id for pool in "cd"} == {10001}


def test_cherry_project_may_be_in_the_settings() -> None:
    without = WHOLE.replace("project-id=10001\n", "")
    assert definitions(without, project=7).project == 7
    assert definitions(WHOLE, project=10001).of("pool3").project_id == 10001
    assert "differs from project-id 10001" in refused(lambda: definitions(WHOLE, project=7))
    assert refused(lambda: definitions(without)).startswith(
        "providers.cherryservers.projectId: is missing"
    )
    assert "project-id is 'x'" in refused(lambda: definitions(f"{WHOLE}project-id=x\n"))


def test_cherry_cluster_name_comes_from_pool_then_settings_then_default() -> None:
    text = (
        f'{WHOLE}cluster-name=of-default\n[nodegroupdef "a"]\ncluster-name=of-a\n[nodegroupdef '
        '"b"]\nplan=x\n'
    )
    found = definitions(text, cluster="of-settings")
    assert [found.of(pool).cluster_name for pool in "abc"] == ["of-a", "of-settings", "of-default"]
    alone = definitions(text, cluster="")
    assert [alone.of(pool).cluster_name for pool in "abc"] == ["of-a", "of-default", "of-default"]


def test_cherry_cluster_name_is_required_only_for_pools_without_one() -> None:
    found = definitions(f'{WHOLE}[nodegroupdef "a"]\ncluster-name=of-a\n', cluster="")
    assert found.of("a").cluster_name == "of-a"
    assert "pool b has no cluster-name" in refused(lambda: found.of("b"))


def test_cherry_definitions_may_be_in_a_secret() -> None:
    read = {"config": WHOLE}.__getitem__
    assert definitions(secret="config", read=read).of("pool3").plan == "e5_1620v4"
    wrong = {"config": f"{WHOLE}api-server=1\n"}.__getitem__
    assert refused(lambda: definitions(secret="config", read=wrong)).startswith(
        "secret config: line 7: "
    )


def test_cherry_temporarily_unreadable_definition_secret_is_not_a_settings_error() -> None:
    def read(name: str) -> str:
        raise SecretUnavailable(name)

    with pytest.raises(SecretUnavailable):
        definitions(secret="config", read=read)


MAPPING = {
    "default": {
        "projectId": 10001,
        "apiServerEndpoint": "203.0.113.10:6443",
        "region": "eu_nord_1",
        "plan": "e5_1620v4",
        "os": "ubuntu_18_04",
        "sshKeyIds": [101, "102"],
        "cloudInit": SCRIPT,
    },
    "pool2": {
        "plan": "e3_1240v3",
        "osPartitionSize": 60,
        "spotMarket": True,
        "sshKeyIds": [],
        "cpuOverride": 8,
    },
}


def test_cherry_definition_mapping_is_equivalent_to_the_file() -> None:
    text = (
        f"{WHOLE}ssh-key-ids=101\nssh-key-ids=102\ncloudinit={encoded(SCRIPT)}\n"
        '[nodegroupdef "pool2"]\nplan=e3_1240v3\nos-partition-size=60\nspot-market=true\n'
        "ssh-key-ids\n"
        "cpu-override=8\n"
    )
    for pool in ("pool2", "pool3"):
        assert definitions(mapping=MAPPING).of(pool) == definitions(text).of(pool)


@each_row(
    ("pool", "place", "problem"),
    [
        ({"apiServer": "x"}, "bad.apiServer", "apiServerEndpoint"),
        ({"plans": "x"}, "bad.plans", "did you mean plan"),
        ({"plan": ["a", "b"]}, "bad.plan", "is a list"),
        ({"cloudInit": "a", "cloudinit": "YQ=="}, "bad.cloudinit", "conflicts with"),
        ({"plan": {"a": 1}}, "nodeGroupDefs", "is not a mapping"),
    ],
)
def test_cherry_definition_mapping_errors_name_their_path(
    pool: dict[str, object], place: str, problem: str
) -> None:
    message = refused(lambda: definitions(mapping={**MAPPING, "bad": pool}))
    assert f"{place}: " in message
    assert problem in message


def test_cherry_definition_mapping_also_needs_a_default() -> None:
    assert "nodeGroupDefs: has no default definition" in refused(
        lambda: definitions(mapping={"pool3": {}})
    )


def test_cherry_parsed_settings_contain_everything_the_definitions_need() -> None:
    assert settings("x").definitions.text == "x"


@each_row(
    ("config", "place", "problem"),
    [
        (
            f"{WHOLE}api-server=203.0.113.10:6443\n",
            "cloudConfig: line 7",
            "there is no key api-server",
        ),
        (f"{WHOLE}cloudinit=%%%\n", "cherryservers: pool pool3: cloudinit", "is not base64"),
        (
            f"{WHOLE}cloudinit={encoded('{{.Token}}')}\n",
            "pool pool3: cloudinit: line 1, column 1",
            "no field Token",
        ),
        (
            f"{WHOLE}cloudinit={encoded(SCRIPT)}\n",
            "cherryservers.bootstrapTokenSecret",
            "pool3 asks for a bootstrap token",
        ),
        (f"{WHOLE}ssh-key-ids=a1\n", "cloudConfig: line 7", "ssh-key-ids: number 1 is 'a1'"),
        (WHOLE.replace("plan=", ";"), "cloudConfig: [nodegroupdef", "pool pool3 has no plan"),
        ("", "cherryservers.cloudConfig", "is missing"),
        ("[Global]\n", "cherryservers.cloudConfig", "empty default"),
    ],
    ids=lambda text: text[-24:].strip(),
)
def test_cherry_policy_check_reports_errors_of_inline_definitions(
    config: str, place: str, problem: str
) -> None:
    """One error, also where several pools inherit it from one line. The provider is
    built nevertheless: in operation, the error stops only its own pool."""
    given = {
        "credentialsSecret": "key",
        "clusterName": "c",
        "nodes": "0:5:pool3",
        "cloudConfig": config,
    }
    (mistake,) = registry.mistakes(Policy("prod", providers={"cherryservers": given}))
    assert place in mistake.place
    assert problem in str(mistake)


def test_cherry_policy_check_does_not_read_definitions_in_a_secret() -> None:
    given = {
        "credentialsSecret": "key",
        "clusterName": "c",
        "nodes": "0:5:pool3",
        "cloudConfigSecret": "far-away",
    }
    assert registry.mistakes(Policy("prod", providers={"cherryservers": given})) == ()
    right = {**given, "cloudConfigSecret": "", "cloudConfig": WHOLE}
    assert registry.mistakes(Policy("prod", providers={"cherryservers": right})) == ()
    twice = {**right, "nodes": "0:5:pool3\n0:5:pool2", "cloudConfig": f"{WHOLE}ssh-key-ids=a1\n"}
    assert len(registry.mistakes(Policy("prod", providers={"cherryservers": twice}))) == 1
