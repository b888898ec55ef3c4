//! Doing what was planned and written down: Jobs are made and deleted, finalizers set. Each call can be done again.

use std::sync::Arc;

use etcd_operator_api::EtcdBackup;
use etcd_operator_api::names::{FINALIZER_LEGACY_BACKUP, FINALIZER_STORED};
use etcd_operator_api::refusal::bounded;
use etcd_operator_runtime::apply::{Error, Introduced, Written};
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::core::Status;

use crate::build::{self, Frame};
use crate::memory::{Memory, Run};
use crate::observe::is_owned;
use crate::plan::Drop;
use crate::reconcile::Deps;
use crate::world::World;

/// What became of a Job that was to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// It was made now.
    New,
    /// It was there.
    There,
    /// One of its name is somebody else's.
    Foreign,
    /// The namespace goes, and takes no new object.
    NamespaceGoes,
    /// The API server takes no such Job: a quota, a policy, a field.
    Refused(String),
}

/// Makes the Job of a run that is written down.
pub async fn make(run: &Run, world: &World, image: &str, deps: &Deps) -> Result<Made, Error> {
    let nowhere = crate::world::Origin::default();
    let frame = Frame {
        desired: &world.desired,
        namespace: &world.namespace,
        name: &world.name,
        uid: &world.uid,
        generation: world.generation,
        origin: world.origin.as_ref().unwrap_or(&nowhere),
        image,
        now: world.now,
    };
    match deps.applier.introduce(&build::job(run, &frame)).await {
        Ok(Introduced::Created(_)) => Ok(Made::New),
        Ok(Introduced::There(job)) if is_owned(&job, &world.uid) => Ok(Made::There),
        Ok(Introduced::There(_)) => Ok(Made::Foreign),
        Err(error) => match refusal(&error) {
            Some(status) if namespace_goes(status) => Ok(Made::NamespaceGoes),
            Some(status) => Ok(Made::Refused(bounded(&status.message, 400))),
            None => Err(error),
        },
    }
}

/// What the API server says where trying again does not help by itself.
fn refusal(error: &Error) -> Option<&Status> {
    let Error::Api { source, .. } = error else {
        return None;
    };
    match &**source {
        kube::Error::Api(status) if [400, 403, 422].contains(&status.code) => Some(status),
        _ => None,
    }
}

/// The API server refuses new objects in a namespace that is being deleted.
fn namespace_goes(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403
        && (causes.any(|cause| cause.reason == "NamespaceTerminating")
            || status.message.contains("is being terminated"))
}

/// Deletes Jobs that no run needs. The copy may be older than what was written down: it is read again first.
pub async fn drop_jobs(jobs: &[Drop], backup: &EtcdBackup, deps: &Deps) -> Result<(), Error> {
    if jobs.is_empty() {
        return Ok(());
    }
    let key = ObjectKey::of(backup);
    let now = deps.applier.read::<EtcdBackup>(&key).await?;
    let now = now.filter(|now| now.uid() == backup.uid());
    let memory = Memory::read(now.as_ref().and_then(|now| now.status.as_ref()));
    let is_going = now.is_none_or(|now| now.metadata.deletion_timestamp.is_some());
    for job in jobs {
        let run = memory.runs.iter().find(|run| run.job(&key.name) == job.name);
        let is_needed = match run {
            None => !is_going && memory.is_of_unknown(&job.name),
            Some(run) => !(job.is_in_vain && run.job_uid.as_ref().is_none_or(|uid| *uid == job.uid)),
        };
        if !is_needed {
            let name = key.beside(&job.name);
            deps.applier.delete_uid::<Job>(&name, &job.uid, None).await?;
        }
    }
    Ok(())
}

/// Sets what holds the object: ours where its backups go with it, never that of the older operator. Others' stay.
pub async fn hold(backup: Arc<EtcdBackup>, is_held: bool, deps: &Deps) -> Result<Arc<EtcdBackup>, Error> {
    let stored = backup.finalizers();
    let ours = [FINALIZER_LEGACY_BACKUP, FINALIZER_STORED];
    let mut wanted: Vec<&str> = stored
        .iter()
        .map(String::as_str)
        .filter(|name| !ours.contains(name))
        .collect();
    let has_ours = stored.iter().any(|name| name == FINALIZER_STORED);
    // Nothing can be held any more once it is being deleted.
    if is_held && (has_ours || backup.metadata.deletion_timestamp.is_none()) {
        wanted.push(FINALIZER_STORED);
    }
    let unchanged =
        stored.len() == wanted.len() && wanted.iter().all(|name| stored.iter().any(|s| s == name));
    if unchanged {
        return Ok(backup);
    }
    match deps.applier.set_finalizers(&*backup, &wanted).await? {
        Written::Changed(now) => Ok(Arc::new(now)),
        Written::Unchanged => Ok(backup),
    }
}
