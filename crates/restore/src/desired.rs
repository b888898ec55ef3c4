//! What an `EtcdRestore` asks for, parsed once: one cluster, one place where the backup is.
//!
//! Pure. Whatever cannot be used becomes a refusal that names the field; nothing the user wrote is dropped in silence.

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

/// Fields whose feature does not exist yet. Building one takes its line away.
const UNBUILT: &[Unbuilt] = &[];

/// By how much the revision is raised where the user does not say: more than any cluster writes between two backups.
const REVISION_BUMP: i64 = 1_000_000_000;
/// The most of it: etcd never counts back, and a typo would be there for good.
const MAX_REVISION_BUMP: i64 = 1_000_000_000_000;
/// How long the data of before are kept where the user does not say.
const KEEP_PREVIOUS: Duration = Duration::from_hours(24);

/// What an `EtcdRestore` asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The `EtcdCluster` of the same namespace that is restored.
    pub cluster: String,
    /// What it is made from where it does not exist.
    pub template: Option<Box<ClusterTemplate>>,
    /// Where the backup is.
    pub from: From,
    /// By how much the revision is raised above the last one the old cluster was seen at; 0 leaves it.
    pub revision_bump: i64,
    /// How long the data of before are kept.
    pub keep_previous: Duration,
    /// Whether the cluster is backed up before anything is touched.
    pub backs_up_first: bool,
    /// The Secret with the keys that open and seal backups; none leaves it to the `EtcdBackup`.
    pub keys: Option<String>,
}

/// Where the backup is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// In a store, under its full key.
    Object(Location),
    /// Among those of an `EtcdBackup` of the same namespace.
    Backup {
        /// Its name.
        name: String,
        /// Which of them.
        at: At,
    },
    /// Nowhere that could be told: the spec was edited while the restore was under way, and is refused by now, for this reason.
    Refused(String),
}

/// Which backup of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The newest.
    Latest,
    /// The newest whose revision is not above this one.
    Revision(i64),
    /// The newest that was finished not after this time.
    Time(Timestamp),
}

/// The fields that are refused because their feature does not exist yet.
pub fn not_built() -> &'static [Unbuilt] {
    UNBUILT
}

/// Parses an `EtcdRestore`, or says everything that is wrong with it.
pub fn desired(restore: &EtcdRestore) -> Result<Desired, Vec<Refusal>> {
    let spec = &restore.spec;
    let mut refused = unbuilt(&json!({ "spec": spec }), UNBUILT);
    let name = restore.metadata.name.as_deref().unwrap_or_default();
    if name.len() > MAX_NAME {
        let problem = format!(
            "has {} characters, at most {MAX_NAME} are allowed, because the Jobs it starts carry it; for example: orders",
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
            "must be {MAX_REVISION_BUMP} at most, as etcd never counts back; for example: 1000000000"
        );
        refused.push(Refusal::invalid("spec.revisionBump", problem));
    }
    let template = spec.cluster_template.as_ref();
    refused.extend(
        template
            .into_iter()
            .flat_map(|template| cannot_be(template, spec)),
    );
    match from(spec) {
        Ok(from) if refused.is_empty() => Ok(Desired {
            cluster: spec.etcd_cluster.name.clone(),
            template: template.cloned().map(Box::new),
            from,
            revision_bump: spec.revision_bump.unwrap_or(REVISION_BUMP).max(0),
            keep_previous: spec.keep_previous.as_ref().map_or(KEEP_PREVIOUS, |span| span.0),
            backs_up_first: spec.safety_backup.unwrap_or(false),
            keys: spec
                .encryption
                .as_ref()
                .map(|sealed| sealed.secret_ref.name.clone()),
        }),
        Ok(_) => Err(refused),
        Err(more) => {
            refused.extend(more);
            Err(refused)
        }
    }
}

/// What is left of an `EtcdRestore` that is refused by now and under way already: it goes on as it was asked for, which the
/// cluster has written down.
pub fn as_begun(restore: &EtcdRestore, refused: &[Refusal]) -> Desired {
    let spec = &restore.spec;
    let words: Vec<_> = refused.iter().map(ToString::to_string).collect();
    Desired {
        cluster: spec.etcd_cluster.name.clone(),
        template: None,
        from: From::Refused(words.join("; ")),
        revision_bump: REVISION_BUMP,
        keep_previous: KEEP_PREVIOUS,
        backs_up_first: false,
        keys: None,
    }
}

/// Why no cluster can be made from a template.
fn cannot_be(template: &ClusterTemplate, spec: &EtcdRestoreSpec) -> Vec<Refusal> {
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
        let problem = "is 0, must be 1 to 9: a cluster that sleeps takes no data in; for example: 3";
        refused.push(Refusal::invalid("spec.clusterTemplate.spec.size", problem));
    }
    let annotations = template.annotations.iter().flatten();
    for (key, _) in annotations.filter(|(key, _)| *key != ANNOTATION_SCOPE && reserved::annotation(key)) {
        let problem =
            format!("'{key}' belongs to the operator, which sets it where it is needed: leave it out");
        refused.push(Refusal::invalid("spec.clusterTemplate.annotations", problem));
    }
    refused
}

fn from(spec: &EtcdRestoreSpec) -> Result<From, Vec<Refusal>> {
    let blocks = Blocks {
        s3: spec.s3.as_ref(),
        abs: spec.abs.as_ref(),
        gcs: spec.gcs.as_ref(),
        oss: spec.oss.as_ref(),
        local: spec.local.as_ref(),
    };
    match (&spec.backup_storage_type, &spec.source) {
        (Some(kind), None) => blocks.locate(*kind, "spec.backupStorageType").map(From::Object),
        (None, Some(source)) => {
            if let Some(block) = blocks.set().first() {
                let problem = "is set beside spec.source: keep one of them; for example: source: {backup: {name: orders-nightly}}";
                return Err(vec![Refusal::invalid(format!("spec.{block}"), problem)]);
            }
            backup(source)
        }
        _ => {
            let problem = "or spec.backupStorageType must say where the backup is, and not both; for example: source: {backup: {name: orders-nightly}}";
            Err(vec![Refusal::invalid("spec.source", problem)])
        }
    }
}

fn backup(source: &RestoreSource) -> Result<From, Vec<Refusal>> {
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
        (_, None, None) => At::Latest,
        (false, Some(revision), None) if revision > 0 => At::Revision(revision),
        (false, Some(_), None) => {
            let problem = "must be above zero; for example: 48211";
            return Err(vec![Refusal::invalid("spec.source.at.revision", problem)]);
        }
        (false, None, Some(time)) => At::Time(time.0),
        _ => {
            let problem = "takes one of latest, revision and time; for example: {revision: 48211}";
            return Err(vec![Refusal::invalid("spec.source.at", problem)]);
        }
    };
    Ok(From::Backup {
        name: source.backup.name.clone(),
        at,
    })
}
