//! What an `EtcdBackup` asks for, parsed once: one source, one store, one way to tell when.
//!
//! Pure; the time comes in, because a schedule that never fires can only be told by looking ahead. Whatever cannot be
//! used becomes a refusal that names the field; nothing the user wrote is dropped in silence.

mod schedule;

pub use schedule::Schedule;

use std::time::Duration;

use etcd_operator_api::{
    EtcdBackup,
    backup::{BackupJob, BackupPolicy, Compression, DeletionPolicy, EtcdBackupSpec, Verification},
    location::{Blocks, Location, names_user},
    names::MAX_NAME,
    refusal::{Refusal, Unbuilt, unbuilt},
    retention::Keep,
};
use jiff::Timestamp;
use serde_json::json;

/// Fields whose feature does not exist yet. Building one takes its line away.
const UNBUILT: &[Unbuilt] = &[];

/// How long a backup may take where the user does not say: the ancestor's bound.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);

/// What an `EtcdBackup` asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// What is backed up.
    pub source: Source,
    /// The Secret with which etcd is reached over TLS.
    pub client_tls: Option<String>,
    /// Where backups go.
    pub location: Location,
    /// When.
    pub when: When,
    /// Whether no new backup starts.
    pub suspended: bool,
    /// How long one may take.
    pub timeout: Duration,
    /// How late one may start; half the time to the next one without.
    pub late: Option<Duration>,
    /// What is kept.
    pub keep: Keep,
    /// How frames are compressed.
    pub compression: Compression,
    /// The Secret with the keys that seal backups.
    pub keys: Option<String>,
    /// How a backup is checked before it counts.
    pub verification: Verification,
    /// The image of etcd with which it is, where the cluster's is not meant.
    pub etcd_image: Option<String>,
    /// Whether stored backups go with the object.
    pub erases: bool,
    /// How pods are shaped.
    pub job: BackupJob,
}

/// What is backed up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An `EtcdCluster` of the same namespace.
    Cluster(String),
    /// Any etcd cluster, by its clients' addresses.
    Endpoints(Vec<String>),
}

/// When backups are made.
#[derive(Clone, Debug, PartialEq)]
pub enum When {
    /// One.
    Once,
    /// One after the other, this far apart.
    Every(Duration),
    /// On a schedule.
    Schedule(Box<Schedule>),
}

impl Desired {
    /// The path of the backups of the object of this name; a volume has one although the spec may say none.
    pub fn path<'a>(&'a self, name: &'a str) -> &'a str {
        let own = match &self.source {
            Source::Cluster(cluster) => cluster.as_str(),
            Source::Endpoints(_) => name,
        };
        self.location.key().unwrap_or(own)
    }

    /// Where these backups go, in one line.
    pub fn place(&self, name: &str) -> String {
        self.location.address(self.path(name))
    }
}

/// The fields that are refused because their feature does not exist yet.
pub fn not_built() -> &'static [Unbuilt] {
    UNBUILT
}

/// Parses an `EtcdBackup`, or says everything that is wrong with it.
pub fn desired(backup: &EtcdBackup, now: Timestamp) -> Result<Desired, Vec<Refusal>> {
    let spec = &backup.spec;
    let policy = spec.backup_policy.clone().unwrap_or_default();
    let mut refused = unbuilt(&json!({ "spec": spec }), UNBUILT);
    refused.extend(name(backup.metadata.name.as_deref().unwrap_or_default()));

    let source = source(spec).map_err(|more| refused.extend(more)).ok();
    let blocks = Blocks {
        s3: spec.s3.as_ref(),
        abs: spec.abs.as_ref(),
        gcs: spec.gcs.as_ref(),
        oss: spec.oss.as_ref(),
        local: spec.local.as_ref(),
    };
    let location = blocks
        .locate(spec.storage_type, "spec.storageType")
        .map_err(|more| refused.extend(more))
        .ok();
    let when = when(spec, &policy, now).map_err(|more| refused.extend(more)).ok();
    let keep = keep(spec, &policy).map_err(|more| refused.extend(more)).ok();
    let late = policy
        .starting_deadline_seconds
        .map(u64::try_from)
        .transpose()
        .unwrap_or_else(|_| {
            refused.push(negative("startingDeadlineSeconds", "for example: 600"));
            None
        });
    if spec.verification == Verification::Restore
        && matches!(source, Some(Source::Endpoints(_)))
        && etcd_image(spec).is_none()
    {
        let problem = "Restore of spec.etcdEndpoints needs spec.job.etcdImage, the image of the etcd that runs there; for example: quay.io/coreos/etcd:v3.6.16";
        refused.push(Refusal::invalid("spec.verification", problem));
    }
    let timeout = match u64::try_from(policy.timeout_in_second.unwrap_or(0)) {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => DEFAULT_TIMEOUT,
    };
    match (source, location, when, keep) {
        (Some(source), Some(location), Some(when), Some(keep)) if refused.is_empty() => Ok(Desired {
            source,
            client_tls: spec.client_tls_secret.clone().filter(|s| !s.is_empty()),
            location,
            when,
            suspended: spec.suspend,
            timeout,
            late: late.map(Duration::from_secs),
            keep,
            compression: spec.compression,
            keys: spec.encryption.as_ref().map(|e| e.secret_ref.name.clone()),
            verification: spec.verification,
            etcd_image: etcd_image(spec).map(str::to_owned),
            erases: spec.deletion_policy == DeletionPolicy::Delete,
            job: spec.job.clone().unwrap_or_default(),
        }),
        _ => Err(refused),
    }
}

fn etcd_image(spec: &EtcdBackupSpec) -> Option<&str> {
    let image = spec.job.as_ref()?.etcd_image.as_deref();
    image.filter(|image| !image.is_empty())
}

fn name(text: &str) -> Option<Refusal> {
    (text.len() > MAX_NAME).then(|| {
        let problem = format!("has {} characters, at most {MAX_NAME} are allowed, because the Jobs of its runs carry it; for example: orders-nightly", text.len());
        Refusal::invalid("metadata.name", problem)
    })
}

fn source(spec: &EtcdBackupSpec) -> Result<Source, Vec<Refusal>> {
    let endpoints = spec.etcd_endpoints.clone().unwrap_or_default();
    match &spec.etcd_cluster {
        Some(_) if !endpoints.is_empty() => {
            let problem = "and spec.etcdEndpoints both say what to back up: keep one of them; for example: etcdCluster: {name: orders}";
            Err(vec![Refusal::invalid("spec.etcdCluster", problem)])
        }
        Some(cluster) if cluster.name.is_empty() => {
            let problem = "must name an EtcdCluster of this namespace; for example: orders";
            Err(vec![Refusal::invalid("spec.etcdCluster.name", problem)])
        }
        Some(cluster) => Ok(Source::Cluster(cluster.name.clone())),
        None if endpoints.is_empty() => {
            let problem = "is empty and spec.etcdCluster is not set: name what to back up; for example: etcdCluster: {name: orders}";
            Err(vec![Refusal::invalid("spec.etcdEndpoints", problem)])
        }
        None => {
            let plain = |e: &String| e.starts_with("http://") || e.starts_with("https://");
            if let Some(bad) = endpoints.iter().find(|e| !plain(e)) {
                let problem =
                    format!("holds '{bad}', which has no scheme; for example: http://orders-client:2379");
                return Err(vec![Refusal::invalid("spec.etcdEndpoints", problem)]);
            }
            if endpoints.iter().any(|e| names_user(e)) {
                let problem = "holds a user or a password, which everybody would see who reads this object: leave it out; for example: http://orders-client:2379";
                return Err(vec![Refusal::invalid("spec.etcdEndpoints", problem)]);
            }
            let has_secret = spec.client_tls_secret.as_ref().is_some_and(|s| !s.is_empty());
            if !has_secret && endpoints.iter().any(|e| e.starts_with("https://")) {
                let problem = "must name a Secret with the authority of the etcd, and the certificate to show it, as an endpoint of spec.etcdEndpoints says https; for example: orders-client-tls";
                return Err(vec![Refusal::invalid("spec.clientTLSSecret", problem)]);
            }
            Ok(Source::Endpoints(endpoints))
        }
    }
}

fn when(spec: &EtcdBackupSpec, policy: &BackupPolicy, now: Timestamp) -> Result<When, Vec<Refusal>> {
    let seconds = u64::try_from(policy.backup_interval_in_second.unwrap_or(0)).map_err(|_| {
        vec![negative(
            "backupIntervalInSecond",
            "0 makes one backup; for example: 3600",
        )]
    })?;
    let schedule = spec.schedule.as_deref().filter(|s| !s.is_empty());
    let zone = spec.time_zone.as_deref().filter(|z| !z.is_empty());
    match (schedule, zone) {
        (Some(_), _) if seconds > 0 => {
            let problem = "and spec.backupPolicy.backupIntervalInSecond both say when to back up: keep one of them; for example: \"0 3 * * *\"";
            Err(vec![Refusal::invalid("spec.schedule", problem)])
        }
        (Some(schedule), zone) => Schedule::parse(schedule, zone, now)
            .map(|schedule| When::Schedule(Box::new(schedule)))
            .map_err(|r| vec![r]),
        (None, Some(_)) => {
            let problem = "needs a schedule; for example: schedule: \"0 3 * * *\"";
            Err(vec![Refusal::invalid("spec.timeZone", problem)])
        }
        (None, None) if seconds > 0 => Ok(When::Every(Duration::from_secs(seconds))),
        (None, None) => Ok(When::Once),
    }
}

/// What is kept. Days are those of the schedule.
fn keep(spec: &EtcdBackupSpec, policy: &BackupPolicy) -> Result<Keep, Vec<Refusal>> {
    let mut refused = Vec::new();
    let newest = u64::try_from(policy.max_backups.unwrap_or(0)).unwrap_or_else(|_| {
        refused.push(negative("maxBackups", "0 keeps all; for example: 7"));
        0
    });
    let mut count = |field, wanted: Option<i32>| {
        u32::try_from(wanted.unwrap_or(0)).unwrap_or_else(|_| {
            refused.push(negative(field, "0 keeps none for it; for example: 14"));
            0
        })
    };
    let hourly = count("keepHourly", policy.keep_hourly);
    let daily = count("keepDaily", policy.keep_daily);
    let weekly = count("keepWeekly", policy.keep_weekly);
    if !refused.is_empty() {
        return Err(refused);
    }
    Ok(Keep {
        newest: Some(newest).filter(|newest| *newest > 0),
        max_age_seconds: policy.max_age.map(|age| age.0.as_secs()),
        hourly,
        daily,
        weekly,
        zone: spec.time_zone.clone().filter(|zone| !zone.is_empty()),
    })
}

fn negative(field: &str, rest: &str) -> Refusal {
    Refusal::invalid(
        format!("spec.backupPolicy.{field}"),
        format!("must not be negative: {rest}"),
    )
}
