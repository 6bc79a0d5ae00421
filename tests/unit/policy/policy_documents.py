"""Policy documents for tests: a valid one, and functions that modify it."""

from __future__ import annotations

GOOD = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: prod-geneva}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/prod-geneva/kubeconfig}
  providers:
    clusterapi: {clusterName: prod-geneva}
"""

# The reference example of a policy, word for word: users copy it, so it must be accepted, and
# warnings must name what is not in force.
ARCHITECTURE = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: prod-geneva}
spec:
  mode: active                   # off | shadow (plan and explain, touch nothing) | active
  scanInterval: 20s
  kubernetes: {kubeconfigSecret: outscaler/prod-geneva/kubeconfig}
  providers:
    exoscale: {zone: ch-gva-2, credentialsSecret: outscaler/prod-geneva/exoscale}
  nodeGroups:
    - {provider: exoscale, id: workers, min: 1, max: 20, priority: 10}
  options: {expander: [priority, least-waste], scaleDownUnneededTime: 10m, maxNodesTotal: 200}
  rules:                         # cron and metric rules, for any provider's groups
    - {name: evening, groups: [workers], cron: "47 20 * * *", timeZone: Europe/Zurich, add: 3}
    - {name: busy, groups: [workers], metric: cpu, above: 70, add: auto}
  webhook: {secret: outscaler/prod-geneva/webhook}
"""

AMBIGUOUS = """\
  consolidation: {mode: off}
  nodeLifecycle: {drift: off, maxNodeAge: 720h}
  prices: {cpu: 0.00001}
"""
"""Lines of spec whose values YAML 1.1 reads as false and as another text of the number."""

# the spec begins in line 4
HEAD = "apiVersion: outscaler.dev/v1\nkind: Cluster\nmetadata: {name: a}\n"


def with_spec(lines: str) -> str:
    """A valid document with further lines of spec, which begin in line 9."""
    return GOOD + "".join(f"  {line}\n" for line in lines.splitlines())


def with_options(lines: str) -> str:
    """A valid document with lines of spec.options, which begin in line 10."""
    return GOOD + "  options:\n" + "".join(f"    {line}\n" for line in lines.splitlines())


def with_groups(*entries: str) -> str:
    """A valid document with entries of spec.nodeGroups, which begin in line 10."""
    return GOOD + "  nodeGroups:\n" + "".join(f"    - {entry}\n" for entry in entries)


def with_access(access: str) -> str:
    """A document with this spec.kubernetes, in line 5."""
    return (
        f"{HEAD}spec:\n  kubernetes: {access}\n  mode: shadow\n  providers: {{clusterapi: {{}}}}\n"
    )


def with_providers(providers: str) -> str:
    """A document with this spec.providers, in line 5."""
    return (
        f"{HEAD}spec:\n  providers: {providers}\n  mode: shadow\n  kubernetes: {{eksCluster: a}}\n"
    )
