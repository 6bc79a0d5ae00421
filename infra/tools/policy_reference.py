"""The page docs/policy.md, made from the tables of chalicelib/policy."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.policy.document import METADATA, ROOT, SPEC
from chalicelib.policy.option_tables import GROUPS, OptionDefinition
from chalicelib.policy.options import default_text
from chalicelib.policy.providers import PROVIDERS, vendor_section
from chalicelib.policy.schema import Section, section_of
from chalicelib.policy.settings.cluster_options import AVAILABLE_EXPANDERS
from chalicelib.policy.settings.consolidation import Consolidation
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.event_webhook import Webhook
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.node_lifecycle import NodeLifecycle, RepairRule
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.notifications import NoticeWebhook, Notifications, QuietHours
from chalicelib.policy.settings.rules import RULE
from chalicelib.policy.settings.scale_up import ScaleUp
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.policy.settings.spot import Spot

EXAMPLE = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: prod-geneva}
spec:
  mode: active
  scanInterval: 20s
  kubernetes: {kubeconfigSecret: ssm:/outscaler/prod-geneva/kubeconfig}
  providers:
    clusterapi: {namespace: default, clusterName: prod-geneva}
  nodeGroups:
    - {provider: clusterapi, id: MachineDeployment/default/workers, min: 1, max: 20}
  options: {scaleDownUnneededTime: 10m, maxNodesTotal: 200}
  webhook: {secret: ssm:/outscaler/prod-geneva/webhook}
"""

_HEAD = f"""\
# The policy document

This page is made from the tables in `chalicelib/policy` (`make docs`); do not edit it.

One YAML (or JSON) document per cluster. `outscaler validate` checks it, `outscaler apply` puts it in force. A wrong
document is refused whole, with every mistake at once: line, path, and what would be right.

```yaml
{EXAMPLE}```

How values are read
- As they are written: `off` is the word off, `012` is refused. Quotes make no difference.
- A duration is written as in Go: `30s`, `10m`, `1h30m`, `0`. A bare number is refused.
- `min:max` is `0:320000` or `{{min: 0, max: 320000}}`; memory is counted in GiB.
- A list may be one value; names may be separated by commas.
- A secret is named, never written: `ssm:/<SecretPrefix><cluster>/<use>` is a parameter of SSM, of type SecureString
  (4 KB at most as a standard parameter), and the same without `ssm:/` a secret of AWS Secrets Manager
  ([names](deploy.md#secret-names)). An ARN is refused.
- A key given twice, a tag (`!…`) or a second document is refused. Anchors and aliases are fine.
- A percentage is whole, with or without its sign: `70`, `70%`.
"""

_PRICES_NOTE = """\
In any one currency, such as `prices: {instanceTypes: {m5.large: 0.096}, cpu: 0.03, memory: 0.004, gpu: 0.9}`.

A node costs what its instance type costs (label `node.kubernetes.io/instance-type`); if that is not listed, its
capacity by the rates. Of cpu and memory one may be left out and then costs nothing; a node with GPUs has no price
without gpu. Where the list says nothing about a node, what its provider asks for it counts, if the provider says so;
nothing is converted, so the list is then written in that provider's currency; with currency given, prices of another
currency are not compared with the list. A group without a price is not chosen by
price or least-cost. Pods are weighed by the rates too; where there are none, by rates made of the listed types and of
the providers' prices: a GiB counts as an eighth of a core, a GPU as ten cores.

A node of a spot group costs what `spot` says of its type, such as
`prices: {instanceTypes: {m5.large: 0.096}, spot: {m5.large: 0.035}}`; otherwise what its provider says, and without
that as much as any other node of its type.\
"""

_CONSOLIDATION_NOTE = """\
Such as `consolidation: {mode: shadow}`, which shows what would be saved and changes nothing, or
`consolidation: {mode: full, groups: [workers], minSavings: 15%}`. What is a move, what it must bring, and how it is
carried out: [consolidation](reference/consolidation.md). Groups need prices: of spec.prices, or of their provider.\
"""

_BUDGETS_NOTE = """\
Such as `- {name: always, nodes: 10%}` and
`- {name: office, nodes: 0, reasons: [consolidation], cron: "0 8 * * 1-5", duration: 10h, timeZone: Europe/Zurich}`.

The smallest budget that holds now counts, for each pool by itself. It limits how many nodes are out at once; how many
go in an hour is for maxDisruption. A budget without cron always holds. As soon as the policy has any budget, the
default of 10% is gone. How nodes are counted:
[disruption budgets](reference/consolidation.md#disruption-budgets). Names are unique.\
"""

_LIFECYCLE_NOTE = """\
Such as `nodeLifecycle: {maxNodeAge: 720h, drift: replace}`. When a node is old, what counts as drift, and how a sick
node is repaired: [age, drift and repair](reference/node-lifecycle.md). A node is replaced as consolidation replaces
one: the new node first, then the drain, within disruption budgets, windows and the circuit breaker.
`consolidation.replaceTimeout` says how long a new node may take; consolidation need not be on.\
"""

_REPAIR_NOTE = """\
Such as `- {condition: Ready, status: [False, Unknown], after: 30m}` and
`- {condition: KernelDeadlock, after: 10m, action: restart}`. Conditions besides Ready come from tools such as the
node-problem-detector; of most of them, True means broken. Two rules about the same condition, status and groups are
refused. Cluster API cannot restart a node.\
"""

_SPOT_NOTE = """\
Such as `spot: {groups: [workers-spot], maxShare: 50%, onDemandBase: 2}`; `spot: {}` has all defaults and is enough for
interruptions to be acted on. What announces an interruption, how its risk is learnt, and how nodes return from
on-demand: [spot nodes](reference/spot.md). Prices of spot nodes are in `prices.spot`, if their provider states none.
Exoscale has no spot machines.\
"""

_BRAKE_NOTE = """\
The circuit breaker, for example `maxDisruption: {nodesPerHour: 20, podsPerHour: 500, share: 25%}`. Planned
removals count; pods are those that must move, without DaemonSet pods.

Removals beyond an hourly limit wait, in order; a node or an atomic group that alone exceeds the limit goes when
the hour is empty. The share is a part of all registered nodes of readable groups. It counts nodes that are
being removed, and nodes that pass timers, minimums, windows and cooldowns, before the limits of parallelism. A
single node next to running removals waits for them and does not trip the circuit breaker.
`outscaler release NAME` resumes removals for a while; neither the share nor the hourly limits apply meanwhile.\
"""

_WINDOWS_NOTE = """\
Such as `- {name: nights, cron: "0 22 * * 1-5", timeZone: Europe/Zurich, duration: 6h}`. If any window allows
removals, nodes are removed in such windows only. A forbidding window overrides allowing ones. Windows concern
the start of removals only: drains in progress continue. Timers always run. Names are unique.

Where the clock skips the hour and minute, the window opens with the first minute after the gap; where the clock shows
them twice, the first time. With a star for the hour or the minute it opens as often as the clock shows it. A star at
the beginning of the day of the month or of the week means that both must match; otherwise one of the two is enough.\
"""

_SCALE_UP_NOTE = """\
Such as `scaleUp: {cpuThreshold: 80%, cronTimeZone: Europe/Zurich}`. unschedulablePods concerns pending pods;
without it groups grow only for rules, minimums and headroom. Neither switch affects removals. What expectedCost and
learnedTimeouts go by: [learning](reference/learning.md).\
"""

_RULES_NOTE = """\
Such as `- {name: evening, groups: [workers], cron: "47 20 * * *", timeZone: Europe/Zurich, add: 3}` or
`- {name: busy, groups: [workers], metric: cpu, above: 70%, add: auto}`.

A rule has either cron or metric. Of each group there are at most ten rules, one of them about cpu and one about memory;
a rule counts for each of its groups. The share of a metric is promised, not used: what the pods of the pool request by
what its nodes have to give. It must be above `options.scaleDownUtilizationThreshold`, otherwise nodes would be
added and removed in turn. A rule only adds nodes. Unneeded ones are removed as usual, except nodes without which a
metric rule would act again. Bounds and the limits of the whole cluster hold for rules too. HorizontalNodeAutoscaler
objects of the cluster say the same and count together with these. Names are unique.\
"""

_SCHEDULES_NOTE = """\
Such as `- {name: night, groups: [workers], cron: "0 20 * * 1-5", duration: 11h, timeZone: Europe/Zurich, max: 2}` or
`- {name: freeze, cron: "0 18 * * 5", duration: 62h, mode: shadow}`. At least one of min, max, headroom and mode.

While it is open, min and max replace the group's own; other values stay. A group below min grows,
whatever `options.enforceNodeGroupMinSize` says; nothing is removed because of max. A bound that is wider than the
provider's own (a smaller min, a larger max) holds only where nodeGroups gives the group bounds under the same name:
only then does its provider know of it. A time of a cron rule that falls into a window of shadow or off is not lost if
the window closes within 30 minutes of it: the nodes are added then. If it closes later, they are not.

Two schedules that set the same thing of one group, or of the cluster, must not be open at once: both clocks are gone
through over fourteen months (of a cron that opens very often, 2,000 openings), and the refusal names an instant. Nor
may one's min be above the other's max. A window that ends when another begins does not overlap with it. Day and
night of one time zone that only overlap when its clock is changed are warned of: of two that set the same, the later
one in the document then prevails. Cron and changes of the clock are as for maintenanceWindows. Names are unique.\
"""

_HEADROOM_NOTE = """\
Such as `- {name: spare, groups: [workers], pods: 3, cpu: 500m, memory: 1Gi}` or `- {name: tenth, percent: 10%}`.

Either pods with cpu, memory or both, or percent. A group is in one entry at most, and one entry at most is without
groups. Pods may use the capacity at once, and the headroom is restored afterwards. Names are unique.\
"""

_PRICED = ", ".join(name for name, settings in PROVIDERS.items() if settings.states_prices)

_OPTIONS_HEAD = f"""\
## spec.options

Upstream's flags in lowerCamelCase. What becomes of an option:

| Word | Meaning |
|---|---|
| in force | this version uses it |
| in force, old name | read into the option named |
| always so | a switch of upstream's that is always on here; turning it off is warned about |
| accepted, not in force | checked; `outscaler validate` warns; a later version uses it |
| read by nothing | upstream reads it no more, or has dropped it; warned |
| no meaning here | about a process inside the cluster; warned |
| elsewhere | has its own place in the document; refused, with that place |

Expanders: {", ".join(AVAILABLE_EXPANDERS)}. A chain names each once, and
nothing after random; each keeps the best of what the one before it left. Among options that are equal to the end, the
one that meets most soft preferences is taken; then random draws a lot, or the lowest group id is taken. least-cost is
ours: it looks for the cheapest mix of groups for all pending pods at once; where it finds none in time, the next in the
chain decides, or least-waste. price and least-cost need spec.prices, or a provider that says what its nodes cost:
{_PRICED}. grpc is refused: it asks a server of yours, and
no other choice could stand for its answer.

The priority expander reads the ConfigMap `cluster-autoscaler-priority-expander` in the namespace that the option
namespace names. Its key `priorities` is a YAML mapping of whole numbers to lists of regular expressions, as upstream's.
Where the cluster has no such ConfigMap, the priorities under nodeGroups count. Patterns are Go's (RE2), found anywhere
in the group's id, at most 1,000 characters long.
"""


_NOTIFICATIONS_NOTE = """\
Messages about conditions of the cluster: [notifications](notifications.md). At least one destination is needed for any
to be sent. The names of topics begin with `outscaler-`, because the deployment may publish to no others.\
"""


def reference() -> str:
    parts = [
        _HEAD,
        _fields("The document", ROOT),
        _fields("metadata", METADATA),
        _fields("spec", SPEC),
        _fields(
            "spec.kubernetes",
            section_of(KubernetesAccess),
            (
                "Exactly one of kubeconfigSecret, kubeconfigFile and eksCluster, or "
                "inClusterKubeconfigSecret alone."
            ),
        ),
        _fields("spec.nodeGroups[]", section_of(GroupPolicy), "Ids are unique over all providers."),
        _fields("spec.prices", section_of(NodePrices), _PRICES_NOTE),
        _fields("spec.maxDisruption", section_of(MaxDisruption), _BRAKE_NOTE),
        _fields("spec.consolidation", section_of(Consolidation), _CONSOLIDATION_NOTE),
        _fields("spec.disruptionBudgets[]", section_of(DisruptionBudget), _BUDGETS_NOTE),
        _fields("spec.nodeLifecycle", section_of(NodeLifecycle), _LIFECYCLE_NOTE),
        _fields("spec.nodeLifecycle.repair[]", section_of(RepairRule), _REPAIR_NOTE, level="###"),
        _fields("spec.spot", section_of(Spot), _SPOT_NOTE),
        _fields("spec.maintenanceWindows[]", section_of(Window), _WINDOWS_NOTE),
        _fields("spec.scaleUp", section_of(ScaleUp), _SCALE_UP_NOTE),
        _fields("spec.rules[]", RULE, _RULES_NOTE),
        _fields("spec.schedules[]", section_of(Schedule), _SCHEDULES_NOTE),
        _fields("spec.headroom[]", section_of(Headroom), _HEADROOM_NOTE),
        _fields("spec.webhook", section_of(Webhook)),
        _fields("spec.notifications", section_of(Notifications), _NOTIFICATIONS_NOTE),
        _fields("spec.notifications.webhook", section_of(NoticeWebhook), level="###"),
        _fields("spec.notifications.quietHours[]", section_of(QuietHours), level="###"),
        "## spec.providers\n\nAt least one.\n",
        *(
            _fields(
                name, vendor_section(settings), f"Group ids: `{settings.group_example}`.", "###"
            )
            for name, settings in PROVIDERS.items()
        ),
        _OPTIONS_HEAD,
        *(f"### {title}\n\n{_options(rows)}" for title, rows in GROUPS.items()),
    ]
    return "\n".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _fields(title: str, section: Section, note: str = "", level: str = "##") -> str:
    rows = (
        (
            f"`{field.key}`",
            field.kind.name,
            "required" if field.required else _code(field.default_text),
            field.meaning,
        )
        for field in section.fields
    )
    lead = f"{note}\n\n" if note else ""
    return f"{level} {title}\n\n{lead}{_table(('Key', 'Kind', 'Default', 'Meaning'), rows)}"


def _options(rows: tuple[OptionDefinition, ...]) -> str:
    return _table(
        ("Option", "Kind", "Default", "Status", "Meaning"),
        (
            (
                f"`{row.name}`",
                row.kind.name,
                _code(default_text(row)),
                row.status.value,
                _meaning(row),
            )
            for row in rows
        ),
    )


def _meaning(option: OptionDefinition) -> str:
    if not option.note:
        return option.meaning
    return f"{option.meaning} ({'write ' if option.status == 'elsewhere' else ''}{option.note})"


def _code(text: str) -> str:
    return f"`{text}`" if text else "none"
