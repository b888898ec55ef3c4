//! The names by which the bed's code asks for a binary. Nothing here knows how one is built.

use super::sets::ComponentSet;
use super::table;

/// A binary of the bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// The API server.
    KubeApiserver,
    /// The etcd behind it, which need not be one of those that are tested.
    EtcdOfControlPlane,
    /// Its client for people.
    Kubectl,
    /// Kubernetes' own controllers.
    KubeControllerManager,
    /// What places pods on nodes.
    KubeScheduler,
    /// The node agent.
    Kubelet,
    /// What makes Services work on a node.
    KubeProxy,
    /// The container runtime; its shim and `ctr` are beside it.
    Containerd,
    /// containerd's client.
    Ctr,
    /// What starts containers.
    Runc,
    /// One of the network plugins; the others are beside it.
    CniBridge,
    /// The cluster's name server.
    CoreDns,
    /// What installs charts.
    Helm,
    /// The helm before that.
    Helm3,
    /// An object store that speaks S3.
    Versitygw,
    /// An object store that speaks Google Cloud Storage.
    FakeGcsServer,
    /// An object store that speaks Azure Blob Storage; it needs Node.
    Azurite,
    /// What tells how the vendor's own client signs for OSS.
    OssSigner,
    /// What holds a bill of materials against its schema.
    BillSchema,
    /// What checks workflows of GitHub Actions.
    Actionlint,
    /// What scenarios run in pods.
    Probe,
    /// Clients of a cluster that remember what they saw.
    Workload,
    /// etcd itself.
    Etcd(EtcdVersion),
    /// etcd's client.
    Etcdctl(EtcdVersion),
    /// etcd's tool for files, since 3.5: `find` refuses for older ones.
    Etcdutl(EtcdVersion),
}

/// The versions of etcd that scenarios run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EtcdVersion {
    /// 3.2.25
    V3_2_25,
    /// 3.3.27
    V3_3_27,
    /// 3.4.23
    V3_4_23,
    /// 3.5.21, from which no step to 3.6 is safe
    V3_5_21,
    /// 3.5.35
    V3_5_35,
    /// 3.6.15
    V3_6_15,
    /// 3.6.16
    V3_6_16,
    /// 3.7.3
    V3_7_3,
}

impl EtcdVersion {
    /// All of them, oldest first.
    pub const ALL: [Self; 8] = [
        Self::V3_2_25,
        Self::V3_3_27,
        Self::V3_4_23,
        Self::V3_5_21,
        Self::V3_5_35,
        Self::V3_6_15,
        Self::V3_6_16,
        Self::V3_7_3,
    ];

    /// The one behind the bed's own API server.
    pub const OF_CONTROL_PLANE: Self = Self::V3_6_16;

    /// Without a `v`, such as `3.6.16`.
    pub fn number(self) -> &'static str {
        self.set().name.trim_start_matches("etcd-")
    }

    /// Whether this version has `etcdutl`.
    pub fn has_etcdutl(self) -> bool {
        self >= Self::V3_5_21
    }

    /// What it is built with.
    pub const fn set(self) -> &'static ComponentSet {
        &table::ETCD[self as usize]
    }
}

impl Component {
    /// Where it is: the set it is built with, and its name there.
    pub(super) fn place(self) -> (&'static ComponentSet, &'static str) {
        match self {
            Self::KubeApiserver => (&table::KUBERNETES, "kube-apiserver"),
            Self::EtcdOfControlPlane => (EtcdVersion::OF_CONTROL_PLANE.set(), "etcd"),
            Self::Kubectl => (&table::KUBERNETES, "kubectl"),
            Self::KubeControllerManager => (&table::KUBERNETES_NODE, "kube-controller-manager"),
            Self::KubeScheduler => (&table::KUBERNETES_NODE, "kube-scheduler"),
            Self::Kubelet => (&table::KUBERNETES_NODE, "kubelet"),
            Self::KubeProxy => (&table::KUBERNETES_NODE, "kube-proxy"),
            Self::Containerd => (&table::CONTAINERD, "containerd"),
            Self::Ctr => (&table::CONTAINERD, "ctr"),
            Self::Runc => (&table::RUNC, "runc"),
            Self::CniBridge => (&table::CNI, "bridge"),
            Self::CoreDns => (&table::COREDNS, "coredns"),
            Self::Helm => (&table::HELM, "helm"),
            Self::Helm3 => (&table::HELM_3, "helm"),
            Self::Versitygw => (&table::VERSITYGW, "versitygw"),
            Self::FakeGcsServer => (&table::FAKE_GCS, "fake-gcs-server"),
            Self::Azurite => (&table::AZURITE, "azurite-blob"),
            Self::OssSigner => (&table::OSS_SIGNER, "oss-signer"),
            Self::BillSchema => (&table::BILL_SCHEMA, "bill-schema"),
            Self::Actionlint => (&table::ACTIONLINT, "actionlint"),
            Self::Probe => (&table::PROBE, "probe"),
            Self::Workload => (&table::WORKLOAD, "workload"),
            Self::Etcd(version) => (version.set(), "etcd"),
            Self::Etcdctl(version) => (version.set(), "etcdctl"),
            Self::Etcdutl(version) => (version.set(), "etcdutl"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_etcd_is_of_the_version_its_name_says() {
        for version in EtcdVersion::ALL {
            assert_eq!(
                version.set().version().unwrap(),
                format!("v{}", version.number()),
                "{version:?}"
            );
            let digits: String = format!("{version:?}").replace('_', ".");
            assert_eq!(digits, format!("V{}", version.number()));
        }
    }

    #[test]
    fn every_component_is_a_binary_of_its_set() {
        use Component::{
            Actionlint, Azurite, BillSchema, CniBridge, Containerd, CoreDns, Ctr, EtcdOfControlPlane,
            FakeGcsServer, Helm, Helm3, KubeApiserver, KubeControllerManager, KubeProxy, KubeScheduler,
            Kubectl, Kubelet, OssSigner, Probe, Runc, Versitygw, Workload,
        };
        let mut all = vec![
            Actionlint,
            Azurite,
            BillSchema,
            CniBridge,
            Containerd,
            CoreDns,
            Ctr,
            EtcdOfControlPlane,
            FakeGcsServer,
            Helm,
            Helm3,
            KubeApiserver,
            KubeControllerManager,
            KubeProxy,
            KubeScheduler,
            Kubectl,
            Kubelet,
            OssSigner,
            Probe,
            Runc,
            Versitygw,
            Workload,
        ];
        for version in EtcdVersion::ALL {
            all.extend([Component::Etcd(version), Component::Etcdctl(version)]);
            if version.has_etcdutl() {
                all.push(Component::Etcdutl(version));
            }
        }
        for component in all {
            let (set, name) = component.place();
            assert!(
                set.binaries.iter().any(|binary| binary.name == name),
                "{component:?}"
            );
        }
    }
}
