"""Addresses allowed in a kubeconfig: one host, in an unambiguous spelling, and
never a metadata service.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.cluster.connect import from_kubeconfig
from chalicelib.cluster.credentials import KubeCredential
from chalicelib.model.errors import BadInput
from tests.cases import each_row
from tests.unit.cluster.support import kubeconfig


def read(server: str = "https://c.test", *, hosted: bool = False, **cluster: Any) -> KubeCredential:
    config = kubeconfig(
        server, cluster={key.replace("_", "-"): value for key, value in cluster.items()}
    )
    return from_kubeconfig(json.dumps(config), place="kubeconfig secret prod", hosted=hosted)


@each_row(
    "server",
    [
        "https://c.test",
        "https://c.test/",
        "https://c.test:6443",
        "https://10.0.0.1:443/k8s/clusters/c-m-x1",
        "https://[2001:db8::1]:6443",
        "HTTPS://C.Test",
        "https://c.test/a/b_c~d.e/@f",
        "https://c_d.test.",
        "http://127.0.0.1:80",
        "https://100.64.0.1",
        "https://[fd12:3456::1]",
    ],
)
def test_kubeconfig_accepts_a_plain_address(server: str) -> None:
    assert read(server).server == server.rstrip("/").replace("HTTPS:", "https:")


@each_row(
    "server",
    [
        "https://c.test?",
        "https://c.test/?",
        "https://c.test/x?a=b",
        "https://c.test#",
        "https://c.test/#",
        "https://c.test/x#y",
        "https://c.test\n",
        "https://c.test\n/x",
        "https://c.test\r\n/x",
        "https://c.test/\t",
        "https://c.test/a b",
        " https://c.test",
        "https://c.test\u00a0",
        "https://c.test/\x00",
        "https://c.test/\x1b[2J",
        "https://c.test\\@evil.test",
        "https://c.test/\\x",
        "https://user@c.test",
        "https://user:password@c.test",
        "https://@c.test",
        "https://c.test%2f.evil.test",
        "https://c%2etest",
        "https://%63.test",
        "https://c.test/%2e%2e/x",
        "https://c.test/a/../b",
        "https://c.test/./b",
        "https://c.test:0",
        "https://c.test:65536",
        "https://c.test:",
        "https://c.test:+443",
        "https://c.test:4 4",
        "https://[fe80::1%25eth0]",
        "https://[::1",
        "https://[1.2.3.4]",
        "https://[v1.x]",
        "https://c.test]",
        "https://",
        "https:///x",
        "https:c.test",
        "//c.test",
        "ftp://c.test",
        "file:///etc/passwd",
        "https://.c.test",
        "https://-c.test",
        "https://c.test,d.test",
        "https://c\uff0etest",
        "https://\u0441.test",
        "https://c.test;x",
        "https://" + "a" * 300,
    ],
)
def test_kubeconfig_refuses_an_address_that_parsers_read_differently(server: str) -> None:
    with pytest.raises(BadInput, match="is not the URL of an API server") as caught:
        read(server)
    assert caught.value.place == "kubeconfig secret prod: clusters[0].cluster.server"
    assert "\n" not in str(caught.value)
    assert "password" not in str(caught.value)


METADATA = (
    "169.254.169.254",
    "169.254.170.2",
    "169.254.79.129",
    "2852039166",
    "0xA9FEA9FE",
    "0xa9.0xfe.0xa9.0xfe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "169.16689662",
    "0251.254.0xa9fe",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[0:0:0:0:0:ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::1]",
    "[::a9fe:a9fe]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[febf::1]",
    "[fd20:ce::254]",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "0.0.0.0",
    "0",
    "[::]",
    "224.0.0.1",
    "255.255.255.255",
    "[ff02::1]",
    "metadata.google.internal",
    "METADATA",
    "[64:ff9b:1::a9fe:a9fe]",
    "[::ffff:0:a9fe:a9fe]",
    "[2001:0:a9fe:a9fe::1]",
    "metadata.tencentyun.com",
    "instance-data",
    "instance-data.ec2.internal",
)


@each_row("host", METADATA)
def test_kubeconfig_refuses_a_metadata_service_in_every_spelling(host: str) -> None:
    for server in (f"https://{host}", f"https://{host}:6443/x"):
        with pytest.raises(BadInput, match="link-local address or a metadata service"):
            read(server)
    with pytest.raises(BadInput, match="link-local address or a metadata service") as caught:
        read(proxy_url=f"http://{host}:3128")
    assert caught.value.place.endswith(".proxy-url")


LOOPBACK = (
    "127.0.0.1",
    "localhost",
    "LOCALHOST",
    "a.localhost",
    "localhost.",
    "127.1",
    "127.8.9.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
)


@each_row("host", LOOPBACK)
@each_row("scheme", ["http", "https"])
def test_kubeconfig_loopback_is_allowed_in_commands_only(host: str, scheme: str) -> None:
    server = f"{scheme}://{host}:9001"
    assert read(server).server == server
    with pytest.raises(BadInput, match="is a loopback address") as caught:
        read(server, hosted=True)
    assert caught.value.place.endswith(".server")
    with pytest.raises(BadInput, match="is a loopback address"):
        read(proxy_url=server, hosted=True)


def test_kubeconfig_plain_http_to_another_host_needs_consent_in_functions() -> None:
    with pytest.raises(BadInput, match="plain http"):
        read("http://c.test", hosted=True)


@each_row(
    "proxy",
    [
        "http://p.test",
        "http://p.test:3128",
        "https://p.test:3128/",
        "http://user:pass%20word@p.test:3128",
        "http://user@[2001:db8::1]:3128",
    ],
)
def test_kubeconfig_accepts_an_http_proxy_and_hides_its_password(proxy: str) -> None:
    credential = read(proxy_url=proxy)
    assert credential.proxy.reveal() == proxy
    assert "pass" not in repr(credential)
    assert "p.test" not in repr(credential)


@each_row(
    "proxy",
    [
        "socks5://p.test",
        "p.test:3128",
        "http://p.test/path",
        "http://p.test?x",
        "http://p.test#x",
        "http://p.test\n",
        "http://a@b@p.test",
        "http://p.test:0",
        "http://p.test:70000",
        "http://user:hidden word@p.test",
        "http://",
        "http://user:hidden\\@p.test",
    ],
)
def test_kubeconfig_refuses_an_unusable_proxy_without_quoting_it(proxy: str) -> None:
    with pytest.raises(BadInput, match="not an http or https proxy") as caught:
        read(proxy_url=proxy)
    assert "hidden" not in str(caught.value)


@each_row(
    "name",
    [
        "a\r\nX: y",
        "\0",
        "a b",
        "a" * 254,
        "*.example.com",
        "ex\u00e4mple.com",
        "a..b",
        "-a",
        "https://example.com",
        "example.com:443",
    ],
)
def test_kubeconfig_refuses_an_invalid_tls_server_name_when_read(name: str) -> None:
    with pytest.raises(BadInput, match="is not the name of a host") as caught:
        read(tls_server_name=name)
    assert caught.value.place.endswith(".tls-server-name")


@each_row(
    "name", ["kubernetes.default.svc", "10.0.0.1", "fd12::1", "A-1.example.com", "x_y.example"]
)
def test_kubeconfig_tls_server_name_may_be_a_name_or_an_address(name: str) -> None:
    assert read(tls_server_name=name).server_name == name
