"""The watcher as a process with its shipped kubeconfig, its settings, its
packages and its rights.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cluster.list_archive import SILENT_FOR, WatchedLists, list_place, watcher_key
from chalicelib.cluster.listed_resources import PRIORITY_CONFIG, RESOURCES
from chalicelib.cluster.watcher_post import WatcherPost, read_post
from chalicelib.model.errors import BadInput
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.runtime.webhook_authentication import AuthResult, WebhookKeys, verify
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen
from infra.watcher.settings import WatcherSettings, from_environment
from infra.watcher.watcher import (
    GIVE_UP,
    LONGEST_ASKED,
    LONGEST_PAUSE,
    ClusterWatcher,
    NotPosted,
    Silent,
    pause_after,
    sender,
)
from tests.cases import each_row
from tests.contract.kube_api.cluster import NOW, running
from tests.processes import PATIENCE, started
from tests.property.cluster_history import UNTIL_ENDED, client_of

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "infra" / "kubernetes" / "outscaler-watcher.yaml"
WATCHER = ROOT / "infra" / "watcher"
AUTHORITY = CertificateAuthority("webhook")
KEY, SECRET = "hmac-value-for-tests", "a-random-text-for-tests-of-32-chars"
GIVEN = {"OUTSCALER_CLUSTER": "prod", "OUTSCALER_WEBHOOK": "https://id.example/api/"}


def _documents(kind: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == kind]


def _secrets(folder: Path) -> Path:
    (folder / "webhook").write_text(json.dumps({"hmac": KEY}))
    (folder / "watcher").write_text(SECRET)
    (folder / "webhook.pem").write_bytes(AUTHORITY.pem)
    return folder


def _kubeconfig(folder: Path, given: str) -> Path:
    """Write the shipped kubeconfig, with the address of another server, and files for its
    account."""
    [shipped] = _documents("ConfigMap")
    config = yaml.safe_load(given)
    server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    (folder / "ca.crt").write_bytes(base64.b64decode(server["certificate-authority-data"]))
    (folder / "token").write_text(user["token"])
    text = shipped["data"]["kubeconfig"].replace("/var/run/outscaler", str(folder))
    made = folder / "kubeconfig"
    made.write_text(text.replace("https://kubernetes.default.svc", server["server"]))
    return made


class StoredPosts:
    """Stores signed posts in a folder."""

    def __init__(self, folder: Path) -> None:
        self.lists, self.complete = (
            WatchedLists(list_place(str(folder)), time.time),
            threading.Event(),
        )
        self.verdicts: list[AuthResult] = []

    def answer(self, seen: Seen) -> Reply:
        """Store a post."""
        headers, keys = (
            {name.lower(): text for name, text in seen.headers.items()},
            WebhookKeys(hmac=(KEY.encode(),)),
        )
        self.verdicts.append(
            verify("prod", headers, seen.body, keys, b"decoy", time.time()).verdict
        )
        post = read_post(seen.body)
        self.lists.store("prod", post)
        if post.kind == "changes":
            self.complete.set()
        return Reply(202, {"stored": post.kind})


def test_process_posts_until_it_is_stopped(tmp_path: Path) -> None:
    webhook, secrets = StoredPosts(tmp_path), _secrets(tmp_path)
    with (
        running(tls=True) as server,
        HttpScript(webhook.answer, tls=AUTHORITY.server("127.0.0.1")) as front,
    ):
        environment = {
            "OUTSCALER_CLUSTER": "prod",
            "OUTSCALER_WEBHOOK": front.url,
            "OUTSCALER_WEBHOOK_CA": str(secrets / "webhook.pem"),
            "OUTSCALER_KUBECONFIG": str(_kubeconfig(tmp_path, server.kubeconfig())),
            "OUTSCALER_SECRETS": str(secrets),
        }
        command = [sys.executable, "-m", "infra.watcher"]
        with started(command, environment, cwd=ROOT) as process:
            assert webhook.complete.wait(PATIENCE), "nothing was posted"
            process.terminate()
            _, problems = process.communicate(timeout=PATIENCE)
        assert (process.returncode, problems) == (0, "")
        there = {each["metadata"]["name"] for each in server.store.list("nodes", None)}
    namespace = Options().namespace
    found = webhook.lists.load("prod", watcher_key("prod", SECRET, namespace), namespace, 0.0)
    assert {each.name for each in found.builder.nodes} == there
    assert set(webhook.verdicts) == {AuthResult.ACCEPTED}


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (
            Reply(400, {"error": "spec.kubernetes.watcherSecret: is not set"}),
            "watcherSecret: is not set",
        ),
        (Reply(502, "<html>"), r"answers HTTP 502 \(6 bytes"),
        (Reply(hang_up=True), "gives no answer"),
    ],
)
def test_problem_of_a_post_is_named(reply: Reply, problem: str, tmp_path: Path) -> None:
    with HttpScript([reply], tls=AUTHORITY.server("127.0.0.1")) as front:
        secrets = _secrets(tmp_path)
        url, trusted = f"{front.url}/clusters/prod/events", str(secrets / "webhook.pem")
        post = sender(WatcherSettings("prod", url, "", secrets, "kube-system", 10.0, trusted))
        with pytest.raises(NotPosted, match=problem):
            post(WatcherPost("changes", "0" * 32, 1, b""))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"OUTSCALER_CLUSTER": ""}, "OUTSCALER_CLUSTER: is not set"),
        ({"OUTSCALER_WEBHOOK": ""}, "OUTSCALER_WEBHOOK: is not set"),
        ({"OUTSCALER_WEBHOOK": "http://id.example"}, "OUTSCALER_WEBHOOK: is not an HTTPS address"),
        ({"OUTSCALER_WEBHOOK": "https://[::1"}, "OUTSCALER_WEBHOOK: is not an HTTPS address"),
        ({"OUTSCALER_EVERY": "1"}, "OUTSCALER_EVERY: is '1'; give 2 to 20 seconds"),
        ({"OUTSCALER_EVERY": "nan"}, "OUTSCALER_EVERY: is 'nan'"),
    ],
)
def test_wrong_setting_is_named(given: dict[str, str], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        from_environment(GIVEN | given)


def test_settings_have_defaults_of_the_manifest() -> None:
    made = from_environment(GIVEN)
    [deployment] = _documents("Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert {str(Path(made.kubeconfig).parent), str(made.secrets)} <= mounted
    assert made.url == "https://id.example/api/clusters/prod/events"
    assert 2 * made.every < SILENT_FOR


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("webhook", None, "cannot be read"),
        ("webhook", '{"bearer": "a-token-of-some-length"}', "has no key for signatures"),
        ("watcher", None, "cannot be read"),
        ("watcher", "short", "fewer than 32 characters"),
    ],
)
def test_unusable_secret_is_named(
    name: str, text: str | None, problem: str, tmp_path: Path
) -> None:
    file = _secrets(tmp_path) / name
    file.unlink() if text is None else file.write_text(text)
    settings = WatcherSettings("prod", "", "", tmp_path, "kube-system", 10.0)
    with pytest.raises(BadInput, match=problem):
        settings.webhook_key() if name == "webhook" else settings.seal_key()


def test_process_without_settings_ends_with_a_reason() -> None:
    command, environment = [sys.executable, "-m", "infra.watcher"], {"PATH": os.defpath}
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("outscaler-watcher: OUTSCALER_CLUSTER: is not set")
    assert "Traceback" not in done.stderr


def _pins(file: Path) -> dict[str, list[str]]:
    """Return name -> lines of each package in a lock file."""
    made: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        if "==" in line:
            made[name := line.split("==")[0].lower()] = []
        if line.strip():
            made[name].append(line)
    return made


def test_image_has_the_packages_of_the_functions_that_the_watcher_imports() -> None:
    ours, all_pins = _pins(WATCHER / "requirements.txt"), _pins(ROOT / "requirements.txt")
    assert all(all_pins[name] == lines for name, lines in ours.items())
    script = (
        "import json, sys; import infra.watcher.__main__; print(json.dumps(sorted(sys.modules)))"
    )
    listed = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(listed.stdout)}
    distributions = packages_distributions()  # reads the metadata of every installed package
    owners = {owner.lower() for name in loaded for owner in distributions.get(name, ())}
    optional = {
        "backports.tarfile",
        "setuptools",
        "simplejson",
        "typing-extensions",
        "typing_extensions",
    }
    assert owners - {"outscaler"} - optional <= set(ours)


def test_watcher_may_only_read_what_passes_read() -> None:
    [cluster], [own] = _documents("ClusterRole"), _documents("Role")
    granted = {
        (group, resource, verb)
        for rule in cluster["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {
        (each.group, each.plural, verb) for each in RESOURCES for verb in ("list", "watch")
    }
    [rule] = own["rules"]
    assert PRIORITY_CONFIG.format("kube-system").endswith(f"/configmaps/{rule['resourceNames'][0]}")
    assert rule["verbs"] == ["get"]


def test_watcher_that_can_post_nothing_ends_after_ten_minutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = ManualClock(NOW)
    settings = WatcherSettings("prod", "", "", _secrets(tmp_path), "kube-system", 0.0)

    def refuses(post: WatcherPost) -> None:
        clock.advance(GIVE_UP / 3)
        raise NotPosted(f"{post.kind}: refused")

    with running(longest_watch=0) as server:
        watcher = ClusterWatcher(
            settings, client_of(server), refuses, clock=clock, monotonic=clock, quiet=UNTIL_ENDED
        )
        with pytest.raises(Silent, match="600 s"):
            watcher.run()
    assert capsys.readouterr().err.count("outscaler-watcher: base: refused; again in 0 s\n") == 3


REFUSALS = {
    "401": Reply(401, {"error": "signature"}),
    "403": Reply(403, "forbidden"),
    "413": Reply(413, {"error": "less at a time"}),
    "503": Reply(503, {"error": "try again"}),
}


class Stopped(Exception):
    """The test has seen enough."""


class FakeWait:
    """Waits on a manual clock, and writes down for how long."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock, self.stop_after = clock, 1000
        self.pauses: list[float] = []

    def __call__(self, event: threading.Event, seconds: float) -> None:
        if not seconds:
            return
        self.pauses.append(seconds)
        self._clock.advance(seconds)
        if len(self.pauses) >= self.stop_after:
            raise Stopped


@pytest.fixture
def refused_watcher(
    tmp_path: Path,
) -> Iterator[Callable[[Callable[[Seen], Reply]], tuple[ClusterWatcher, FakeWait]]]:
    """Makes a watcher whose webhook answers as it is told, on a manual clock."""
    with ExitStack() as stack:
        server = stack.enter_context(running(longest_watch=0))

        def make(answer: Callable[[Seen], Reply]) -> tuple[ClusterWatcher, FakeWait]:
            front = stack.enter_context(HttpScript(answer, tls=AUTHORITY.server("127.0.0.1")))
            clock, secrets = ManualClock(NOW), _secrets(tmp_path)
            url, trusted = f"{front.url}/clusters/prod/events", str(secrets / "webhook.pem")
            settings = WatcherSettings("prod", url, "", secrets, "kube-system", 10.0, trusted)
            wait = FakeWait(clock)
            watcher = ClusterWatcher(
                settings,
                client_of(server),
                sender(settings, clock),
                clock=clock,
                monotonic=clock,
                quiet=UNTIL_ENDED,
                wait=wait,
                draw=lambda: 1.0,
            )
            return watcher, wait

        yield make


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_posts_are_sent_less_and_less_often(name: str, refused_watcher: Any) -> None:
    posts: list[Seen] = []

    def answer(seen: Seen) -> Reply:
        posts.append(seen)
        return REFUSALS[name]

    watcher, wait = refused_watcher(answer)
    with pytest.raises(Silent):
        watcher.run()
    assert wait.pauses == [20.0, 40.0, 80.0, 120.0, 120.0, 120.0, 120.0]
    assert len(posts) == len(wait.pauses)


def test_the_webhook_says_how_long_to_wait(refused_watcher: Any) -> None:
    replies = [Reply(429, "", {"Retry-After": "200"}), Reply(429, "", {"Retry-After": "100000"})]
    watcher, wait = refused_watcher(lambda _: replies.pop(0) if replies else Reply(202, {}))
    watcher.urgent.set()  # a pod waits
    wait.stop_after = 3
    with pytest.raises(Stopped):
        watcher.run()
    assert wait.pauses == [200.0, LONGEST_ASKED, 10.0]


def test_an_accepted_post_ends_the_backoff(refused_watcher: Any) -> None:
    answers = iter([503, 503, 202, 202, 503])
    watcher, wait = refused_watcher(lambda _: Reply(next(answers), {}))
    wait.stop_after = 5
    with pytest.raises(Stopped):
        watcher.run()
    # Two refusals, a post, a turn that has nothing new to post, and a first refusal again.
    assert wait.pauses == [20.0, 40.0, 10.0, 10.0, 20.0]


@each_row("draw, least, most", [(0.0, 10.0, 10.0), (1.0, 20.0, 20.0), (0.5, 10.0, 20.0)])
def test_pauses_have_jitter(draw: float, least: float, most: float) -> None:
    assert least <= pause_after(1, 10.0, 0.0, draw) <= most
    assert pause_after(1000, 20.0, 0.0, draw) <= LONGEST_PAUSE
