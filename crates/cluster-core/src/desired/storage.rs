//! What the members of a cluster keep their data on.

use std::collections::BTreeMap;

use etcd_operator_api::{
    cluster::{EtcdClusterSpec, Medium, Retention, StorageSpec},
    quantity,
    refusal::Refusal,
    reserved,
};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaimSpec, VolumeResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

/// The size of a volume where the user gives none.
const DEFAULT_SIZE: &str = "8Gi";
/// A volume is its member's alone.
const READ_WRITE_ONCE: &str = "ReadWriteOnce";

/// What the members of a cluster keep their data on.
#[derive(Clone, Debug, PartialEq)]
pub enum Storage {
    /// A claim per member.
    Persistent {
        /// The claim as it will be made.
        claim: Box<PersistentVolumeClaimSpec>,
        /// Further labels of the claim.
        labels: BTreeMap<String, String>,
        /// What happens to it when the cluster is deleted.
        retention: Retention,
    },
    /// A directory that goes with the pod.
    Ephemeral {
        /// Whether it is in memory.
        in_memory: bool,
        /// The most it may hold, in bytes.
        limit: Option<u64>,
        /// What the user wrote for volumes, kept for the day the medium changes.
        retention: Retention,
        /// Further labels, likewise.
        labels: BTreeMap<String, String>,
    },
}

impl Storage {
    /// The medium, with size and class of a volume, as text for the status.
    pub fn describe(&self) -> String {
        match self {
            Self::Persistent { claim, .. } => {
                let class = claim
                    .storage_class_name
                    .as_deref()
                    .map(|c| format!(" of class {c}"))
                    .unwrap_or_default();
                format!(
                    "PersistentVolume {}{class}",
                    requested(claim).map_or(DEFAULT_SIZE, |q| q.0.as_str())
                )
            }
            Self::Ephemeral { in_memory: true, .. } => "Memory".to_owned(),
            Self::Ephemeral { in_memory: false, .. } => "EmptyDir".to_owned(),
        }
    }

    /// Whether data is lost with the pods.
    pub fn is_ephemeral(&self) -> bool {
        matches!(self, Self::Ephemeral { .. })
    }

    /// Whether volumes are deleted with the cluster. `false` where there are none.
    pub fn is_deleted_with_cluster(&self) -> bool {
        matches!(
            self,
            Self::Persistent {
                retention: Retention::Delete,
                ..
            }
        )
    }
}

/// Parses `storage`, or the ancestor's `pod.persistentVolumeClaimSpec`; setting both is refused. Without either, data
/// are in the pod's EmptyDir, as they were for the ancestor. Such a cluster cannot be hibernated.
pub(super) fn storage(spec: &EtcdClusterSpec) -> Result<Storage, Vec<Refusal>> {
    let legacy = spec
        .pod
        .as_ref()
        .and_then(|p| p.persistent_volume_claim_spec.as_ref());
    let storage = match (&spec.storage, legacy) {
        (Some(_), Some(_)) => {
            let problem = "and spec.pod.persistentVolumeClaimSpec both describe the volumes: keep one of them; for example: {size: 8Gi}";
            return Err(vec![Refusal::invalid("spec.storage", problem)]);
        }
        (Some(storage), None) => parse_storage(storage)?,
        (None, Some(claim)) => parse_legacy_claim(claim)?,
        (None, None) => Storage::Ephemeral {
            in_memory: false,
            limit: None,
            retention: Retention::default(),
            labels: BTreeMap::new(),
        },
    };
    if spec.size == 0 && storage.is_ephemeral() {
        let problem = "0 hibernates the cluster and needs data that outlives its pods: set storage.medium: PersistentVolume, or a size of 1 to 9";
        return Err(vec![Refusal::invalid("spec.size", problem)]);
    }
    Ok(storage)
}

fn parse_storage(storage: &StorageSpec) -> Result<Storage, Vec<Refusal>> {
    let size = storage
        .size
        .as_ref()
        .map(|q| parse_size(q, "spec.storage.size"))
        .transpose()?;
    let (labels, retention) = (storage.labels.clone().unwrap_or_default(), storage.retention);
    if let Some(key) = labels.keys().find(|key| reserved::label(key)) {
        let problem =
            format!("must not use the key '{key}', which belongs to the operator; for example: backup");
        return Err(vec![Refusal::invalid("spec.storage.labels", problem)]);
    }
    let class = storage.storage_class_name.clone().filter(|c| !c.is_empty());
    if storage.medium != Medium::PersistentVolume {
        if class.is_some() {
            let problem = "is for storage.medium: PersistentVolume only: leave it out, or change the medium";
            return Err(vec![Refusal::invalid("spec.storage.storageClassName", problem)]);
        }
        let in_memory = storage.medium == Medium::Memory;
        return Ok(Storage::Ephemeral {
            in_memory,
            limit: size,
            retention,
            labels,
        });
    }
    let quantity = storage
        .size
        .clone()
        .unwrap_or_else(|| Quantity(DEFAULT_SIZE.to_owned()));
    let claim = PersistentVolumeClaimSpec {
        access_modes: Some(vec![READ_WRITE_ONCE.to_owned()]),
        storage_class_name: class,
        resources: Some(VolumeResourceRequirements {
            requests: Some([("storage".to_owned(), quantity)].into()),
            ..VolumeResourceRequirements::default()
        }),
        ..PersistentVolumeClaimSpec::default()
    };
    Ok(Storage::Persistent {
        claim: Box::new(claim),
        labels,
        retention,
    })
}

/// The ancestor's claim, with ReadWriteOnce and 8Gi where it does not say.
fn parse_legacy_claim(claim: &PersistentVolumeClaimSpec) -> Result<Storage, Vec<Refusal>> {
    if let Some(size) = requested(claim) {
        parse_size(
            size,
            "spec.pod.persistentVolumeClaimSpec.resources.requests.storage",
        )?;
    }
    let mut claim = claim.clone();
    claim.access_modes = claim
        .access_modes
        .filter(|modes| !modes.is_empty())
        .or_else(|| Some(vec![READ_WRITE_ONCE.to_owned()]));
    claim
        .resources
        .get_or_insert_default()
        .requests
        .get_or_insert_default()
        .entry("storage".to_owned())
        .or_insert_with(|| Quantity(DEFAULT_SIZE.to_owned()));
    Ok(Storage::Persistent {
        claim: Box::new(claim),
        labels: BTreeMap::new(),
        retention: Retention::default(),
    })
}

fn requested(claim: &PersistentVolumeClaimSpec) -> Option<&Quantity> {
    claim.resources.as_ref()?.requests.as_ref()?.get("storage")
}

/// The size in bytes; refused unless it is above zero.
fn parse_size(size: &Quantity, field: &str) -> Result<u64, Vec<Refusal>> {
    match quantity::bytes(size) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        Ok(_) => Err(vec![Refusal::invalid(
            field,
            "must be above zero; for example: 8Gi",
        )]),
        Err(e) => Err(vec![Refusal::invalid(field, e.to_string())]),
    }
}
