"""Many groups and many machines are read completely, in a bounded number of calls."""

from __future__ import annotations

from tests.providers.suite.operations import OperationDriver


def test_provider_reads_five_hundred_groups_in_bounded_calls(yard: OperationDriver) -> None:
    groups = [yard.bench.add_group(f"g{number:03}", most=3) for number in range(500)]
    provider, nodes = yard.provider(), yard.bench.nodes()
    yard.bench.calls()
    seen = provider.observe(nodes)
    calls = yard.bench.calls()
    assert sorted(group.id for group in seen.groups) == sorted(groups)
    assert not [group for group in seen.groups if group.error]
    assert len(calls) <= yard.bench.most_calls(500, 0)


def test_provider_reads_two_thousand_machines_without_a_call_for_each(
    yard: OperationDriver,
) -> None:
    groups = [yard.bench.add_group(f"g{number}", size=100, most=200) for number in range(20)]
    provider, nodes = yard.provider(), yard.bench.nodes()
    assert len(nodes) == 2000
    yard.bench.calls()
    seen = provider.observe(nodes)
    calls = yard.bench.calls()
    assert [group.target for group in seen.groups] == [100] * len(groups)
    assert sum(len(group.instances) for group in seen.groups) == 2000
    assert {each.id for group in seen.groups for each in group.instances} == {
        node.provider_id for node in nodes
    }
    promised = yard.bench.most_calls(20, 2000)
    assert len(calls) <= promised
    assert promised < 2000 / 10
