//! Has a Job start the etcd image of a changed template with `etcd --version`, before the template changes. The Job and its pod say
//! by themselves how far that is, so nothing is stored: one that is gone is made again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::names::ANNOTATION_IMAGE_CHECK;
use etcd_operator_api::severity::Severity;
use etcd_operator_cluster_core::observed_state::{ImageCheck, read_image_check};
use etcd_operator_runtime::apply::Error as ApplyError;
use etcd_operator_runtime::key::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::Reconciler;
use crate::act::Error;
use crate::observe::is_owned;

/// For how long an image counts as bad, or a Job as held up, before the Job is asked again.
const COUNTS_FOR: SignedDuration = SignedDuration::from_secs(15);

/// The label in which the controller of Jobs names the Job of a pod.
const LABEL_JOB_NAME: &str = "job-name";

/// What the Jobs said last, so that they are not asked all the time; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ImageChecks(Arc<Mutex<BTreeMap<ObjectKey, LastCheck>>>);

/// What the Job of one cluster said last.
#[derive(Clone, Debug)]
struct LastCheck {
    at: Timestamp,
    job: ObjectKey,
    /// What the Job is for.
    content: String,
    found: ImageCheck,
}

impl ImageChecks {
    /// Forgets a cluster, and tells which Job of it was asked.
    pub fn forget(&self, key: &ObjectKey) -> Option<ObjectKey> {
        self.lock().remove(key).map(|last| last.job)
    }

    /// What the same Job said a moment ago. One that was skipped is not tried again. `None` if the Job must be asked.
    fn recent(&self, key: &ObjectKey, content: &str, now: Timestamp) -> Option<ImageCheck> {
        let checks = self.lock();
        let last = checks.get(key).filter(|last| last.content == content)?;
        let counts = match &last.found {
            ImageCheck::Skipped { .. } => true,
            ImageCheck::Failed(_) | ImageCheck::Running { waits: Some(_) } => {
                now.duration_since(last.at) < COUNTS_FOR
            }
            ImageCheck::NotAsked | ImageCheck::Passed | ImageCheck::Running { waits: None } => false,
        };
        counts.then(|| last.found.clone())
    }

    fn record(&self, key: &ObjectKey, last: LastCheck) {
        self.lock().insert(key.clone(), last);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, LastCheck>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconciler {
    /// What the Job says, which is created if there is none.
    pub(super) async fn check_image(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        job: &Job,
    ) -> Result<ImageCheck, Error> {
        let content = content(job).unwrap_or_default();
        if let Some(found) = self.image_checks.recent(key, content, self.deps.clock.now()) {
            return Ok(found);
        }
        let found = match self.ask_job(cluster, job).await {
            Ok(found) => found,
            Err(error) => from_failure(error)?,
        };
        if let ImageCheck::Skipped { why } = &found {
            // Its pod could take the place in a full quota that the first restarted member leaves.
            self.delete_job(&ObjectKey::of(job), cluster).await?;
            let text = format!(
                "The new etcd image was not tried before the rollout: {}.",
                why.trim_end_matches('.')
            );
            let (reason, severity) = ("ImageNotChecked", Severity::Warning);
            self.deps
                .reporter
                .tell(cluster, severity, reason, "Reconcile", text);
        }
        let last = LastCheck {
            at: self.deps.clock.now(),
            job: ObjectKey::of(job),
            content: content.to_owned(),
            found: found.clone(),
        };
        self.image_checks.record(key, last);
        Ok(found)
    }

    /// Deletes the Job of an image that is not wanted any more.
    pub(super) async fn end_image_check(&self, key: &ObjectKey, cluster: &EtcdCluster) -> Result<(), Error> {
        match self.image_checks.forget(key) {
            Some(job) => self.delete_job(&job, cluster).await,
            None => Ok(()),
        }
    }

    /// Deletes a Job of this cluster if there is one. If that fails it ends by itself.
    async fn delete_job(&self, job: &ObjectKey, cluster: &EtcdCluster) -> Result<(), Error> {
        let applier = &self.deps.applier;
        let delete = async {
            let stored = applier.read::<Job>(job).await?;
            let stored = stored.filter(|stored| is_owned(stored, uid_of(cluster)));
            match stored.and_then(|stored| stored.metadata.uid) {
                Some(uid) => applier.delete_uid::<Job>(job, &uid, None).await,
                None => Ok(()),
            }
        };
        match delete.await {
            Err(error @ ApplyError::NotLeading(_)) => Err(error.into()),
            Err(error) => {
                tracing::warn!(%job, %error, "the Job of an etcd image is not deleted");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    async fn ask_job(&self, cluster: &EtcdCluster, job: &Job) -> Result<ImageCheck, ApplyError> {
        let applier = &self.deps.applier;
        let key = ObjectKey::of(job);
        let waits = |why: String| ImageCheck::Running { waits: Some(why) };
        let Some(stored) = applier.read::<Job>(&key).await? else {
            applier.create(job).await?;
            return Ok(ImageCheck::Running { waits: None });
        };
        if !is_owned(&stored, uid_of(cluster)) {
            return Ok(waits(format!(
                "Job {} exists and belongs to another owner, delete it",
                key.name
            )));
        }
        if stored.metadata.deletion_timestamp.is_some() {
            return Ok(waits(format!("Job {} is being deleted", key.name)));
        }
        let found = if content(&stored) == content(job) {
            let selector = format!("{LABEL_JOB_NAME}={}", key.name);
            let pods = applier.list_labelled::<Pod>(&key.namespace, &selector).await?;
            read_image_check(&stored, &pods, self.deps.clock.now())
        } else {
            // It tries an earlier image.
            None
        };
        if let Some(found) = found {
            return Ok(found);
        }
        let deleted = match stored.metadata.uid.as_deref() {
            Some(uid) => applier.delete_uid::<Job>(&key, uid, None).await,
            None => Ok(()),
        };
        match deleted {
            Ok(()) => Ok(ImageCheck::Running { waits: None }),
            // What the Job found may be the reason why it is not skipped.
            Err(error) if error.status().is_some() => Ok(waits(error.to_string())),
            Err(error) => Err(error),
        }
    }
}

/// What a Job is for.
fn content(job: &Job) -> Option<&str> {
    let annotations = job.metadata.annotations.as_ref()?;
    annotations.get(ANNOTATION_IMAGE_CHECK).map(String::as_str)
}

fn uid_of(cluster: &EtcdCluster) -> &str {
    cluster.metadata.uid.as_deref().unwrap_or_default()
}

/// What follows where the API server refuses a call, or does not answer. An error only if this process is not the leader or the Job
/// cannot be sent.
fn from_failure(error: ApplyError) -> Result<ImageCheck, ApplyError> {
    if matches!(error, ApplyError::NotLeading(_) | ApplyError::Unwritable { .. }) {
        return Err(error);
    }
    let why = error.to_string();
    Ok(match error.status().map(|status| status.code) {
        // It does not judge the Job: no login, too slow, another write at the same time, too many requests, a webhook that is away.
        None | Some(401 | 408 | 409 | 429 | 500..) => ImageCheck::Running { waits: Some(why) },
        Some(_) => ImageCheck::Skipped { why },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use etcd_operator_cluster_core::observed_state::ImageProblem;

    #[test]
    fn a_job_is_asked_again_after_a_moment_at_once_while_it_runs_and_never_once_it_was_skipped() {
        let checks = ImageChecks::default();
        let key = ObjectKey::new("ns", "c");
        let job = ObjectKey::new("ns", "c-image-1");
        let start: Timestamp = "2026-01-01T01:00:00Z".parse().expect("a time");
        let failed = ImageCheck::Failed(ImageProblem::NotRunning {
            text: "it is not there".to_owned(),
        });
        let waits = ImageCheck::Running {
            waits: Some("a webhook is away".to_owned()),
        };
        let skipped = ImageCheck::Skipped {
            why: "quota".to_owned(),
        };
        let running = ImageCheck::Running { waits: None };
        for (found, for_seconds) in [
            (failed, 14),
            (waits, 14),
            (skipped, 100_000),
            (running, -1),
            (ImageCheck::Passed, -1),
        ] {
            let last = LastCheck {
                at: start,
                job: job.clone(),
                content: "a".to_owned(),
                found: found.clone(),
            };
            checks.record(&key, last);
            for seconds in [0, 14, 15, 100_000] {
                let now = start + SignedDuration::from_secs(seconds);
                let expected = (seconds <= for_seconds).then(|| found.clone());
                assert_eq!(checks.recent(&key, "a", now), expected, "{seconds}");
                assert_eq!(checks.recent(&key, "b", now), None, "another image");
            }
        }
        assert_eq!(checks.forget(&key), Some(job));
        assert_eq!(checks.forget(&key), None);
    }
}
