//! The table of everything the bed can build. Versions of modules and packages stand in their own files under
//! `e2e/tools`, never here.

use super::sets::{Binary, ComponentSet, GoModule, Linkage, Source, Stamp, Stamped};

const KUBERNETES_STAMPS: &[Stamp] = &[
    stamp("k8s.io/component-base/version.gitVersion", Stamped::Version),
    stamp("k8s.io/component-base/version.gitMajor", Stamped::Major),
    stamp("k8s.io/component-base/version.gitMinor", Stamped::Minor),
    stamp(
        "k8s.io/component-base/version.gitTreeState",
        Stamped::Text("clean"),
    ),
];

/// What a control plane for tests needs of Kubernetes.
pub static KUBERNETES: ComponentSet = ComponentSet {
    name: "kubernetes",
    source: go("kubernetes", "k8s.io/kubernetes", KUBERNETES_STAMPS),
    binaries: &[
        binary("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
        binary("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ],
    cold_seconds: 200,
};

/// What nodes need of Kubernetes on top of that; a set of its own, or tests without nodes would wait for it.
pub static KUBERNETES_NODE: ComponentSet = ComponentSet {
    name: "kubernetes-node",
    source: go("kubernetes", "k8s.io/kubernetes", KUBERNETES_STAMPS),
    binaries: &[
        binary(
            "kube-controller-manager",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
        ),
        binary("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
        binary("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
        binary("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    ],
    cold_seconds: 120,
};

/// The container runtime, its shim and its client: containerd looks for the shim on its PATH.
pub static CONTAINERD: ComponentSet = ComponentSet {
    name: "containerd",
    source: go(
        "containerd",
        "github.com/containerd/containerd/v2",
        &[stamp(
            "github.com/containerd/containerd/v2/version.Version",
            Stamped::Version,
        )],
    ),
    binaries: &[
        binary("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
        binary(
            "containerd-shim-runc-v2",
            "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        ),
        binary("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
    ],
    cold_seconds: 50,
};

/// What containerd starts containers with.
pub static RUNC: ComponentSet = ComponentSet {
    name: "runc",
    source: Source::Go(GoModule {
        tools: "runc",
        module: Some("github.com/opencontainers/runc"),
        stamps: &[],
        linkage: Linkage::StaticC,
        without: &[],
    }),
    binaries: &[binary("runc", "github.com/opencontainers/runc")],
    cold_seconds: 12,
};

/// The pod network's plugins: containerd is given the directory they are in.
pub static CNI: ComponentSet = ComponentSet {
    name: "cni",
    source: go("cni", "github.com/containernetworking/plugins", &[]),
    binaries: &[
        binary(
            "bridge",
            "github.com/containernetworking/plugins/plugins/main/bridge",
        ),
        binary(
            "host-local",
            "github.com/containernetworking/plugins/plugins/ipam/host-local",
        ),
        binary(
            "loopback",
            "github.com/containernetworking/plugins/plugins/main/loopback",
        ),
        binary(
            "portmap",
            "github.com/containernetworking/plugins/plugins/meta/portmap",
        ),
    ],
    cold_seconds: 10,
};

/// What scenarios run in pods: of our own, so it has no version.
pub static PROBE: ComponentSet = ComponentSet {
    name: "probe",
    source: Source::Go(GoModule {
        tools: "probe",
        module: None,
        stamps: &[],
        linkage: Linkage::PureGo,
        without: &[],
    }),
    binaries: &[binary("probe", "etcd-operator/e2e/tools/probe")],
    cold_seconds: 15,
};

/// Clients that load a cluster of etcd and tell what they saw: of our own as well, on etcd's client.
pub static WORKLOAD: ComponentSet = ComponentSet {
    name: "workload",
    source: Source::Go(GoModule {
        tools: "workload",
        module: None,
        stamps: &[],
        linkage: Linkage::PureGo,
        without: &[],
    }),
    binaries: &[binary("workload", "etcd-operator/e2e/tools/workload")],
    cold_seconds: 25,
};

/// What tells how the vendor's own client signs for OSS, for which no server can be run: of our own, on that client.
pub static OSS_SIGNER: ComponentSet = ComponentSet {
    name: "oss-signer",
    source: Source::Go(GoModule {
        tools: "oss-signer",
        module: None,
        stamps: &[],
        linkage: Linkage::PureGo,
        without: &[],
    }),
    binaries: &[binary("oss-signer", "etcd-operator/e2e/tools/oss-signer")],
    cold_seconds: 20,
};

/// What holds a bill of materials against the schema of its format: of our own, on what publishes that schema.
pub static BILL_SCHEMA: ComponentSet = ComponentSet {
    name: "bill-schema",
    source: Source::Go(GoModule {
        tools: "bill-schema",
        module: None,
        stamps: &[],
        linkage: Linkage::PureGo,
        without: &[],
    }),
    binaries: &[binary("bill-schema", "etcd-operator/e2e/tools/bill-schema")],
    cold_seconds: 5,
};

/// What checks the workflows of the repository.
pub static ACTIONLINT: ComponentSet = ComponentSet {
    name: "actionlint",
    source: go("actionlint", "github.com/rhysd/actionlint", &[]),
    binaries: &[binary("actionlint", "github.com/rhysd/actionlint/cmd/actionlint")],
    cold_seconds: 10,
};

/// The cluster's name server.
pub static COREDNS: ComponentSet = ComponentSet {
    name: "coredns",
    source: go("coredns", "github.com/coredns/coredns", &[]),
    binaries: &[binary("coredns", "github.com/coredns/coredns")],
    cold_seconds: 90,
};

/// What installs the chart.
pub static HELM: ComponentSet = ComponentSet {
    name: "helm",
    source: go(
        "helm",
        "helm.sh/helm/v4",
        &[stamp(
            "helm.sh/helm/v4/internal/version.version",
            Stamped::Version,
        )],
    ),
    binaries: &[binary("helm", "helm.sh/helm/v4/cmd/helm")],
    cold_seconds: 50,
};

/// The helm before that, which many still run.
pub static HELM_3: ComponentSet = ComponentSet {
    name: "helm3",
    source: go(
        "helm3",
        "helm.sh/helm/v3",
        &[stamp(
            "helm.sh/helm/v3/internal/version.version",
            Stamped::Version,
        )],
    ),
    binaries: &[binary("helm", "helm.sh/helm/v3/cmd/helm")],
    cold_seconds: 40,
};

/// An object store with the interface of S3.
pub static VERSITYGW: ComponentSet = ComponentSet {
    name: "versitygw",
    source: go(
        "versitygw",
        "github.com/versity/versitygw",
        &[stamp("main.Version", Stamped::Version)],
    ),
    binaries: &[binary("versitygw", "github.com/versity/versitygw/cmd/versitygw")],
    cold_seconds: 45,
};

/// An object store with the interface of Google Cloud Storage.
pub static FAKE_GCS: ComponentSet = ComponentSet {
    name: "fake-gcs-server",
    source: go("fake-gcs-server", "github.com/fsouza/fake-gcs-server", &[]),
    binaries: &[binary("fake-gcs-server", "github.com/fsouza/fake-gcs-server")],
    cold_seconds: 60,
};

/// An object store with the interface of Azure Blob Storage; it is run by Node.
pub static AZURITE: ComponentSet = ComponentSet {
    name: "azurite",
    source: Source::Npm("azurite"),
    binaries: &[binary("azurite-blob", "node_modules/.bin/azurite-blob")],
    cold_seconds: 30,
};

const ETCD_OF_MODULES: &[Binary] = &[
    binary("etcd", "go.etcd.io/etcd/server/v3"),
    binary("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
    binary("etcdutl", "go.etcd.io/etcd/etcdutl/v3"),
];

const ETCD_OF_ONE_MODULE: &[Binary] = &[
    binary("etcd", "github.com/coreos/etcd"),
    binary("etcdctl", "github.com/coreos/etcd/etcdctl"),
];

/// Every etcd, oldest first.
pub static ETCD: [ComponentSet; 8] = [
    ComponentSet {
        name: "etcd-3.2.25",
        source: Source::Go(GoModule {
            tools: "etcd-3.2.25",
            module: Some("github.com/coreos/etcd"),
            stamps: &[],
            linkage: Linkage::PureGo,
            // Made by an older version of its generator than the one its packages are built with.
            without: &["vendor/github.com/coreos/etcd/client/keys.generated.go"],
        }),
        binaries: ETCD_OF_ONE_MODULE,
        cold_seconds: 40,
    },
    ComponentSet {
        name: "etcd-3.3.27",
        source: go("etcd-3.3.27", "github.com/coreos/etcd", &[]),
        binaries: ETCD_OF_ONE_MODULE,
        cold_seconds: 15,
    },
    ComponentSet {
        name: "etcd-3.4.23",
        source: Source::Debian {
            packages: &["etcd-server", "etcd-client"],
            version: "v3.4.23",
        },
        binaries: &[
            binary("etcd", "usr/bin/etcd"),
            binary("etcdctl", "usr/bin/etcdctl"),
        ],
        cold_seconds: 5,
    },
    etcd("etcd-3.5.21"),
    etcd("etcd-3.5.35"),
    etcd("etcd-3.6.15"),
    etcd("etcd-3.6.16"),
    etcd("etcd-3.7.3"),
];

const fn etcd(name: &'static str) -> ComponentSet {
    ComponentSet {
        name,
        source: go(name, "go.etcd.io/etcd/server/v3", &[]),
        binaries: ETCD_OF_MODULES,
        cold_seconds: 35,
    }
}

const fn go(tools: &'static str, module: &'static str, stamps: &'static [Stamp]) -> Source {
    Source::Go(GoModule {
        tools,
        module: Some(module),
        stamps,
        linkage: Linkage::PureGo,
        without: &[],
    })
}

const fn binary(name: &'static str, from: &'static str) -> Binary {
    Binary { name, from }
}

const fn stamp(variable: &'static str, value: Stamped) -> Stamp {
    Stamp { variable, value }
}
