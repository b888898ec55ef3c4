//! Parses the spec of an `EtcdRestore` into the desired restore. Pure.
//!
//! A value that cannot be used becomes a refusal that names the field. No field is silently ignored.

#[cfg(test)]
mod tests;

use std::time::Duration;

use etcd_operator_api::{
    EtcdRestore,
    location::{Blocks, Location},
    names::{ANNOTATION_SCOPE, ClusterName, MAX_NAME},
    refusal::{Refusal, Unbuilt, unbuilt},
    reserved,
    restore::{ClusterTemplate, EtcdRestoreSpec, RestorePoint, RestoreSource},
};
use jiff::Timestamp;
use serde_json::json;

/// Fields whose feature is not implemented yet. Remove the entry when the feature is built.
const UNBUILT: &[Unbuilt] = &[];

/// Default of `spec.revisionBump`: more revisions than a cluster writes between two backups.
const DEFAULT_REVISION_BUMP: i64 = 1_000_000_000;
/// Largest revision bump. etcd never decreases a revision, so a typo could not be corrected.
const MAX_REVISION_BUMP: i64 = 1_000_000_000_000;
/// Default of `spec.keepPrevious`.
const DEFAULT_KEEP_PREVIOUS: Duration = Duration::from_hours(24);

/// The parsed spec of an `EtcdRestore`.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Name of the `EtcdCluster` to restore, in the same namespace.
    pub cluster: String,
    /// The template from which the cluster is created if it does not exist.
    pub template: Option<Box<ClusterTemplate>>,
    /// The backup to restore.
    pub backup: BackupRef,
    /// By how much the revision is raised above the last observed one of the old cluster; 0 keeps it.
    pub revision_bump: i64,
    /// How long the previous data is kept.
    pub keep_previous: Duration,
    /// Whether to back up the cluster before the restore changes anything.
    pub safety_backup: bool,
    /// The Secret with the encryption keys; `None` for those of the `EtcdBackup`.
    pub keys: Option<String>,
}

/// Which backup to restore; [`Self::Refused`] after the spec was edited during the restore into one that names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupRef {
    /// An object in a store, by its full key.
    Object(Location),
    /// A backup in the history of an `EtcdBackup` in the same namespace.
    Backup {
        /// Name of the `EtcdBackup`.
        name: String,
        /// Which backup of the history.
        at: PointInTime,
    },
    /// Unknown: the spec was edited during the restore and is now refused, for this reason.
    Refused(String),
}

/// Selects one backup of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointInTime {
    /// The newest backup.
    Latest,
    /// The newest backup with at most this revision.
    Revision(i64),
    /// The newest backup that completed at or before this time.
    Time(Timestamp),
}

/// The fields whose feature is not implemented yet.
pub fn unimplemented_fields() -> &'static [Unbuilt] {
    UNBUILT
}

/// Parses an `EtcdRestore`, or returns all its refusals.
pub fn desired(restore: &EtcdRestore) -> Result<Desired, Vec<Refusal>> {
    let spec = &restore.spec;
    let mut refused = unbuilt(&json!({ "spec": spec }), UNBUILT);
    let name = restore.metadata.name.as_deref().unwrap_or_default();
    if name.len() > MAX_NAME {
        let problem = format!(
            "has {} characters, at most {MAX_NAME} are allowed, because its Jobs are named after it; for example: orders",
            name.len()
        );
        refused.push(Refusal::invalid("metadata.name", problem));
    }
    if spec.etcd_cluster.name.is_empty() {
        let problem = "must name an EtcdCluster of this namespace; for example: orders";
        refused.push(Refusal::invalid("spec.etcdCluster.name", problem));
    }
    if spec.revision_bump.is_some_and(|bump| bump > MAX_REVISION_BUMP) {
        let problem = format!(
            "must be at most {MAX_REVISION_BUMP}, because etcd never decreases a revision; for example: 1000000000"
        );
        refused.push(Refusal::invalid("spec.revisionBump", problem));
    }
    let template = spec.cluster_template.as_ref();
    refused.extend(
        template
            .into_iter()
            .flat_map(|template| template_refusals(template, spec)),
    );
    match backup_ref(spec) {
        Ok(backup) if refused.is_empty() => Ok(Desired {
            cluster: spec.etcd_cluster.name.clone(),
            template: template.cloned().map(Box::new),
            backup,
            revision_bump: spec.revision_bump.unwrap_or(DEFAULT_REVISION_BUMP).max(0),
            keep_previous: spec
                .keep_previous
                .as_ref()
                .map_or(DEFAULT_KEEP_PREVIOUS, |span| span.0),
            safety_backup: spec.safety_backup.unwrap_or(false),
            keys: spec
                .encryption
                .as_ref()
                .map(|encryption| encryption.secret_ref.name.clone()),
        }),
        Ok(_) => Err(refused),
        Err(more) => {
            refused.extend(more);
            Err(refused)
        }
    }
}

/// The desired state of a restore whose edited spec is refused while the restore is in progress. The restore continues as
/// requested, because the request is stored on the cluster.
pub fn desired_of_refused(restore: &EtcdRestore, refused: &[Refusal]) -> Desired {
    let spec = &restore.spec;
    let refusals: Vec<_> = refused.iter().map(ToString::to_string).collect();
    Desired {
        cluster: spec.etcd_cluster.name.clone(),
        template: None,
        backup: BackupRef::Refused(refusals.join("; ")),
        revision_bump: DEFAULT_REVISION_BUMP,
        keep_previous: DEFAULT_KEEP_PREVIOUS,
        safety_backup: false,
        keys: None,
    }
}

/// Why no cluster can be created from a template.
fn template_refusals(template: &ClusterTemplate, spec: &EtcdRestoreSpec) -> Vec<Refusal> {
    let mut refused = Vec::new();
    let name = &spec.etcd_cluster.name;
    if let Err(why) = name.parse::<ClusterName>()
        && !name.is_empty()
    {
        let problem = format!(
            "'{name}' {why}: spec.clusterTemplate creates an EtcdCluster of this name; for example: orders-etcd"
        );
        refused.push(Refusal::invalid("spec.etcdCluster.name", problem));
    }
    if template.spec.size == 0 {
        let problem = "is 0, must be 1 to 9: a hibernated cluster cannot be restored; for example: 3";
        refused.push(Refusal::invalid("spec.clusterTemplate.spec.size", problem));
    }
    let annotations = template.annotations.iter().flatten();
    for (key, _) in annotations.filter(|(key, _)| *key != ANNOTATION_SCOPE && reserved::annotation(key)) {
        let problem = format!("'{key}' is reserved for the operator: remove it");
        refused.push(Refusal::invalid("spec.clusterTemplate.annotations", problem));
    }
    refused
}

fn backup_ref(spec: &EtcdRestoreSpec) -> Result<BackupRef, Vec<Refusal>> {
    let blocks = Blocks::from(spec);
    match (&spec.backup_storage_type, &spec.source) {
        (Some(kind), None) => blocks
            .locate(*kind, "spec.backupStorageType")
            .map(BackupRef::Object),
        (None, Some(source)) => {
            if let Some(block) = blocks.set().first() {
                let problem = "is set together with spec.source: set only one of them; for example: source: {backup: {name: orders-nightly}}";
                return Err(vec![Refusal::invalid(format!("spec.{block}"), problem)]);
            }
            named_backup(source)
        }
        _ => {
            let problem = "or spec.backupStorageType must be set to locate the backup, but not both; for example: source: {backup: {name: orders-nightly}}";
            Err(vec![Refusal::invalid("spec.source", problem)])
        }
    }
}

fn named_backup(source: &RestoreSource) -> Result<BackupRef, Vec<Refusal>> {
    if source.backup.name.is_empty() {
        let problem = "must name an EtcdBackup of this namespace; for example: orders-nightly";
        return Err(vec![Refusal::invalid("spec.source.backup.name", problem)]);
    }
    let RestorePoint {
        latest,
        revision,
        time,
    } = source.at.clone().unwrap_or_default();
    let at = match (latest.unwrap_or(false), revision, time) {
        (_, None, None) => PointInTime::Latest,
        (false, Some(revision), None) if revision > 0 => PointInTime::Revision(revision),
        (false, Some(_), None) => {
            let problem = "must be greater than 0; for example: 48211";
            return Err(vec![Refusal::invalid("spec.source.at.revision", problem)]);
        }
        (false, None, Some(time)) => PointInTime::Time(time.0),
        _ => {
            let problem =
                "must contain only one of latest, revision and time; for example: {revision: 48211}";
            return Err(vec![Refusal::invalid("spec.source.at", problem)]);
        }
    };
    Ok(BackupRef::Backup {
        name: source.backup.name.clone(),
        at,
    })
}
