//! What the agents of a node are told: the content of their configuration files. Pure: nothing is written or read.
//!
//! Inside its machine a node has the usual paths to itself, so that no path of one node occurs here.

use std::path::Path;

use serde_json::{Value, json};

use crate::network::{self, Number};

/// Where containerd listens.
pub(super) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// What pods' domains end with.
pub(super) const DOMAIN: &str = "cluster.local";

/// What kubelet sets in the kernel, below `/proc/sys`, unless it finds it so. The kernel is the whole machine's.
pub(crate) const KERNEL: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Files a kubelet is given.
pub(super) struct KubeletFiles<'a> {
    pub(super) authority: &'a Path,
    pub(super) certificate: &'a Path,
    pub(super) key: &'a Path,
    pub(super) resolver: &'a Path,
}

/// containerd's configuration.
pub(super) fn containerd(pause: &str, cni_programs: &Path, cni_configuration: &Path, runc: &Path) -> String {
    let (programs, configuration, runc) = (
        cni_programs.display(),
        cni_configuration.display(),
        runc.display(),
    );
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  enable_selinux = false
  # Where the right to raise a process's priority is missing, no sandbox would start.
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{programs}"]
  conf_dir = "{configuration}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
  BinaryName = "{runc}"
"#
    )
}

/// The pod network of a node.
pub(super) fn cni(node: Number) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": network::pods_of(node) }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

/// kubelet's configuration.
pub(super) fn kubelet(files: &KubeletFiles, cgroup_root: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "authentication": {
            "anonymous": { "enabled": false },
            "x509": { "clientCAFile": files.authority },
            "webhook": { "enabled": true },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": files.certificate,
        "tlsPrivateKeyFile": files.key,
        "clusterDNS": [network::DNS_SERVICE],
        "clusterDomain": DOMAIN,
        "failSwapOn": false,
        "resolvConf": files.resolver,
        // The disk is the developer's, and rarely empty.
        "evictionHard": { "imagefs.available": "1%", "nodefs.available": "1%", "memory.available": "50Mi" },
        "imageGCHighThresholdPercent": 100,
        "maxPods": 110,
        "serializeImagePulls": false,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        // A node that is cut off is found out in seconds; see the controller manager's grace period.
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 8,
        // What a killed pod's grace period is does not depend on the node.
        "shutdownGracePeriod": "0s",
    })
}

/// kube-proxy's configuration.
pub(super) fn proxy(kubeconfig: &Path, node: &str) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": { "kubeconfig": kubeconfig },
        "clusterCIDR": network::PODS,
        "hostnameOverride": node,
        "conntrack": { "maxPerCore": 0, "min": 0 },
    })
}
