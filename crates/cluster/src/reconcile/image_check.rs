//! Has a Job start the etcd image of a changed template with `etcd --version`, before the template changes. The Job says by itself
//! how far that is, so nothing is stored: one that is gone is made again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::severity::Severity;
use etcd_operator_cluster_core::observed_state::{ImageCheck, read_image_check};
use etcd_operator_runtime::apply::Error as ApplyError;
use etcd_operator_runtime::key::ObjectKey;
use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::Reconciler;
use crate::act::Error;
use crate::observe::is_owned;

/// How old a Job must be that has failed before another one takes its place: the image may have been corrected in the registry.
const RETRY_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// The label in which the controller of Jobs names the Job of a pod.
const LABEL_JOB_NAME: &str = "job-name";

/// What was last found out of new images that did not pass; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ImageChecks(Arc<Mutex<BTreeMap<ObjectKey, LastCheck>>>);

/// The last Job of one cluster that did not pass.
#[derive(Clone, Debug)]
struct LastCheck {
    job: String,
    found: ImageCheck,
}

impl ImageChecks {
    /// Forgets a cluster whose image is not to be tried any more.
    pub fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// Why the Job of this name is not asked any more, if it was found that it cannot tell.
    fn skipped(&self, key: &ObjectKey, job: &str) -> Option<ImageCheck> {
        let checks = self.lock();
        let last = checks.get(key).filter(|last| last.job == job)?;
        matches!(last.found, ImageCheck::Skipped { .. }).then(|| last.found.clone())
    }

    /// What is known now. A failure stands until another Job of this name has told something else.
    fn settle(&self, key: &ObjectKey, job: &str, found: ImageCheck) -> ImageCheck {
        let mut checks = self.lock();
        let last = checks.get(key).filter(|last| last.job == job);
        let failed = last.filter(|last| matches!(last.found, ImageCheck::Failed(_)));
        let found = match (failed, found) {
            (Some(failed), ImageCheck::Running { .. } | ImageCheck::Skipped { .. }) => failed.found.clone(),
            (_, found) => found,
        };
        if matches!(found, ImageCheck::Skipped { .. } | ImageCheck::Failed(_)) {
            let last = LastCheck {
                job: job.to_owned(),
                found: found.clone(),
            };
            checks.insert(key.clone(), last);
        } else {
            checks.remove(key);
        }
        found
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
        let name = job.metadata.name.as_deref().unwrap_or_default();
        if let Some(skipped) = self.image_checks.skipped(key, name) {
            return Ok(skipped);
        }
        let found = match self.ask_job(cluster, job).await {
            Ok(found) => found,
            Err(error @ (ApplyError::NotLeading(_) | ApplyError::Unwritable { .. })) => {
                return Err(error.into());
            }
            Err(error) => from_failure(&error),
        };
        let found = self.image_checks.settle(key, name, found);
        if let ImageCheck::Skipped { why } = &found {
            let text = format!(
                "The new etcd image was not tried before the rollout: {}.",
                why.trim_end_matches('.')
            );
            let (reason, severity) = ("ImageNotChecked", Severity::Warning);
            self.deps
                .reporter
                .tell(cluster, severity, reason, "Reconcile", text);
        }
        Ok(found)
    }

    async fn ask_job(&self, cluster: &EtcdCluster, job: &Job) -> Result<ImageCheck, ApplyError> {
        let applier = &self.deps.applier;
        let key = ObjectKey::of(job);
        let Some(stored) = applier.read::<Job>(&key).await? else {
            applier.create(job).await?;
            return Ok(ImageCheck::Running { waits: None });
        };
        let waits = |why: String| ImageCheck::Running { waits: Some(why) };
        if !is_owned(&stored, cluster.metadata.uid.as_deref().unwrap_or_default()) {
            let why = format!("Job {} exists and belongs to another owner", key.name);
            return Ok(ImageCheck::Skipped { why });
        }
        if stored.metadata.deletion_timestamp.is_some() {
            return Ok(waits(format!("Job {} is being deleted", key.name)));
        }
        let selector = format!("{LABEL_JOB_NAME}={}", key.name);
        let pods = applier.list_labelled::<Pod>(&key.namespace, &selector).await?;
        let now = self.deps.clock.now();
        let found = read_image_check(&stored, &pods, now);
        let is_over = match &found {
            // Its pod could take the place in a full quota that the first restarted member leaves.
            Some(ImageCheck::Skipped { .. }) => true,
            None | Some(ImageCheck::Failed(_)) => {
                let created = stored.metadata.creation_timestamp.as_ref();
                created.is_none_or(|created| now.duration_since(created.0) >= RETRY_AFTER)
            }
            Some(_) => false,
        };
        if let Some(uid) = stored.metadata.uid.as_deref().filter(|_| is_over) {
            applier.delete_uid::<Job>(&key, uid, None).await?;
        }
        Ok(found.unwrap_or_else(|| {
            waits(format!(
                "the pod of Job {} was stopped, another one follows",
                key.name
            ))
        }))
    }
}

/// What follows where the API server refuses a call, or does not answer.
fn from_failure(error: &ApplyError) -> ImageCheck {
    let why = error.to_string();
    match error.status().map(|status| status.code) {
        // It does not judge the Job: no login, too slow, another write at the same time, too many requests, a webhook that is away.
        None | Some(401 | 408 | 409 | 429 | 500..) => ImageCheck::Running { waits: Some(why) },
        Some(_) => ImageCheck::Skipped { why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etcd_operator_cluster_core::observed_state::ImageProblem;

    #[test]
    fn a_failure_stands_while_the_image_is_tried_again_and_a_skip_until_another_image_comes() {
        let checks = ImageChecks::default();
        let key = ObjectKey::new("ns", "c");
        let running = || ImageCheck::Running { waits: None };
        let failed = || {
            ImageCheck::Failed(ImageProblem::NotRunning {
                text: "it is not there".to_owned(),
            })
        };
        assert_eq!(checks.settle(&key, "a", running()), running());
        assert_eq!(checks.settle(&key, "a", failed()), failed());
        assert_eq!(checks.settle(&key, "a", running()), failed(), "once more");
        let skipped = || ImageCheck::Skipped {
            why: "quota".to_owned(),
        };
        assert_eq!(
            checks.settle(&key, "a", skipped()),
            failed(),
            "what was found bad is not let through because it cannot be tried again"
        );
        assert_eq!(checks.skipped(&key, "a"), None);
        assert_eq!(checks.settle(&key, "b", running()), running(), "another image");
        checks.settle(&key, "b", failed());
        assert_eq!(checks.settle(&key, "b", ImageCheck::Passed), ImageCheck::Passed);
        assert_eq!(checks.settle(&key, "b", running()), running());
        assert_eq!(checks.settle(&key, "b", skipped()), skipped());
        assert_eq!(
            checks.skipped(&key, "b"),
            Some(skipped()),
            "it is not tried once more"
        );
        assert_eq!(checks.skipped(&key, "c"), None, "another image is");
        checks.forget(&key);
        assert_eq!(checks.skipped(&key, "b"), None);
    }
}
