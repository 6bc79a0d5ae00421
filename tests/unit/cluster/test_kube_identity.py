"""The identity of the cluster that a kubeconfig leads to, independent of
address, account and spelling.
"""

from __future__ import annotations

from chalicelib.cluster.credentials import KubeCredential, identity_of
from chalicelib.model.secret import Secret
from infra.emulators.certificates import CertificateAuthority
from tests.cases import each_row

ONE, OTHER = CertificateAuthority().pem, CertificateAuthority().pem
HERE = KubeCredential("https://10.0.0.1:6443", ca=ONE, token=Secret("a"))


@each_row(
    "same",
    [
        # an alias, another account
        KubeCredential("https://api.example:6443", ca=ONE, token=Secret("b")),
        KubeCredential(
            "https://10.0.0.1:6443", ca=b"# comment\n" + ONE.replace(b"\n", b"\r\n") + b"\n\n"
        ),
        KubeCredential("https://proxy.example", ca=ONE, server_name="kubernetes"),
    ],
)
def test_kube_all_kubeconfigs_of_one_cluster_give_one_identity(same: KubeCredential) -> None:
    assert identity_of(same) == identity_of(HERE)


@each_row(
    "another",
    [
        KubeCredential("https://10.0.0.1:6443", ca=OTHER),  # the same address in another network
        # whose certificate may be signed by another CA
        KubeCredential("https://10.0.0.1:6443", ca=ONE + OTHER),
        KubeCredential("https://10.0.0.1:6443"),
        KubeCredential("https://10.0.0.1:6443", ca=b"no certificate"),
    ],
)
def test_kube_another_ca_is_another_cluster(another: KubeCredential) -> None:
    assert identity_of(another) != identity_of(HERE)


def test_kube_identity_without_a_ca_uses_the_address() -> None:
    first, second = (KubeCredential(f"https://{host}") for host in ("A.example", "b.example"))
    assert identity_of(first) == identity_of(KubeCredential("https://a.example", token=Secret("x")))
    assert identity_of(first) != identity_of(second)


def test_kube_identity_ignores_the_order_of_a_ca_bundle() -> None:
    assert identity_of(KubeCredential("https://a", ca=ONE + OTHER)) == identity_of(
        KubeCredential("https://b", ca=OTHER + ONE)
    )
