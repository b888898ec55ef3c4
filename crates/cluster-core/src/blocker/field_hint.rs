//! The field of the spec, or the object, that a problem of Kubernetes or etcd comes from. Kubernetes says what is missing, not
//! which field asks for it.

use std::fmt;

/// Where a problem can be corrected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldHint {
    /// An unbound claim asks for another StorageClass than the spec.
    ClaimOfOtherClass {
        /// The class in the claim.
        class: String,
        /// The class in the spec.
        wanted: String,
        /// The name of the claim.
        claim: String,
    },
    /// A claim is not bound.
    ClaimUnbound {
        /// The class in the spec.
        class: Option<String>,
        /// Whether the cluster can still be deleted and created with another class.
        can_recreate: bool,
    },
    /// The requests of the pod: resource and quantity.
    Resources(Vec<(String, String)>),
    /// spec.pod.nodeSelector.
    NodeSelector,
    /// spec.pod.affinity.
    Affinity,
    /// spec.pod.antiAffinity.
    AntiAffinity,
    /// spec.pod.topologySpreadConstraints.
    TopologySpread,
    /// spec.pod.tolerations.
    Tolerations,
    /// The image of the operator.
    OperatorImage,
    /// spec.pod.patch, which adds the container.
    PodPatch,
    /// The image of etcd, by its fields.
    EtcdImage(&'static str),
    /// spec.pod.etcdEnv.
    EtcdEnv,
    /// The Secrets of spec.TLS.static.member that the pod mounts.
    TlsSecrets(Vec<String>),
    /// The member's certificate and the CA that the operator verifies it by, in these Secrets.
    ServerCertificate {
        /// The Secret of spec.TLS.static.member.serverSecret.
        server: String,
        /// The Secret of spec.TLS.static.operatorSecret.
        operator: String,
    },
    /// The operator's certificate and the CA that members verify it by, in these Secrets.
    ClientCertificate {
        /// The Secret of spec.TLS.static.member.serverSecret.
        server: String,
        /// The Secret of spec.TLS.static.operatorSecret.
        operator: String,
    },
    /// The Secret with which members serve clients by TLS.
    ServerTls {
        /// The Secret of spec.TLS.static.member.serverSecret.
        server: String,
    },
    /// The memory limit.
    MemoryLimit(Option<String>),
    /// spec.etcd.extraArgs.
    ExtraArgs,
    /// Data or log entries of etcd's API v2 beside the keys.
    ApiV2Data,
}

impl fmt::Display for FieldHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClaimOfOtherClass {
                class,
                wanted,
                claim,
            } => write!(
                f,
                "its PersistentVolumeClaim is not bound and was created for the StorageClass {class}, while spec.storage.storageClassName is {wanted}. It holds no data: kubectl delete pvc {claim}"
            ),
            Self::ClaimUnbound { class, can_recreate } => {
                match class {
                    Some(class) => write!(
                        f,
                        "its PersistentVolumeClaim is not bound: spec.storage.storageClassName is {class}, and `kubectl get storageclass` shows which there are"
                    )?,
                    None => f.write_str(
                        "its PersistentVolumeClaim is not bound: spec.storage.storageClassName is not set, and perhaps no StorageClass is the default one",
                    )?,
                }
                if *can_recreate {
                    f.write_str(
                        ". To use another class, delete this EtcdCluster and its PersistentVolumeClaims, and create it again",
                    )?;
                }
                Ok(())
            }
            Self::Resources(requests) => {
                let requests: Vec<_> = requests
                    .iter()
                    .map(|(resource, quantity)| format!("{resource} {quantity}"))
                    .collect();
                write!(
                    f,
                    "spec.pod.resources asks for {}: ask for less, or add a node with enough to spare",
                    requests.join(", ")
                )
            }
            Self::NodeSelector => f.write_str("spec.pod.nodeSelector says which labels a node must have"),
            Self::Affinity => f.write_str("spec.pod.affinity says which nodes are allowed"),
            Self::AntiAffinity => f.write_str(
                "spec.pod.antiAffinity requires a node for each member: add nodes, or set it to false",
            ),
            Self::TopologySpread => {
                f.write_str("spec.pod.topologySpreadConstraints says how members are spread")
            }
            Self::Tolerations => f.write_str("spec.pod.tolerations says which taints are tolerated"),
            Self::OperatorImage => f.write_str(
                "that image is the operator's own: nodes must be able to pull it, and spec.imagePullSecrets must name the credentials of its registry",
            ),
            Self::PodPatch => f.write_str("spec.pod.patch adds it"),
            Self::EtcdImage(fields) => write!(
                f,
                "correct {fields}, or name the credentials of the registry in spec.imagePullSecrets"
            ),
            Self::EtcdEnv => f.write_str("spec.pod.etcdEnv names it"),
            Self::TlsSecrets(names) => write!(
                f,
                "it mounts the Secrets of spec.TLS.static.member, and each must exist: {}",
                names.join(", ")
            ),
            Self::ServerCertificate { server, operator } => write!(
                f,
                "correct server.crt in the Secret {server} of spec.TLS.static.member.serverSecret, or etcd-client-ca.crt in the Secret {operator} of spec.TLS.static.operatorSecret, which must verify it"
            ),
            Self::ClientCertificate { server, operator } => write!(
                f,
                "correct etcd-client.crt in the Secret {operator} of spec.TLS.static.operatorSecret, or server-ca.crt in the Secret {server} of spec.TLS.static.member.serverSecret, which must verify it"
            ),
            Self::ServerTls { server } => write!(
                f,
                "see the log of the pod, and whether it runs with the Secret {server} of spec.TLS.static.member.serverSecret"
            ),
            Self::MemoryLimit(Some(limit)) => write!(
                f,
                "it was killed for lack of memory (OOMKilled): spec.pod.resources.limits.memory is {limit}"
            ),
            Self::MemoryLimit(None) => f.write_str(
                "it was killed for lack of memory (OOMKilled): its node has too little, or a LimitRange gives its container too low a limit; set spec.pod.resources.limits.memory",
            ),
            Self::ExtraArgs => f.write_str("correct spec.etcd.extraArgs"),
            Self::ApiV2Data => f.write_str(
                "the volume holds data or log entries of etcd's API v2, which etcd 3.6 and newer refuse. Set spec.version back to 3.5. Log entries go with the next snapshot of the log: set spec.etcd.snapshotCount to 100, and write as many keys. Delete v2 data, if there are any. Then upgrade again",
            ),
        }
    }
}
