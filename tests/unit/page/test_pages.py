"""The pages of the example deployment: content, structure, size, reads, escaping."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable

import msgspec
import pytest

from chalicelib.model.plan import GroupVerdict, NodeVerdict, UnschedulablePods
from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.page.pages import PageAnswer, PageRequest, respond
from chalicelib.page.render import LONGEST, Links, security_headers, shown, style
from chalicelib.policy.load import digest
from chalicelib.record.journal import plan_entry
from chalicelib.record.metrics import key
from chalicelib.store import JournalEntry, Store
from chalicelib.store.leases import PassFailure
from infra.emulators.aws_faults import AwsFaults, busy
from infra.emulators.example_clusters import NOW, as_many, busy_plan, decided, example, quiet_plan
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
    "/clusters/prod/groups/web",
    "/clusters/prod/groups/gpu",
    "/clusters/prod/nodes",
    "/clusters/prod/pods",
    "/clusters/prod/history",
    "/clusters/prod/policy",
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


def get(store: Store, path: str, permitted: frozenset[str] | None = None, **query: str) -> PageAnswer:
    return seen_with(STRICT, store, path, permitted, **query)


def seen_with(
    deployment: Deployment | None, store: Store, path: str, permitted: frozenset[str] | None = None, **query: str
) -> PageAnswer:
    """The page of a deployment with these settings; None: they are not known."""
    return respond(store, PageRequest(path, query, permitted), NOW, Links(), deployment)


def text(answer: PageAnswer) -> str:
    return answer.body.decode()


@pytest.fixture(scope="module")
def store() -> Store:
    return example()


def with_policy(providers: str) -> Store:
    """A deployment with one cluster whose policy names a secret outside the cluster's own names."""
    store = MemoryAccount().store("example", clock=lambda: NOW)
    document = (
        "apiVersion: outscaler.dev/v1\nkind: Cluster\nmetadata: {name: mine}\nspec:\n  mode: active\n"
        "  kubernetes: {kubeconfigSecret: outscaler/dev/mine/kubeconfig}\n"
        f"  providers: {{{providers}}}\n"
    )
    store.policies.put("mine", document, digest(document), None)
    return store


SHARED = "exoscale: {zone: ch-gva-2, credentialsSecret: outscaler/dev/all/exoscale, endpoint: 'https://proxy.example'}"
OF_SHARED = Deployment(
    "outscaler/dev/", frozenset({"outscaler/dev/all/exoscale"}), endpoints=frozenset({"proxy.example"})
)


@pytest.mark.parametrize("path", ["/", "/clusters/mine"])
def test_policy_is_judged_by_the_settings_of_the_deployment(path: str) -> None:
    store = with_policy(SHARED)
    permitted, strict = (text(seen_with(one, store, path)) for one in (OF_SHARED, STRICT))
    assert ("WAITING" in permitted, "UNREADABLE" in permitted) == (True, False)
    assert ("WAITING" in strict, "UNREADABLE" in strict) == (False, True)
    assert "Not judged here" not in permitted + strict


@pytest.mark.parametrize("path", ["/", "/clusters/mine"])
def test_what_the_functions_permit_is_not_judged_where_it_is_not_known(path: str) -> None:
    unknown = text(seen_with(None, with_policy(SHARED), path))
    assert ("WAITING" in unknown, "UNREADABLE" in unknown, "Not judged here" in unknown) == (True, False, True)
    broken = text(seen_with(None, with_policy("exoscale: {zone: nowhere}, nosuch: {}"), path))
    assert ("WAITING" in broken, "UNREADABLE" in broken) == (False, True)


def test_every_page_is_well_formed_labelled_and_free_of_scripts(store: Store) -> None:
    for path in PATHS:
        answer = get(store, path)
        assert (answer.status, CheckedPage(text(answer)).problems) == (200, []), path
        assert "<script" not in text(answer)
        assert " style=" not in text(answer)


def test_list_shows_the_worst_status_first_with_shape_and_word(store: Store) -> None:
    page = text(get(store, "/"))
    order = re.findall(r'<span class="status \w+">(\S) (\w+)</span>', page)
    assert order == [("▲", "LATE"), ("◐", "PAUSED"), ("●", "OK"), ("●", "OK"), ("■", "OFF")]
    assert "Unauthorized: the cluster refuses the token" in page
    assert "outscaler get clusters" in page


def test_cluster_page_says_what_is_done_and_why_the_rest_is_not(store: Store) -> None:
    page = text(get(store, "/clusters/prod"))
    for words in (
        "2 open operations",
        "14 to 17",
        "back-off: OutOfStock",
        "NotUnderutilized</a> 13",
        "ml/train-huge-0 and 1 more: no node fits",
        "shop/cart-0 and 26 more: new nodes of",
        "outscaler get groups prod",
    ):
        assert words in page, words


def test_lists_are_filtered_by_the_form(store: Store) -> None:
    page = text(get(store, "/clusters/prod/nodes", reason="BlockedByPod", q="batch-1"))
    assert "1 node<" in page
    assert "No pod waits" in text(get(store, "/clusters/prod/pods", q="nothing"))


def test_policy_page_shows_the_difference_and_hides_the_names_of_secrets(store: Store) -> None:
    page = text(get(store, "/clusters/prod/policy"))
    assert "-    - {provider: clusterapi, id: web, min: 2, max: 20}" in page
    assert "+    - {provider: clusterapi, id: web, min: 2, max: 30}" in page
    assert "outscaler/prod/kubeconfig" not in page
    assert get(store, "/clusters/prod/policy", version="x").status == 400
    assert get(store, "/clusters/prod/policy", version="9").status == 404


def test_history_has_a_link_to_older_entries() -> None:
    store = example()
    for at in range(60):
        store.journal.append("lab", JournalEntry(at=NOW - at, kind="policy", facts={"version": at}))
    page = text(get(store, "/clusters/lab/history"))
    older = re.search(r'href="(/clusters/lab/history)\?before=([^"]+)"', page)
    assert older is not None
    next_page = text(get(store, older[1], before=older[2].replace("%3A", ":")))
    assert (next_page.count('<tr><th scope="row">'), "version 59 of" in next_page) == (10, True)


@pytest.mark.parametrize(
    "path", ["/clusters/nope", "/clusters/prod/groups/nope", "/x", "/clusters/prod/x", "/clusters", "/clusters/%FF"]
)
def test_unknown_page_is_a_404_without_details(store: Store, path: str) -> None:
    answer = get(store, path)
    assert (answer.status, CheckedPage(text(answer)).problems) == (404, [])


def test_caller_sees_only_the_permitted_clusters(store: Store) -> None:
    only = frozenset({"lab"})
    assert re.findall(r'href="/clusters/(\w+)"', text(get(store, "/", only))) == ["lab"]
    known, unknown = get(store, "/clusters/prod", only), get(store, "/clusters/nope", only)
    assert (known.status, known.body) == (404, unknown.body)  # it does not say which of them exists


def test_headers_permit_only_the_one_style_sheet(store: Store) -> None:
    headers = get(store, "/").headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
    assert get(store, "/x").headers == headers
    assert f"<style>{style()}</style>" in text(get(store, "/"))
    assert security_headers().items() <= headers.items()


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
        )
        decided(store, "prod", plan, NOW - 5, failure=PassFailure(words[:50], words[:400], NOW - 9, NOW - 5, 1))
        store.journal.append("prod", JournalEntry(at=NOW - 1, kind="operation", group=words, facts={"message": words}))
        for path in ("/", "/clusters/prod", "/clusters/prod/nodes", "/clusters/prod/pods", "/clusters/prod/history"):
            answer = get(store, path, q="", reason="")
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
        assert "as of" in text(answer)
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
    large = get(as_many(50, 500), "/clusters/large")
    assert len(large.body) <= 60_000
    assert len(gzip.compress(large.body)) <= 12_000


def _reads(account: MemoryAccount, work: Callable[[], object]) -> int:
    seen: list[str] = []
    account.meta.events.register("provide-client-params.dynamodb.*", lambda **given: seen.append(given["model"].name))
    work()
    return len(seen)


def test_decision_that_is_older_than_the_shown_entries_is_found() -> None:
    store = example()
    plan = quiet_plan("lab", NOW - 9000)
    decided(store, "lab", plan, NOW - 9)
    for at in range(40):
        store.journal.append("lab", JournalEntry(at=NOW - at, kind="operation", facts={"n": at}))
    assert "NotUnderutilized</a> 6" in text(get(store, "/clusters/lab"))
    store.journal.append("lab", plan_entry(msgspec.structs.replace(plan, at=NOW)))
    assert get(store, "/clusters/lab").status == 200


def test_group_page_shows_its_size_over_time() -> None:
    shown_page = text(get(example(), "/clusters/prod/groups/web"))
    [line] = re.findall(r'<polyline class="nodes" points="([^"]+)"', shown_page)
    heights = [float(corner.split(",")[1]) for corner in line.split()]
    assert len(heights) == 2 * 3 + 2  # three operations
    assert heights[0] > heights[-1]
    assert "11 then, 17 now" in shown_page


def test_node_that_is_used_too_much_has_a_bar_with_the_threshold() -> None:
    assert re.search(r"<title>\d+% used, threshold \d+%</title>", text(get(example(), "/clusters/prod/nodes")))


def test_hosted_links_have_the_group_in_the_query() -> None:
    links = Links("/api/ui")
    assert links.group("prod", "a/b c") == "/api/ui/clusters/prod/groups?group=a%2Fb+c"
    assert links.start() == "/api/ui"
    assert "Node group web" in text(get(example(), "/clusters/prod/groups", group="web"))


def test_list_says_that_the_circuit_breaker_blocks_removals() -> None:
    store = example()
    decided(store, "edge", quiet_plan("edge", NOW - 10), NOW - 5, gauges={key("brake"): 1.0})
    page = text(get(store, "/"))
    assert re.findall(r'<span class="status \w+">(\S) (\w+)</span>', page)[:2] == [("▲", "LATE"), ("▲", "BRAKE")]
