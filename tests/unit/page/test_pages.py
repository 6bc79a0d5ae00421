"""The pages of the example deployment: content, structure, size, reads, escaping."""

from __future__ import annotations

import gzip
import html
import re
from collections.abc import Callable
from urllib.parse import parse_qsl

import msgspec
import pytest

from chalicelib.journal.journal import plan_entry
from chalicelib.journal.metrics import key
from chalicelib.model.cluster_bill import Bill, CostParts
from chalicelib.model.memory import BreakerState, Memory
from chalicelib.model.plan import (
    ConsolidationReport,
    GroupVerdict,
    Health,
    Move,
    MovePurchase,
    NodeVerdict,
    UnschedulablePods,
)
from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.page import views
from chalicelib.page.cluster_data import ClusterDetails, details
from chalicelib.page.render import (
    LONGEST,
    SECURITY_HEADERS,
    Links,
    ago,
    duration,
    money,
    prose,
    shown,
    time_of,
)
from chalicelib.page.routes import PageAnswer, PageRequest, respond
from chalicelib.policy.load import digest
from chalicelib.store import JournalEntry, Store
from chalicelib.store.leases import PassFailure
from chalicelib.views.cluster_view import exact
from infra.emulators.aws_faults import AwsFaults, busy
from infra.emulators.example_clusters import (
    ARM,
    BATCH,
    GPU,
    NOW,
    WEB,
    as_many,
    busy_plan,
    decided,
    example,
    overview,
    quiet_plan,
)
from infra.emulators.memory_table import MemoryAccount
from tests.unit.page.html_check import CheckedPage
from tests.unit.policy.policy_documents import GOOD

PATHS = (
    "/",
    "/clusters/prod",
    "/clusters/shop",
    "/clusters/staging",
    "/clusters/edge",
    "/clusters/lab",
    "/clusters/prod/nodes",
    "/clusters/prod/pods",
    "/clusters/prod/history",
    "/clusters/prod/policy",
    "/clusters/prod?range=14d&show=problems&kind=growth",
    "/clusters/prod/groups?group=web",
    f"/clusters/prod/groups?group={GPU}",
    "/clusters/prod/history?kind=failed&group=web&all=yes",
    "/clusters/prod/decision?plan=plan-a5",
)
HOSTILE = (
    "</td><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' style='x' '><img src=x onerror=alert(1)>",
    "{{ 7*7 }}{% raw %}",
    "&#x0;&lt;b&gt;",
    "a\u202eb\u0000c\u2028d",
    "../..//javascript:alert(1)",
    "%2e%2e%2f%00",
    "x" * 1_000_000,
)


def get(
    store: Store, path: str, permitted: frozenset[str] | None = None, **query: str
) -> PageAnswer:
    return seen_with(STRICT, store, path, permitted, **query)


def seen_with(
    deployment: Deployment | None,
    store: Store,
    path: str,
    permitted: frozenset[str] | None = None,
    **query: str,
) -> PageAnswer:
    """The page of a deployment with these settings; None: they are not known."""
    return respond(store, PageRequest(path, query, permitted), NOW, Links(), deployment)


def at_address(store: Store, address: str) -> PageAnswer:
    """The page at a path with a query."""
    path, _, query = address.partition("?")
    return respond(store, PageRequest(path, dict(parse_qsl(query))), NOW, Links(), STRICT)


def text(answer: PageAnswer) -> str:
    return answer.body.decode()


def words(answer: PageAnswer) -> str:
    """What a person reads, with single spaces."""
    together = " ".join(" ".join(CheckedPage(text(answer)).text).replace("\u00a0", " ").split())
    return re.sub(r" ([,;.:)%])", r"\1", together)


@pytest.fixture(scope="module")
def store() -> Store:
    return example()


def with_policy(providers: str) -> Store:
    """A deployment with one cluster whose policy names a secret outside the cluster's own names."""
    store = MemoryAccount().store("example", clock=lambda: NOW)
    document = (
        "apiVersion: outscaler.dev/v1\nkind: Cluster\nmetadata: {name: mine}\nspec:\n  mode: "
        "active\n"
        "  kubernetes: {kubeconfigSecret: outscaler/dev/mine/kubeconfig}\n"
        f"  providers: {{{providers}}}\n"
    )
    store.policies.put("mine", document, digest(document), None)
    return store


SHARED = (
    "exoscale: {zone: ch-gva-2, credentialsSecret: outscaler/dev/all/exoscale, endpoint: "
    "'https://proxy.example'}"
)
OF_SHARED = Deployment(
    "outscaler/dev/",
    frozenset({"outscaler/dev/all/exoscale"}),
    endpoints=frozenset({"proxy.example"}),
)


@pytest.mark.parametrize("path", ["/", "/clusters/mine"])
def test_policy_is_judged_by_the_settings_of_the_deployment(path: str) -> None:
    store = with_policy(SHARED)
    permitted, strict = (text(seen_with(one, store, path)) for one in (OF_SHARED, STRICT))
    assert ("no pass yet" in permitted, ">not read<" in permitted) == (True, False)
    assert ("no pass yet" in strict, ">not read<" in strict) == (False, True)
    assert "Not judged here" not in permitted + strict


@pytest.mark.parametrize("path", ["/", "/clusters/mine"])
def test_what_the_functions_permit_is_not_judged_where_it_is_not_known(path: str) -> None:
    unknown = text(seen_with(None, with_policy(SHARED), path))
    assert ("no pass yet" in unknown, ">not read<" in unknown, "Not judged here" in unknown) == (
        True,
        False,
        True,
    )
    broken = text(seen_with(None, with_policy("exoscale: {zone: nowhere}, nosuch: {}"), path))
    assert ("no pass yet" in broken, ">not read<" in broken) == (False, True)


@pytest.mark.parametrize("address", PATHS)
def test_page_is_well_formed_labelled_and_free_of_inline_scripts(
    address: str, store: Store
) -> None:
    if "plan=" in address:
        address += f"&at={exact(NOW - 4000)}"
    answer = at_address(store, address)
    assert (answer.status, CheckedPage(text(answer)).problems) == (200, [])
    assert " style=" not in text(answer)


TAG = re.compile(r'<span class="tag (\w+) \w*">([^<]+)</span>')


def test_list_shows_the_worst_status_first_in_words(store: Store) -> None:
    page = get(store, "/")
    assert TAG.findall(text(page)) == [
        ("bad", "no passes"),
        ("warn", "paused"),
        ("warn", "2 pods without a node"),
        ("ok", "ok"),
        ("info", "off"),
    ]
    assert "Unauthorized: the cluster refuses the token" in words(page)
    assert "outscaler get clusters" in words(page)


def test_list_is_searched_by_a_part_of_the_name(store: Store) -> None:
    page = text(get(store, "/", q="SH"))
    assert re.findall(r'href="/clusters/(\w+)"', page) == ["shop"]
    assert "1 of 5 clusters" in page
    assert "No cluster has “x”" in text(get(store, "/", q="x"))


def test_cluster_page_says_what_is_wrong_and_what_to_type(store: Store) -> None:
    page = words(get(store, "/clusters/prod"))
    for sentence in (
        "prod 2 pods without a node",
        (
            "Active · last pass 22 s ago, next in 38 s · 20 nodes ready, 5 coming · version 2 of "
            "the policy"
        ),
        "Pods wait since",
        (
            "No node is removed until 11:11 scale-down is in cooldown (scaleDownDelayAfterAdd, "
            "until 11:11)"
        ),
        (
            "arm, web: Insufficient cpu (needs 40, template offers 7750m); "
            "1 other group: too little cpu 1"
        ),
        "outscaler explain pod ml/train-huge-0 --cluster prod",
        "sold out in ch-gva-2; next try 11:14",
        "outscaler retry prod group gpu",
        "web grows from 12 to 17 for 27 pods",
        "since 1 min 1 s; usually 1 min 34 s",
        "1 of 5 ready",
        "batch-4 of batch is removed, 2 pods to move",
        "13 in use · 4 blocked by a pod",
        "outscaler get groups prod",
    ):
        assert sentence in page


def test_cost_is_shown_where_prices_are_known(store: Store) -> None:
    cluster = details(store, "prod", NOW, STRICT)
    assert cluster is not None

    def costs(cluster: ClusterDetails) -> list[tuple[str, str]]:
        row = views.cluster_row(cluster.summary, NOW)
        return [
            (tile.value, tile.note)
            for tile in views.tiles(cluster, row, NOW)
            if tile.title == "Cost an hour"
        ]

    assert [value for value, _ in costs(cluster)] == ["$3.13"]
    unpriced = tuple(msgspec.structs.replace(row, price=None) for row in cluster.groups[:1])
    partly = msgspec.structs.replace(cluster, groups=unpriced + cluster.groups[1:])
    assert costs(partly) == [("$3.13", "without 13 nodes of unknown price")]
    bill = cluster.overview.bill
    assert bill is not None
    yuan = Bill("CNY", CostParts(paid=7_200_000))
    two = msgspec.structs.replace(bill, bills=(*bill.bills, yuan))
    both = msgspec.structs.replace(cluster.overview, bill=two)
    assert costs(msgspec.structs.replace(cluster, overview=both)) == [("$3.13", "and 7.20 CNY")]
    free = msgspec.structs.replace(cluster.points[-1], cost=0.0)
    assert costs(msgspec.structs.replace(cluster, points=(free,))) == []


def test_what_a_burst_cost_is_no_saving_on_the_page(store: Store) -> None:
    page = words(get(store, "/clusters/prod"))
    for sentence in (
        "given back $2.13 today, $14.60 in 7 days, $41.25 this month",
        "Saved against keeping the nodes that consolidation, a schedule or low use removed",
        "Given back: nodes not needed any more within 24 hours after Outscaler bought them",
    ):
        assert sentence in page


def test_peak_between_two_points_is_in_the_table_of_the_charts() -> None:
    page = words(get(example(hours=24), "/clusters/prod"))
    assert re.search(r"18\N{EN DASH}25 26 24 \d+%", page), "ready, wanted and waiting of that hour"


def test_cost_is_divided_with_savings_and_the_best_moves(store: Store) -> None:
    page = text(get(store, "/clusters/prod"))
    panel = re.sub(r"<[^>]+>", "", page[page.index('id="cost"') : page.index('id="pods"')])
    for sentence in (
        (
            "$3.30 · $2.31 requested by pods · $0.17 DaemonSets and static pods · $0.099 reserved "
            "for the system"
        ),
        "$0.33 free, for headroom, rules and minimum sizes · $0.36 free, avoidable at best",
        "at least $2.64 for these pods",
        "Saved $1.24 today, $9.87 in 7 days, $31.40 this month",
        "batch-2 goes, for 1 of arm",
        "saves $0.22 an hour",
        "Machines only",
    ):
        assert sentence in panel, sentence
    assert panel.index("batch-2") < panel.index("web-3, web-7 go")
    assert 'id="cost"' not in text(get(store, "/clusters/lab"))


def test_waiting_pods_stand_before_the_groups_and_needs_before_all(store: Store) -> None:
    headings = re.findall(r"<h2 [^>]*>([^<]+)</h2>", text(get(store, "/clusters/prod")))
    assert headings == [
        *(
            "Needs you",
            "Ends by itself",
            "Under way",
            "Last 24 hours",
            "Cost an hour",
            "Waiting pods",
            "Node groups",
            "What happened",
            "Nodes that stay",
        ),
    ]


def test_groups_have_the_names_that_people_know(store: Store) -> None:
    for path in (
        "/clusters/prod",
        "/clusters/prod/pods",
        "/clusters/prod/nodes",
        "/clusters/prod/history",
    ):
        page = words(get(store, path))
        assert [group for group in (BATCH, GPU, ARM) if group in page] == [], path
    detail = words(get(store, "/clusters/prod/groups", group=BATCH))
    assert BATCH in detail  # as a detail, to copy
    assert "batch Alibaba ESS · cn-hangzhou-i · ecs.c7.2xlarge · $0.41 an hour" in detail
    # a person may type the name
    assert get(store, "/clusters/prod/groups", group="batch").status == 200


def test_group_row_has_machine_price_size_shares_and_state(store: Store) -> None:
    page = words(get(store, "/clusters/prod"))
    assert (
        "batch Alibaba ESS · cn-hangzhou-i ecs.c7.2xlarge "
        "$0.41 an hour · spot 5 ready · 0 to 12 cpu 91% mem 38% leaving" in page
    )
    assert re.search(
        r"gpu3\.small \$0\.92 an hour 0 ready · 0 to 4 \S backing off until 11:14", page
    )


def test_group_page_shows_what_the_group_has_taught_or_that_nothing_is_known(store: Store) -> None:
    web = words(get(store, "/clusters/prod/groups", group=WEB))
    assert "ready after 3m15s (p95 4m50s), 2% fail" in web
    assert (
        "Time from the request until ready median 3m15s, p95 4m50s, p99 6m50s, of 32 joins" in web
    )
    assert "Nodes that do not come 2%: 0.747 failed and 38.341 joined, halved every 7 days" in web
    gpu = words(get(store, "/clusters/prod/groups", group=GPU))
    assert "until ready nothing is known yet: no node has joined whose request is known" in gpu
    assert "ready after" not in gpu
    assert "Nodes that do not come nothing is known yet: no node has joined or failed" in gpu


def test_size_of_a_group_names_its_times_where_they_are_known(store: Store) -> None:
    page = text(get(store, "/clusters/prod"))
    titles = re.findall(r'<td data-name="Nodes" title="([^"]*)"', page)
    ready = "ready after median 3m15s, p95 4m50s, p99 6m50s, of 32 joins"
    assert titles == [f"{ready}; fails 2%: 0.747 failed and 38.341 joined, halved every 7 days"]


@pytest.mark.parametrize(("show", "names"), [("", 4), ("problems", 1), ("empty", 1), ("x", 4)])
def test_groups_are_filtered(show: str, names: int, store: Store) -> None:
    page = text(get(store, "/clusters/prod", show=show))
    table = page[page.index('<table class="groups">') :]
    assert table.count('<th scope="row">') == names
    assert "with a problem (1)" in page


SENTENCES = (
    "gpu could not grow from 0 to 1: sold out (SoldOut): no capacity, after 6 s",
    "batch grew from 2 to 5 for 15 pods, in 4 min 25 s",
    "web-16, web-17, web-18, web-19, web-20 were removed from web, 12 pods moved, in 1 min 22 s",
    "stored version 2 of the policy, by kim",
    "paused removals until Yesterday 22:00: release of the shop, by kim",
)


def test_history_has_sentences_and_no_dictionaries(store: Store) -> None:
    for path in ("/clusters/prod", "/clusters/prod/history"):
        page = words(get(store, path))
        for sentence in SENTENCES:
            assert sentence in page
        assert not re.search(r"\b(True|False|None|scaleUps|was_on|gaps \d)\b", page)


@pytest.mark.parametrize(
    ("kind", "count"), [("growth", 4), ("removal", 2), ("failed", 1), ("people", 3), ("all", 10)]
)
def test_history_is_filtered_by_kind(kind: str, count: int, store: Store) -> None:
    page = text(get(store, "/clusters/prod/history", kind=kind))
    events = page[page.index('<ol class="events">') :]
    assert events.count('<span class="when">') == count


def test_history_is_filtered_by_group_and_day(store: Store) -> None:
    page = words(get(store, "/clusters/prod/history", group=BATCH)).partition("What happened")[2]
    assert "batch grew from 2 to 5" in page
    assert "web grew" not in page
    earlier = words(get(store, "/clusters/prod/history", before=exact(NOW - 86400)))
    assert "web grew from 9 to 11" not in earlier  # it was the day before that
    assert "web grew from 9 to 11" in words(
        get(store, "/clusters/prod/history", before=exact(NOW - 190_000))
    )


def test_passes_without_a_change_are_folded_away(store: Store) -> None:
    page = words(get(store, "/clusters/prod/history"))
    assert "3 passes without a change are not shown" in page
    assert "decided on no change" not in page
    assert words(get(store, "/clusters/prod/history", all="yes")).count("decided on no change") == 3


def test_event_leads_to_its_decision_and_to_the_replay(store: Store) -> None:
    page = text(get(store, "/clusters/prod/history"))
    link = re.search(r'href="([^"]+)" aria-label="why: web grew from 10 to 12', page)
    assert link is not None
    decision = words(at_address(store, html.unescape(link[1])))
    for sentence in (
        "web grows from 12 to 17 for 27 pods: shop/cart-0",
        "batch-4 of batch is removed",
        "arm, web: Insufficient cpu (needs 40, ",
        "Decisions of this cluster are not recorded.",
        "outscaler replay plan-a5 --cluster prod",
    ):
        assert sentence in decision
    assert (
        get(store, "/clusters/prod/decision", plan="plan-a5", at=exact(NOW - 900_000)).status == 404
    )
    assert get(store, "/clusters/prod/decision", plan="plan-a5", at="now").status == 400


def test_pods_have_the_reason_first_and_then_each_group(store: Store) -> None:
    page = words(get(store, "/clusters/prod/pods"))
    assert page.index("arm, web: Insufficient cpu") < page.index("arm Insufficient")
    places = [page.index(f"{group} Insufficient") for group in ("arm", "web", "gpu")]
    assert places == sorted(places)
    assert "29 pods, 2 kinds" in page
    assert "No pod waits" in words(get(store, "/clusters/prod/pods", q="nothing"))


def test_pods_name_the_nearest_group_and_count_the_others() -> None:
    fits = Reason.of(ReasonCode.GROUP_MAX_SIZE, max=2)
    others = (Reason.of(ReasonCode.UNTOLERATED_TAINT, taint="dedicated=b:NoSchedule"),)
    reasons: dict[str, tuple[Reason, ...]] = {ARM: (fits,), WEB: others, GPU: others}
    store = example()
    pods = UnschedulablePods(("ml/web-1",), reasons, 20, nearest=1)
    plan = msgspec.structs.replace(busy_plan(), at=NOW - 6, unschedulable=(pods,))
    decided(store, "prod", plan, NOW - 5)
    for path in ("/clusters/prod", "/clusters/prod/pods"):
        page = words(get(store, path))
        assert "arm: max node group size reached (max 2); 2 other groups: taints 2" in page


def test_nodes_have_their_group_machine_share_and_why_they_stay(store: Store) -> None:
    page = words(get(store, "/clusters/prod/nodes", q="web-3"))
    assert (
        "web-3 web m5.large 4 d 82% cpu 61% memory 11 not underutilized (cpu 82%, threshold 50%)"
        in page
    )


@pytest.mark.parametrize(
    ("age", "words_of_age"), [(200.0, "requests and pods counted 3 min 20 s ago"), (30.0, "")]
)
def test_nodes_say_when_they_were_counted_where_a_pass_is_newer(
    age: float, words_of_age: str
) -> None:
    store = example()
    seen = overview()
    changed = msgspec.structs.replace(seen, at=NOW - age, nodes=seen.nodes[1:])
    store.gauge_rings.add_overview("prod", changed, NOW + 3600)
    decided(store, "prod", msgspec.structs.replace(busy_plan(), at=NOW - 6), NOW - 5)
    page = words(get(store, "/clusters/prod/nodes"))
    assert words_of_age in page
    assert ("requests and pods counted" in page) is bool(words_of_age)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({}, 20),
        ({"reason": "BlockedByPod", "q": "batch-1"}, 1),
        ({"group": ARM}, 2),
        ({"q": "x"}, 0),
    ],
)
def test_nodes_are_filtered_by_reason_name_and_group(
    query: dict[str, str], count: int, store: Store
) -> None:
    page = text(respond(store, PageRequest("/clusters/prod/nodes", query), NOW, Links(), STRICT))
    assert page.count('<th scope="row">') == count
    assert f"{count} node{'' if count == 1 else 's'}" in page


def test_paused_cluster_says_by_whom_until_when_and_how_to_resume(store: Store) -> None:
    page = words(get(store, "/clusters/staging"))
    assert "Everything until 12:26, by kim release test outscaler resume staging" in page


def test_tripped_circuit_breaker_needs_a_person() -> None:
    store = example()
    lease = store.leases.acquire("edge", "test", 60.0)
    tripped = Memory(breaker=BreakerState(tripped_at=NOW - 600, wanted=7))
    store.memory.save("edge", store.memory.load("edge"), tripped, (), lease)
    store.leases.release(lease, passed_at=NOW - 5)
    page = words(get(store, "/clusters/edge"))
    assert (
        "a plan would have removed 7 nodes at once; no node is removed until it is released" in page
    )
    assert "outscaler release edge" in page


def test_charts_have_numbers_for_the_script_and_a_table_without_it() -> None:
    store = example(hours=30)
    page = text(get(store, "/clusters/prod"))
    nodes = re.search(r' data-nodes="([^"]*)"', page)
    assert nodes is not None
    assert len(nodes[1].split(",")) == 288
    assert len(re.findall(r'<li data-at="[\d.]+" data-mark="(?:up|down)">', page)) == 5
    table = page[page.index('<table class="numbers">') :]
    assert table[: table.index("</table>")].count('<th scope="row">') in (24, 25)
    long = text(get(store, "/clusters/prod", range="14d"))
    assert "Last 14 days" in long
    assert len(re.search(r' data-nodes="([^"]*)"', long)[1].split(",")) == 336  # type: ignore[index]


def test_cluster_without_points_says_that_there_is_no_chart(store: Store) -> None:
    assert "No pass has stored its numbers in this time." in words(get(store, "/clusters/edge"))


def test_page_names_its_clock_where_it_is_not_the_real_time(store: Store) -> None:
    request = PageRequest("/clusters/prod", {})
    named = respond(store, request, NOW, Links(), STRICT, "the demonstration's time")
    assert "11:06:40 UTC · the demonstration's time" in words(named)
    assert "11:06:40 UTC reloads" in words(get(store, "/clusters/prod"))


def test_scripts_are_served_for_a_year_under_the_hash_of_their_content(store: Store) -> None:
    page = text(get(store, "/"))
    addresses = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert len(addresses) == 3
    for address in addresses:
        answer = get(store, address)
        assert (answer.status, answer.headers["Cache-Control"]) == (
            200,
            "public, max-age=31536000, immutable",
        )
        assert answer.headers["Content-Type"].partition(";")[0] in ("text/css", "text/javascript")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert get(store, "/static/page.js").status == get(store, "/static/").status == 404


def test_policy_page_shows_the_difference_and_hides_the_names_of_secrets(store: Store) -> None:
    page = text(get(store, "/clusters/prod/policy"))
    assert "-    - {provider: clusterapi, id: web, min: 2, max: 20}" in page
    assert "+    - {provider: clusterapi, id: web, min: 2, max: 30}" in page
    assert "outscaler/prod/kubeconfig" not in page
    assert get(store, "/clusters/prod/policy", version="x").status == 400
    assert get(store, "/clusters/prod/policy", version="9").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/clusters/nope",
        "/clusters/prod/groups/web",
        "/x",
        "/clusters/prod/x",
        "/clusters",
        "/clusters/%FF",
        "/static/x",
    ],
)
def test_unknown_page_is_a_404_without_details(store: Store, path: str) -> None:
    answer = get(store, path)
    assert (answer.status, CheckedPage(text(answer)).problems) == (404, [])


def test_caller_sees_only_the_permitted_clusters(store: Store) -> None:
    only = frozenset({"lab"})
    assert re.findall(r'href="/clusters/(\w+)"', text(get(store, "/", only))) == ["lab"]
    known, unknown = get(store, "/clusters/prod", only), get(store, "/clusters/nope", only)
    assert (known.status, known.body) == (404, unknown.body)  # it does not say which of them exists


def test_headers_permit_only_files_of_the_page_itself(store: Store) -> None:
    headers = get(store, "/").headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert (
        policy["script-src"]
        == policy["style-src"]
        == policy["connect-src"]
        == policy["form-action"]
        == "'self'"
    )
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
    assert get(store, "/x").headers == headers
    assert SECURITY_HEADERS.items() <= headers.items()


def test_no_answer_can_change_the_security_headers_of_the_next() -> None:
    with pytest.raises(TypeError):
        SECURITY_HEADERS["Cache-Control"] = "public"  # type: ignore[index]


def test_hostile_text_in_every_field_stays_text() -> None:
    for words in HOSTILE:
        store = example()
        reason = Reason.of(ReasonCode.UNEXPECTED, detail=words)
        plan = msgspec.structs.replace(
            busy_plan(),
            at=NOW - 50,
            groups=(GroupVerdict(words, words, 0, 5, 1, skipped=reason),),
            unremovable=(NodeVerdict(words, reason, words),),
            unschedulable=(UnschedulablePods((words,), {words: (reason,)}, 1),),
            notes=(reason,),
            consolidation=ConsolidationReport(
                "shadow",
                (
                    Move(
                        (words,),
                        (MovePurchase(words, 1, 1.0),),
                        1.0,
                        1.0,
                        1.0,
                        1.0,
                        1.0,
                        words,
                        currency=words,
                    ),
                ),
            ),
        )
        decided(
            store,
            "prod",
            plan,
            NOW - 5,
            failure=PassFailure(words[:50], words[:400], NOW - 9, NOW - 5, 1),
        )
        store.journal.append(
            "prod",
            JournalEntry(at=NOW - 1, kind="operation", group=words, facts={"message": words}),
        )
        for path in (
            *("", "/nodes", "/pods", "/history"),
            f"/decision?plan=plan-5be1f0a2d4c6&at={exact(NOW - 50)}",
        ):
            answer = at_address(store, f"/clusters/prod{path}")
            page = CheckedPage(text(answer))
            assert (answer.status, page.problems) == (200, []), (path, words[:40])
            assert len(answer.body) < 200_000
            assert not any(mark in text(answer) for mark in ("\u202e", "\u0000", "\u2028")), path
        assert get(store, "/clusters/prod/nodes", q=words[:100], reason=words[:100]).status == 200


def test_text_is_visible_and_bounded() -> None:
    assert shown("a\u202eb\x00\ud800") == "a\\u202eb\\u0000\\ud800"
    assert (len(shown("x" * 10_000)), shown("x" * 501)[-1]) == (LONGEST, "…")
    assert shown("Zürich ✓") == "Zürich ✓"


def test_table_that_does_not_answer_gives_a_page_with_the_instant() -> None:
    account, faults = MemoryAccount(), AwsFaults()
    example(account=account)
    broken = account.store("example", clock=lambda: NOW, wrap=faults.wrap, sleep=lambda _: None)
    for method in ("query", "get_item", "batch_get_item"):
        faults.instead(method, *[busy("InternalServerError")] * 50)
    for path in ("/", "/clusters/prod", "/clusters/prod/history"):
        answer = get(broken, path)
        assert (answer.status, CheckedPage(text(answer)).problems) == (503, [])
        assert "11:06:40" in text(answer)
        assert "Traceback" not in text(answer)


@pytest.mark.parametrize("count", [0, 1, 200])
def test_list_of_any_number_of_clusters_is_three_reads_at_most(count: int) -> None:
    account = MemoryAccount()
    store = account.store("example", clock=lambda: NOW)
    for at in range(count):
        name = f"cluster-{at:03d}"
        store.policies.put(name, GOOD.replace("prod-geneva", name), digest(name), None)
        decided(store, name, quiet_plan(name, NOW - 60), NOW - 9)
    reads = _reads(account, lambda: get(store, "/"))
    assert reads <= 2 + max(1, -(-count // 50))
    page = get(store, "/")
    assert text(page).count('<tr><th scope="row">') == count
    if count == 200:
        assert len(page.body) <= 10 * 20_000  # as 20 clusters in 20 KB


def test_page_of_a_cluster_is_five_reads_and_small() -> None:
    account = MemoryAccount()
    store = example(account=account)
    assert _reads(account, lambda: get(store, "/clusters/prod")) <= 5
    assert len(get(store, "/").body) <= 20_000
    large = as_many(50, 500, changes=100)
    for path in ("", "/nodes", "/pods", "/history"):
        page = get(large, f"/clusters/large{path}")
        assert page.status == 200
        assert len(page.body) <= 300_000
        assert len(gzip.compress(page.body)) <= 30_000


def _reads(account: MemoryAccount, work: Callable[[], object]) -> int:
    seen: list[str] = []
    account.meta.events.register(
        "provide-client-params.dynamodb.*", lambda **given: seen.append(given["model"].name)
    )
    work()
    return len(seen)


def test_decision_that_is_older_than_the_shown_entries_is_found() -> None:
    store = example()
    plan = quiet_plan("lab", NOW - 9000)
    decided(store, "lab", plan, NOW - 9)
    for at in range(40):
        store.journal.append("lab", JournalEntry(at=NOW - at, kind="operation", facts={"n": at}))
    assert "6 in use" in words(get(store, "/clusters/lab"))
    store.journal.append("lab", plan_entry(msgspec.structs.replace(plan, at=NOW)))
    assert get(store, "/clusters/lab").status == 200


def test_group_page_shows_its_size_over_time(store: Store) -> None:
    page = text(get(store, "/clusters/prod/groups", group=WEB))
    sizes = re.search(r' data-nodes="([^"]*)"', page)
    assert sizes is not None
    assert sizes[1] == "9,11,15,10,12,17"
    assert "9 then, 17 now" in page


def test_links_have_the_group_in_the_query() -> None:
    links = Links("/api/ui")
    assert links.group("prod", "a/b c") == "/api/ui/clusters/prod/groups?group=a%2Fb+c"
    assert links.start() == "/api/ui"


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (time_of(NOW - 60, NOW), "11:05"),
        (time_of(NOW - 86400, NOW), "Yesterday 11:06"),
        (time_of(NOW - 7 * 86400, NOW), "11 Nov 11:06"),
        (time_of(0.0, NOW), "never"),
        (ago(NOW - 22, NOW), "22 s ago"),
        (ago(NOW + 90, NOW), "in 1 min 30 s"),
        (duration(200_000), "2 d 7 h"),
        (duration(4_000_000), "46 d"),
        (
            prose("until 2026-11-18T12:00:00Z, or <b>2026-13-41T99:00:00Z</b> in 5 min", NOW),
            "until 12:00, or",
        ),
        (prose("<b>", NOW), "&lt;b&gt;"),
        (money(2.3149, "USD"), "$2.31"),
        (money(0.096, "EUR"), "€0.096"),
        (money(3.0, "CHF"), "3.00 CHF"),
    ],
)
def test_times_amounts_and_sentences_are_written_for_people(made: str, says: str) -> None:
    assert re.sub(r"</?time[^>]*>", "", made).replace("\u00a0", " ").startswith(says)


def test_cluster_that_may_not_be_scaled_is_unhealthy() -> None:
    store = example()
    plan = msgspec.structs.replace(
        quiet_plan("edge", NOW - 10), health=Health(healthy=False, registered=6, unready=4)
    )
    decided(store, "edge", plan, NOW - 5, gauges={key("cluster_safe_to_autoscale"): 0.0})
    page = words(get(store, "/clusters/edge"))
    assert "edge unhealthy" in page
    assert "4 of 6 nodes are not ready; nothing is changed until they are" in page
    assert "outscaler get nodes edge" in page
    listed = words(get(store, "/"))
    assert "unhealthy too many nodes are not ready, so nothing is changed" in listed


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (
            "/clusters/shop",
            (
                "Passes no pass is made, since 11:00 Unauthorized: the cluster refuses the token "
                "what to do"
            ),
        ),
        ("/clusters/lab", "lab off Off · last pass never"),
        ("/clusters/edge", "edge ok Shadow, nothing is changed"),
    ],
)
def test_status_says_what_is_the_matter_and_since_when(path: str, says: str, store: Store) -> None:
    assert says in words(get(store, path))


def test_list_says_that_the_circuit_breaker_blocks_removals() -> None:
    store = example()
    decided(store, "edge", quiet_plan("edge", NOW - 10), NOW - 5, gauges={key("brake"): 1.0})
    tags = TAG.findall(text(get(store, "/")))
    assert tags[:2] == [("bad", "no passes"), ("bad", "circuit breaker tripped")]
