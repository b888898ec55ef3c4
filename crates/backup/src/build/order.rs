//! The order in a Job's container: what to do, where to store it, and the deadline.

use std::time::Duration;

use etcd_operator_api::contract::{
    BackupTask, JobOrder, Limits, Naming, Source, StoreOrder, Task as Order, VERSION, mounts,
};
use jiff::{SignedDuration, Timestamp};

use super::BuildInputs;
use crate::desired::{Desired, Trigger};
use crate::persisted_state::{Run, Task};

/// The shortest timeout of a prune or erase run.
pub(super) const MIN_DELETION_TIMEOUT: Duration = Duration::from_mins(10);

/// Builds the order of a run.
pub(super) fn order(run: &Run, inputs: &BuildInputs<'_>) -> JobOrder {
    JobOrder {
        version: VERSION,
        run: run.id(inputs.uid),
        owner_uid: inputs.uid.to_owned(),
        store: store(inputs),
        task: match run.task {
            Task::Backup => Order::Backup(Box::new(backup(run, inputs))),
            Task::Prune => Order::Prune {
                keep: inputs.retention.clone(),
            },
            Task::Erase => Order::Erase,
        },
    }
}

/// How long a run may take. A prune or erase run has at least ten minutes.
pub fn timeout(task: Task, desired: &Desired) -> Duration {
    match task {
        Task::Backup => desired.timeout,
        // The time to delete grows with the number of objects.
        Task::Prune | Task::Erase => desired.timeout.max(MIN_DELETION_TIMEOUT),
    }
}

/// When the run must have ended: its timeout after its start.
pub(super) fn deadline(run: &Run, inputs: &BuildInputs<'_>) -> Timestamp {
    let span = timeout(run.task, inputs.desired);
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::from_hours(24 * 365));
    let started_at = run.started_at.unwrap_or(inputs.now);
    started_at.checked_add(span).unwrap_or(Timestamp::MAX)
}

fn backup(run: &Run, inputs: &BuildInputs<'_>) -> BackupTask {
    let (desired, source) = (inputs.desired, inputs.source);
    BackupTask {
        source: Source {
            endpoints: source.endpoints.clone(),
            tls: mount_path(source.client_tls.as_deref(), mounts::CLIENT_TLS),
            server_name: None,
            user: None,
        },
        cluster_id: source.cluster_id.clone(),
        incarnation: source.incarnation,
        naming: match desired.trigger {
            Trigger::Once => Naming::OneShot,
            Trigger::Interval(_) | Trigger::Schedule(_) => Naming::Periodic,
        },
        compression: desired.compression,
        keys: mount_path(desired.encryption_secret.as_deref(), mounts::KEYS),
        verification: desired.verification,
        deadline: deadline(run, inputs),
        limits: Limits::default(),
        allow_others: false,
    }
}

/// The mount path of a Secret, if there is one.
fn mount_path(secret: Option<&str>, path: &str) -> Option<String> {
    secret.map(|_| path.to_owned())
}

fn store(inputs: &BuildInputs<'_>) -> StoreOrder {
    let desired = inputs.desired;
    desired.location.order(desired.object_path(inputs.name))
}
