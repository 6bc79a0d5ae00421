#!/bin/bash
# Runs once on a new machine. `base64 -w0` of this file is cloudinit in cloud-config.gcfg.
set -euo pipefail
version=v1.33
swapoff -a
printf 'overlay\nbr_netfilter\n' > /etc/modules-load.d/kubernetes.conf
modprobe -a overlay br_netfilter
printf 'net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\n' > /etc/sysctl.d/kubernetes.conf
sysctl --system
mkdir -p /etc/apt/keyrings
curl -fsSL "https://pkgs.k8s.io/core:/stable:/$version/deb/Release.key" | gpg --dearmor -o /etc/apt/keyrings/kubernetes.gpg
echo "deb [signed-by=/etc/apt/keyrings/kubernetes.gpg] https://pkgs.k8s.io/core:/stable:/$version/deb/ /" \
  > /etc/apt/sources.list.d/kubernetes.list
apt-get update
apt-get install -y containerd kubelet kubeadm
mkdir -p /etc/containerd
containerd config default | sed 's/SystemdCgroup = false/SystemdCgroup = true/' > /etc/containerd/config.toml
systemctl restart containerd
# The node's name has to be the server's hostname, and the label pool is how workloads choose a pool.
echo 'KUBELET_EXTRA_ARGS=--cloud-provider=external --node-labels=pool={{.NodeGroup}}' > /etc/default/kubelet
# Better than no check of the CA: --discovery-token-ca-cert-hash sha256:… of your cluster.
kubeadm join --discovery-token-unsafe-skip-ca-verification \
  --token {{.BootstrapTokenID}}.{{.BootstrapTokenSecret}} {{.APIServerEndpoint}}
