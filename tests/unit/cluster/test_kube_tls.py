"""TLS trust, client certificates and proxies: the cluster's own settings take precedence."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
import urllib3
from urllib3.exceptions import InsecureRequestWarning

from chalicelib.cluster import errors
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.credentials import KubeCredential
from chalicelib.cluster.transport import open_connection
from chalicelib.model.errors import BadInput
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.scripted_http_server import HttpScript, Reply
from infra.emulators.tcp_servers import ConnectProxy
from tests.unit.cluster.support import TOKEN, Known, b64, client, file_client, kubeconfig

OURS, STRANGER = CertificateAuthority("ours"), CertificateAuthority("stranger")
NODE = Reply(body={"kind": "Node"})
TRUST = {"certificate-authority-data": b64(OURS.pem)}


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_kube_tls_trusts_a_server_of_the_clusters_ca() -> None:
    with HttpScript([NODE], tls=OURS.server()) as server:
        assert client(server, cluster=TRUST).get("/n") == NODE.payload()


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_kube_tls_cluster_ca_overrides_the_environment(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(STRANGER.pem)
    monkeypatch.setenv(variable, str(bundle))
    with HttpScript([NODE], tls=OURS.server()) as server:
        client(server, cluster=TRUST).get("/n")
    with (
        HttpScript([NODE], tls=STRANGER.server()) as server,
        pytest.raises(errors.Unavailable, match="certificate is refused"),
    ):
        client(server, cluster=TRUST).get("/n")
    assert server.requests == []


def test_kube_tls_untrusted_server_gets_no_request_and_no_retry() -> None:
    waits: list[float] = []
    with (
        HttpScript([NODE], tls=STRANGER.server()) as server,
        pytest.raises(errors.Unavailable, match=r"certificate is refused: .*issuer") as caught,
    ):
        client(server, cluster=TRUST, sleep=waits.append).get("/n")
    assert (server.requests, waits) == ([], [])
    assert caught.value.reason == "Tls"


def test_kube_tls_without_a_ca_only_public_authorities_are_trusted() -> None:
    with (
        HttpScript([NODE], tls=OURS.server()) as server,
        pytest.raises(errors.Unavailable, match="certificate is refused"),
    ):
        client(server).get("/n")


def test_kube_tls_public_authorities_are_the_bundled_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(OURS.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    with (
        HttpScript([NODE], tls=OURS.server()) as server,
        pytest.raises(errors.Unavailable, match="certificate is refused"),
    ):
        client(server).get("/n")


def test_kube_tls_settings_are_ignored_for_plain_http() -> None:
    with HttpScript([NODE]) as server:
        plain = client(server, cluster={"certificate-authority-data": b64(b"nobody reads this")})
        assert plain.get("/n") == NODE.payload()


def test_kube_tls_certificate_name_must_match_the_server() -> None:
    with (
        HttpScript([NODE], tls=OURS.server("elsewhere.test")) as server,
        pytest.raises(errors.Unavailable, match="certificate is refused"),
    ):
        client(server, cluster=TRUST).get("/n")


def test_kube_tls_server_name_overrides_the_expected_name() -> None:
    with HttpScript([NODE], tls=OURS.server("elsewhere.test")) as server:
        client(server, cluster={**TRUST, "tls-server-name": "elsewhere.test"}).get("/n")


def test_kube_tls_insecure_server_is_trusted_only_if_the_policy_allows_it() -> None:
    careless: dict[str, Any] = {"insecure-skip-tls-verify": True}
    with HttpScript([NODE], tls=STRANGER.server()) as server:
        with pytest.raises(BadInput, match="allowInsecureTls"):
            client(server, cluster=careless)
        client(server, cluster=careless, insecure=True).get("/n")


@pytest.mark.parametrize("proxied", [False, True])
def test_kube_tls_allowed_insecure_server_warns_only_for_others(
    proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    careless: dict[str, Any] = {"insecure-skip-tls-verify": True}
    with ConnectProxy() as proxy, HttpScript([NODE] * 3, tls=STRANGER.server()) as server:
        if proxied:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ours = client(server, cluster=careless, insecure=True)
            ours.get("/n")
        with pytest.warns(InsecureRequestWarning):
            urllib3.PoolManager(cert_reqs="CERT_NONE").request("GET", f"{server.url}/n")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ours.get("/n")
    assert len(server.requests) == 3


def test_kube_tls_client_certificate_is_sent_without_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pair = OURS.client("autoscaler", ["system:nodes"])
    user = {"client-certificate-data": b64(pair.certificate), "client-key-data": b64(pair.key)}
    with HttpScript([NODE], tls=OURS.server(), client_ca=OURS.pem) as server:
        client(server, cluster=TRUST, user=user).get("/n")
    assert server.requests[0].client_certificate == "autoscaler"
    assert server.requests[0].credential == ""
    assert list(tmp_path.iterdir()) == []


def test_kube_tls_certificate_files_next_to_a_kubeconfig_file_are_found(tmp_path: Path) -> None:
    pair = OURS.client("autoscaler")
    (tmp_path / "pki").mkdir()
    for name, data in (("ca.pem", OURS.pem), ("me.pem", pair.certificate), ("me.key", pair.key)):
        (tmp_path / "pki" / name).write_bytes(data)
    with HttpScript([NODE], tls=OURS.server(), client_ca=OURS.pem) as server:
        config = kubeconfig(
            server.url,
            cluster={"certificate-authority": "pki/ca.pem"},
            user={
                "client-certificate": "pki/me.pem",
                "client-key": str(tmp_path / "pki" / "me.key"),
            },
        )
        file_client(tmp_path / "config", config).get("/n")
    assert server.requests[0].client_certificate == "autoscaler"


def test_kube_netrc_does_not_replace_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with HttpScript([NODE, NODE]) as server:
        client(server).get("/n")
        monkeypatch.delenv("NETRC")
        client(server).get("/n")
    assert server.requests[0].credential == server.requests[1].credential


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy"])
def test_kube_proxy_of_the_environment_is_used_with_the_clusters_ca(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ConnectProxy() as proxy, HttpScript([NODE], tls=OURS.server()) as server:
        monkeypatch.setenv(variable, proxy.url)
        client(server, cluster=TRUST).get("/n")
        assert proxy.targets == [server.url.removeprefix("https://")]
    with ConnectProxy() as proxy, HttpScript([NODE], tls=STRANGER.server()) as server:
        monkeypatch.setenv(variable, proxy.url)
        with pytest.raises(errors.Unavailable, match="certificate is refused"):
            client(server, cluster=TRUST).get("/n")


def test_kube_no_proxy_bypasses_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with HttpScript([NODE], tls=OURS.server()) as server:
        assert client(server, cluster=TRUST).get("/n") == NODE.payload()


def test_kube_proxy_of_the_kubeconfig_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    with ConnectProxy() as proxy, HttpScript([NODE], tls=OURS.server()) as server:
        client(server, cluster={**TRUST, "proxy-url": proxy.url}).get("/n")
        assert len(proxy.targets) == 1


def test_kube_proxy_that_is_down_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://someone:a-password@127.0.0.1:9")
    with (
        HttpScript([NODE], tls=OURS.server()) as server,
        pytest.raises(errors.Unavailable, match="proxy") as caught,
    ):
        client(server, cluster=TRUST).get("/n")
    assert "a-password" not in str(caught.value)


def test_kube_tls_valid_connection_gives_no_warning() -> None:
    with warnings.catch_warnings(), HttpScript([NODE], tls=OURS.server()) as server:
        warnings.simplefilter("error")
        assert client(server, cluster=TRUST, user={"token": TOKEN}).get("/n") == NODE.payload()


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
def test_kube_function_ignores_proxies_of_the_environment(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://someone:a-password@127.0.0.1:9")
    assert (
        open_connection(KubeCredential(server="https://cluster.test", hosted=True)).session.proxies
        == {}
    )
    assert open_connection(KubeCredential(server="https://cluster.test")).session.proxies != {}


def test_kube_function_refuses_names_that_resolve_to_itself() -> None:
    """The check of the kubeconfig sees only names; the addresses they resolve to are checked
    when the connection is made."""
    with HttpScript([NODE]) as server:
        credential = KubeCredential(
            server=server.url.replace("127.0.0.1", "localhost"), hosted=True
        )
        cluster = KubeClient(Known(credential), sleep=lambda _: None, jitter=lambda: 0.5)
        with pytest.raises(errors.Unavailable, match="address is not allowed") as caught:
            cluster.get("/n")
    assert server.requests == []
    assert caught.value.lasting
