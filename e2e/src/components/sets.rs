//! The table of everything the bed can build: what is built together, from where, and how. Versions of Go modules
//! stand in their `go.mod` only, never here; nothing here builds anything.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Binaries that are built by one run and cached as one entry.
#[derive(Debug)]
pub struct ComponentSet {
    /// What people call it, and the beginning of the cache entry's name.
    pub name: &'static str,
    /// Where its binaries come from.
    pub source: Source,
    /// What is built.
    pub binaries: &'static [Binary],
    /// Seconds a build with empty caches takes on two cores: for telling how much is left, nothing else.
    pub cold_seconds: u64,
}

/// One row: a binary and where it is within its source.
#[derive(Debug)]
pub struct Binary {
    /// Name of the executable.
    pub name: &'static str,
    /// Go package with its `main`, or the path within a Debian package.
    pub from: &'static str,
}

/// Where the binaries of a set come from.
#[derive(Debug)]
pub enum Source {
    /// A Go module pinned by `go.mod` and `go.sum` under `e2e/tools`.
    Go(GoModule),
    /// Debian packages, for what no Go module can be had of.
    Debian {
        /// The packages, unpacked and never installed.
        packages: &'static [&'static str],
        /// The upstream version they must be of.
        version: &'static str,
    },
}

/// How binaries come out of a tools module.
#[derive(Debug)]
pub struct GoModule {
    /// Directory of the tools module under `e2e/tools`.
    pub tools: &'static str,
    /// The required module whose version is the version of the set; none for a module of our own.
    pub module: Option<&'static str>,
    /// Variables that are told the version, or the binaries call themselves v0.0.0.
    pub stamps: &'static [Stamp],
    /// How C takes part.
    pub linkage: Linkage,
    /// Files to leave out, relative to a vendored copy of the modules; none means that nothing is vendored.
    pub without: &'static [&'static str],
}

/// A variable set by the linker.
#[derive(Debug)]
pub struct Stamp {
    /// Its package and name.
    pub variable: &'static str,
    /// What it is set to.
    pub value: Stamped,
}

/// What a stamped variable says.
#[derive(Clone, Copy, Debug)]
pub enum Stamped {
    /// The version with its leading `v`.
    Version,
    /// The first number of the version.
    Major,
    /// The second number of the version.
    Minor,
    /// A text of its own.
    Text(&'static str),
}

/// How C takes part in a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// Not at all.
    PureGo,
    /// Compiled in, with libseccomp, and linked statically.
    StaticC,
}

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

impl ComponentSet {
    /// The version it is pinned to, with the leading `v`; empty for a tool of our own.
    pub fn version(&self) -> Result<String> {
        match &self.source {
            Source::Debian { version, .. } => Ok((*version).to_owned()),
            Source::Go(module) => module.version(),
        }
    }

    /// The names of its binaries, for people.
    pub(super) fn binary_names(&self) -> String {
        let names: Vec<&str> = self.binaries.iter().map(|binary| binary.name).collect();
        names.join(", ")
    }
}

impl GoModule {
    /// Directory with its `go.mod` and `go.sum`.
    pub(super) fn directory(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tools")
            .join(self.tools)
    }

    fn version(&self) -> Result<String> {
        let Some(module) = self.module else {
            return Ok(String::new());
        };
        let path = self.directory().join("go.mod");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        required_version(&text, module)
            .with_context(|| format!("{} does not require {module}", path.display()))
    }
}

/// Reads both forms, `require M V` and a line within `require ( … )`.
fn required_version(go_mod: &str, module: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line
            .split_ascii_whitespace()
            .skip_while(|word| *word == "require");
        (words.next() == Some(module))
            .then(|| {
                words
                    .next()
                    .map(|version| version.trim_end_matches("+incompatible").to_owned())
            })
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::SETS;

    #[test]
    fn every_set_finds_its_version_and_every_row_is_a_tool_of_its_module() {
        for set in SETS {
            let Source::Go(module) = &set.source else { continue };
            assert_eq!(
                set.version().unwrap().starts_with('v'),
                module.module.is_some(),
                "{}",
                set.name
            );
            let go_mod = fs::read_to_string(module.directory().join("go.mod")).unwrap();
            for row in set.binaries {
                let is_tool = go_mod
                    .lines()
                    .any(|line| line.trim().trim_start_matches("tool ") == row.from);
                let is_own = module.module.is_none() && go_mod.contains(&format!("module {}\n", row.from));
                assert!(
                    is_tool || is_own,
                    "{} is not listed under `tool` in e2e/tools/{}/go.mod",
                    row.from,
                    module.tools
                );
            }
        }
    }

    #[test]
    fn the_version_is_read_from_either_form_of_require() {
        assert_eq!(
            required_version("require a.b/c v1.2.3\n", "a.b/c").as_deref(),
            Some("v1.2.3")
        );
        assert_eq!(
            required_version("require (\n\ta.b/c v1.2.3+incompatible // indirect\n)\n", "a.b/c").as_deref(),
            Some("v1.2.3")
        );
        assert_eq!(required_version("tool (\n\ta.b/c/d\n)\n", "a.b/c"), None);
    }
}
