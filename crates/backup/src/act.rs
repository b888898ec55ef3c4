//! Carries out a plan that is persisted: creates and deletes Jobs and sets finalizers. Every call can be repeated.

use std::sync::Arc;

use etcd_operator_api::EtcdBackup;
use etcd_operator_api::names::{FINALIZER_LEGACY_BACKUP, FINALIZER_STORED};
use etcd_operator_api::refusal::bounded;
use etcd_operator_runtime::apply::{Error, Introduced, Written};
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::core::Status;

use crate::build::{self, BuildInputs};
use crate::observe::{held_objects, is_owned};
use crate::observed_state::{ObservedBackup, ResolvedSource};
use crate::persisted_state::{PersistedState, Run, Task};
use crate::plan::JobDeletion;
use crate::reconcile::Deps;

/// The outcome of creating a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobCreation {
    /// The Job was created now.
    Created,
    /// The Job existed already.
    Existed,
    /// A Job of this name exists and has another owner.
    NameTaken,
    /// The namespace is being deleted and accepts no new objects.
    NamespaceTerminating,
    /// The API server rejects the Job because of a quota, a policy or a field. Holds its message.
    Rejected(String),
}

/// Creates the Job of a persisted run; a repeated call finds it and returns `Existed`. A rejection by the API server is
/// a `JobCreation`, so `Err` stands for what a retry of the reconcile may cure.
pub async fn create_job(
    run: &Run,
    observed: &ObservedBackup,
    image: &str,
    deps: &Deps,
) -> Result<JobCreation, Error> {
    let no_source = ResolvedSource::default();
    let mut retention = observed.desired.retention.clone();
    if run.task == Task::Prune {
        // Read as late as possible: a restore that selects its backup later makes the Job outdated.
        retention.held = held_objects(&ObjectKey::new(&observed.namespace, &observed.name), deps);
    }
    let inputs = BuildInputs {
        desired: &observed.desired,
        namespace: &observed.namespace,
        name: &observed.name,
        uid: &observed.uid,
        generation: observed.generation,
        retention: &retention,
        source: observed.source.as_ref().unwrap_or(&no_source),
        image,
        now: observed.now,
    };
    match deps.applier.introduce(&build::job(run, &inputs)).await {
        Ok(Introduced::Created(_)) => Ok(JobCreation::Created),
        Ok(Introduced::There(job)) if is_owned(&job, &observed.uid) => Ok(JobCreation::Existed),
        Ok(Introduced::There(_)) => Ok(JobCreation::NameTaken),
        Err(error) => match rejection(&error) {
            Some(status) if is_namespace_terminating(status) => Ok(JobCreation::NamespaceTerminating),
            Some(status) => Ok(JobCreation::Rejected(bounded(&status.message, 400))),
            None => Err(error),
        },
    }
}

/// The API server's answer, if it rejects the object so that an immediate retry does not help: 400, 403 or 422. `None`
/// for all other errors, such as a conflict or an outage.
fn rejection(error: &Error) -> Option<&Status> {
    let Error::Api { source, .. } = error else {
        return None;
    };
    match &**source {
        kube::Error::Api(status) if [400, 403, 422].contains(&status.code) => Some(status),
        _ => None,
    }
}

/// Whether the API server rejects an object because its namespace is being deleted.
fn is_namespace_terminating(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403
        && (causes.any(|cause| cause.reason == "NamespaceTerminating")
            || status.message.contains("is being terminated"))
}

/// Deletes Jobs that no run needs. It reads the object from the API server first, as the informer's copy may be older
/// than the persisted state. A Job that the newer state needs stays.
pub async fn delete_jobs(jobs: &[JobDeletion], backup: &EtcdBackup, deps: &Deps) -> Result<(), Error> {
    if jobs.is_empty() {
        return Ok(());
    }
    let key = ObjectKey::of(backup);
    let current = deps.applier.read::<EtcdBackup>(&key).await?;
    let current = current.filter(|current| current.uid() == backup.uid());
    let persisted = PersistedState::read(current.as_ref().and_then(|current| current.status.as_ref()));
    let is_being_deleted = current.is_none_or(|current| current.metadata.deletion_timestamp.is_some());
    for job in jobs {
        let run = persisted
            .runs
            .iter()
            .find(|run| run.job_name(&key.name) == job.name);
        let is_needed = match run {
            None => !is_being_deleted && persisted.is_job_of_unknown_run(&job.name),
            Some(run) => !(job.is_replaced && run.job_uid.as_ref().is_none_or(|uid| *uid == job.uid)),
        };
        if !is_needed {
            let name = key.beside(&job.name);
            deps.applier.delete_uid::<Job>(&name, &job.uid, None).await?;
        }
    }
    Ok(())
}

/// Adds or removes our finalizer, and removes that of the ancestor operator. Finalizers of others stay. An object that
/// is being deleted gets none, as Kubernetes would reject it. Returns the object as it is stored now.
pub async fn set_finalizer(
    backup: Arc<EtcdBackup>,
    is_wanted: bool,
    deps: &Deps,
) -> Result<Arc<EtcdBackup>, Error> {
    let stored = backup.finalizers();
    let ours = [FINALIZER_LEGACY_BACKUP, FINALIZER_STORED];
    let mut wanted: Vec<&str> = stored
        .iter()
        .map(String::as_str)
        .filter(|name| !ours.contains(name))
        .collect();
    let has_ours = stored.iter().any(|name| name == FINALIZER_STORED);
    // Kubernetes accepts no new finalizer on an object that is being deleted.
    if is_wanted && (has_ours || backup.metadata.deletion_timestamp.is_none()) {
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
