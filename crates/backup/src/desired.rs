//! Parses the spec of an `EtcdBackup` into one source, one store and one trigger.
//!
//! Pure. It takes the current time, because only a look ahead shows that a schedule never fires. An unusable value becomes
//! a refusal that names its field; no value is ignored.

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

/// Fields whose feature is not implemented yet. Implementing one removes its line.
const UNBUILT: &[Unbuilt] = &[];

/// The default timeout of a backup. The ancestor operator's is one minute, which is too short for large databases.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(10);

/// The longest timeout of a backup.
const MAX_TIMEOUT: Duration = Duration::from_hours(24);

/// The parsed spec of an `EtcdBackup`.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The etcd cluster to back up.
    pub source: Source,
    /// The Secret with the client certificate for etcd.
    pub client_tls: Option<String>,
    /// Where backups are stored.
    pub location: Location,
    /// When backups are made.
    pub trigger: Trigger,
    /// Whether `spec.suspend` keeps new backups from starting.
    pub is_suspended: bool,
    /// The timeout of a backup.
    pub timeout: Duration,
    /// How late a backup may start; by default half the time to the next one.
    pub starting_deadline: Option<Duration>,
    /// Which backups are kept.
    pub retention: Keep,
    /// How backups are compressed.
    pub compression: Compression,
    /// The Secret with the encryption keys.
    pub encryption_secret: Option<String>,
    /// How a backup is verified before it counts.
    pub verification: Verification,
    /// The etcd image for the verification `Restore`; by default the cluster's.
    pub etcd_image: Option<String>,
    /// Whether the stored backups are deleted with the object.
    pub deletes_backups: bool,
    /// Settings of the Job's pod.
    pub job: BackupJob,
}

/// The etcd cluster to back up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An `EtcdCluster` of the same namespace, by name.
    Cluster(String),
    /// Any etcd cluster, by its client URLs.
    Endpoints(Vec<String>),
}

/// When backups are made.
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    /// One backup.
    Once,
    /// A backup each interval.
    Interval(Duration),
    /// A backup each time the schedule fires.
    Schedule(Box<Schedule>),
}

impl Desired {
    /// The path in the store: the one in the spec, or, on a volume without a path, the name of the cluster. A backup of
    /// bare endpoints uses `name` instead, the name of the `EtcdBackup`.
    pub fn object_path<'a>(&'a self, name: &'a str) -> &'a str {
        let default = match &self.source {
            Source::Cluster(cluster) => cluster.as_str(),
            Source::Endpoints(_) => name,
        };
        self.location.key().unwrap_or(default)
    }

    /// Where backups are stored, in one line.
    pub fn location_address(&self, name: &str) -> String {
        self.location.address(self.object_path(name))
    }
}

/// The fields that are refused because their feature is not implemented yet.
pub fn unimplemented_fields() -> &'static [Unbuilt] {
    UNBUILT
}

/// Parses an `EtcdBackup`, or returns everything that is wrong with it. `now` only shows whether the schedule ever
/// fires.
pub fn parse_spec(backup: &EtcdBackup, now: Timestamp) -> Result<Desired, Vec<Refusal>> {
    let spec = &backup.spec;
    let policy = spec.backup_policy.clone().unwrap_or_default();
    let mut refused = unbuilt(&json!({ "spec": spec }), UNBUILT);
    refused.extend(validate_name(backup.metadata.name.as_deref().unwrap_or_default()));

    let source = parse_source(spec).map_err(|more| refused.extend(more)).ok();
    let blocks = Blocks::from(spec);
    let location = blocks
        .locate(spec.storage_type, "spec.storageType")
        .map_err(|more| refused.extend(more))
        .ok();
    let trigger = parse_trigger(spec, &policy, now)
        .map_err(|more| refused.extend(more))
        .ok();
    let retention = parse_retention(spec, &policy)
        .map_err(|more| refused.extend(more))
        .ok();
    let starting_deadline = policy
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
        let problem = "Restore of spec.etcdEndpoints needs spec.job.etcdImage, the image that these endpoints run; for example: quay.io/coreos/etcd:v3.6.16";
        refused.push(Refusal::invalid("spec.verification", problem));
    }
    let timeout = match u64::try_from(policy.timeout_in_second.unwrap_or(0)) {
        // An object that was stored before the limit existed may have a longer one.
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds).min(MAX_TIMEOUT),
        _ => DEFAULT_TIMEOUT,
    };
    match (source, location, trigger, retention) {
        (Some(source), Some(location), Some(trigger), Some(retention)) if refused.is_empty() => Ok(Desired {
            source,
            client_tls: spec.client_tls_secret.clone().filter(|s| !s.is_empty()),
            location,
            trigger,
            is_suspended: spec.suspend,
            timeout,
            starting_deadline: starting_deadline.map(Duration::from_secs),
            retention,
            compression: spec.compression,
            encryption_secret: spec.encryption.as_ref().map(|e| e.secret_ref.name.clone()),
            verification: spec.verification,
            etcd_image: etcd_image(spec).map(str::to_owned),
            deletes_backups: spec.deletion_policy == DeletionPolicy::Delete,
            job: spec.job.clone().unwrap_or_default(),
        }),
        _ => Err(refused),
    }
}

fn etcd_image(spec: &EtcdBackupSpec) -> Option<&str> {
    let image = spec.job.as_ref()?.etcd_image.as_deref();
    image.filter(|image| !image.is_empty())
}

fn validate_name(text: &str) -> Option<Refusal> {
    (text.len() > MAX_NAME).then(|| {
        let problem = format!(
            "has {} characters, at most {MAX_NAME} are allowed, because the names of its Jobs start with it; for example: orders-nightly",
            text.len()
        );
        Refusal::invalid("metadata.name", problem)
    })
}

fn parse_source(spec: &EtcdBackupSpec) -> Result<Source, Vec<Refusal>> {
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
            let has_scheme = |e: &String| e.starts_with("http://") || e.starts_with("https://");
            if let Some(bad) = endpoints.iter().find(|e| !has_scheme(e)) {
                let problem =
                    format!("holds '{bad}', which has no scheme; for example: http://orders-client:2379");
                return Err(vec![Refusal::invalid("spec.etcdEndpoints", problem)]);
            }
            if endpoints.iter().any(|e| names_user(e)) {
                let problem = "holds a user or a password, which everyone who may read this object would see: leave it out; for example: http://orders-client:2379";
                return Err(vec![Refusal::invalid("spec.etcdEndpoints", problem)]);
            }
            let has_secret = spec.client_tls_secret.as_ref().is_some_and(|s| !s.is_empty());
            if !has_secret && endpoints.iter().any(|e| e.starts_with("https://")) {
                let problem = "must name a Secret with etcd's CA and a client certificate, because an endpoint in spec.etcdEndpoints uses https; for example: orders-client-tls";
                return Err(vec![Refusal::invalid("spec.clientTLSSecret", problem)]);
            }
            Ok(Source::Endpoints(endpoints))
        }
    }
}

fn parse_trigger(
    spec: &EtcdBackupSpec,
    policy: &BackupPolicy,
    now: Timestamp,
) -> Result<Trigger, Vec<Refusal>> {
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
            .map(|schedule| Trigger::Schedule(Box::new(schedule)))
            .map_err(|r| vec![r]),
        (None, Some(_)) => {
            let problem = "needs a schedule; for example: schedule: \"0 3 * * *\"";
            Err(vec![Refusal::invalid("spec.timeZone", problem)])
        }
        (None, None) if seconds > 0 => Ok(Trigger::Interval(Duration::from_secs(seconds))),
        (None, None) => Ok(Trigger::Once),
    }
}

/// Parses the retention policy. Its days begin in the time zone of the schedule.
fn parse_retention(spec: &EtcdBackupSpec, policy: &BackupPolicy) -> Result<Keep, Vec<Refusal>> {
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
        ..Keep::default()
    })
}

fn negative(field: &str, rest: &str) -> Refusal {
    Refusal::invalid(
        format!("spec.backupPolicy.{field}"),
        format!("must not be negative: {rest}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_timeout_of_more_than_a_day_counts_as_a_day() {
        for (seconds, expected) in [
            (None, DEFAULT_TIMEOUT),
            (Some(0), DEFAULT_TIMEOUT),
            (Some(86_400), MAX_TIMEOUT),
            (Some(86_401), MAX_TIMEOUT),
            (Some(i64::MAX), MAX_TIMEOUT),
        ] {
            let backup: EtcdBackup = serde_json::from_value(json!({
                "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
                "metadata": {"name": "nightly"},
                "spec": {
                    "etcdCluster": {"name": "orders"}, "storageType": "Local",
                    "local": {"persistentVolumeClaim": "backups"},
                    "backupPolicy": {"timeoutInSecond": seconds},
                },
            }))
            .expect("a backup");
            let desired = parse_spec(&backup, Timestamp::UNIX_EPOCH).expect("a valid spec");
            assert_eq!(desired.timeout, expected, "{seconds:?}");
        }
    }
}
