//! The order that a Job carries: what to do, where, and until when.

use etcd_operator_api::contract::{
    BackupTask, JobOrder, Limits, Naming, Source, StoreOrder, Task as Order, VERSION, mounts,
};
use jiff::{SignedDuration, Timestamp};

use super::Frame;
use crate::desired::When;
use crate::memory::{Run, Task};

/// The order of a run.
pub(super) fn order(run: &Run, frame: &Frame<'_>) -> JobOrder {
    JobOrder {
        version: VERSION,
        run: run.id(frame.uid),
        owner_uid: frame.uid.to_owned(),
        store: store(frame),
        task: match run.task {
            Task::Backup => Order::Backup(Box::new(backup(run, frame))),
            Task::Prune => Order::Prune { keep: frame.keep() },
            Task::Erase => Order::Erase,
        },
    }
}

/// When the run is over, whatever it has reached.
pub(super) fn deadline(run: &Run, frame: &Frame<'_>) -> Timestamp {
    let span = match run.task {
        Task::Backup => frame.desired.timeout,
        // Deletion takes as long as there are objects, and nobody waits for it.
        Task::Prune | Task::Erase => frame.desired.timeout.max(super::job::LONG),
    };
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::from_hours(24 * 365));
    let started = run.started.unwrap_or(frame.now);
    started.checked_add(span).unwrap_or(Timestamp::MAX)
}

fn backup(run: &Run, frame: &Frame<'_>) -> BackupTask {
    let (desired, origin) = (frame.desired, frame.origin);
    BackupTask {
        source: Source {
            endpoints: origin.endpoints.clone(),
            tls: dir(origin.client_tls.as_deref(), mounts::CLIENT_TLS),
            server_name: None,
            user: None,
        },
        cluster_id: origin.cluster_id.clone(),
        incarnation: origin.incarnation,
        naming: match desired.when {
            When::Once => Naming::OneShot,
            When::Every(_) | When::Schedule(_) => Naming::Periodic,
        },
        compression: desired.compression,
        keys: dir(desired.keys.as_deref(), mounts::KEYS),
        verification: desired.verification,
        deadline: deadline(run, frame),
        limits: Limits::default(),
        allow_others: false,
    }
}

fn dir(secret: Option<&str>, mounted: &str) -> Option<String> {
    secret.map(|_| mounted.to_owned())
}

fn store(frame: &Frame<'_>) -> StoreOrder {
    let desired = frame.desired;
    desired.location.order(desired.path(frame.name))
}
