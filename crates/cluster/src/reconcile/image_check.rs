//! Has a Job start the etcd image of a changed template with `etcd --version`, before the template changes. The Job says by itself
//! how far that is, so nothing is stored: one that is gone is made again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_operator_api::EtcdCluster;
use etcd_operator_runtime::apply::Error as ApplyError;
use etcd_operator_runtime::events::Severity;
use etcd_operator_runtime::key::ObjectKey;
use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::Reconciler;
use crate::act::Error;
use crate::observe::is_owned;
use crate::observed_state::{ImageCheck, read_image_check};

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

    /// What is known now. A failure stands until another Job of this name has told something else. Also says whether it is news that
    /// the check is skipped.
    fn settle(&self, key: &ObjectKey, job: &str, found: ImageCheck) -> (ImageCheck, bool) {
        let mut checks = self.lock();
        let last = checks
            .get(key)
            .filter(|last| last.job == job)
            .map(|last| last.found.clone());
        let found = match (last.clone(), found) {
            (
                Some(failed @ ImageCheck::Failed(_)),
                ImageCheck::Running { .. } | ImageCheck::Skipped { .. },
            ) => failed,
            (_, found) => found,
        };
        let was_skipped = matches!(last, Some(ImageCheck::Skipped { .. }));
        let is_skipped = matches!(found, ImageCheck::Skipped { .. });
        if is_skipped || matches!(found, ImageCheck::Failed(_)) {
            let last = LastCheck {
                job: job.to_owned(),
                found: found.clone(),
            };
            checks.insert(key.clone(), last);
        } else {
            checks.remove(key);
        }
        (found, is_skipped && !was_skipped)
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
        let found = match self.ask_job(cluster, job).await {
            Ok(found) => found,
            Err(error @ (ApplyError::NotLeading(_) | ApplyError::Unwritable { .. })) => {
                return Err(error.into());
            }
            Err(error) => from_failure(&error),
        };
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let (found, is_skip_news) = self.image_checks.settle(key, name, found);
        if let ImageCheck::Skipped { why } = &found
            && is_skip_news
        {
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
        if matches!(found, None | Some(ImageCheck::Failed(_))) {
            let created = stored.metadata.creation_timestamp.as_ref();
            let is_old = created.is_none_or(|created| now.duration_since(created.0) >= RETRY_AFTER);
            if let Some(uid) = stored.metadata.uid.as_deref().filter(|_| is_old) {
                applier.delete_uid::<Job>(&key, uid, None).await?;
            }
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
    use crate::observed_state::ImageProblem;

    #[test]
    fn a_failure_stands_while_the_image_is_tried_again_and_a_skip_is_told_once() {
        let checks = ImageChecks::default();
        let key = ObjectKey::new("ns", "c");
        let running = || ImageCheck::Running { waits: None };
        let failed = || {
            ImageCheck::Failed(ImageProblem::NotRunning {
                text: "it is not there".to_owned(),
            })
        };
        assert_eq!(checks.settle(&key, "a", running()), (running(), false));
        assert_eq!(checks.settle(&key, "a", failed()), (failed(), false));
        assert_eq!(
            checks.settle(&key, "a", running()),
            (failed(), false),
            "once more"
        );
        let skipped = || ImageCheck::Skipped {
            why: "quota".to_owned(),
        };
        assert_eq!(
            checks.settle(&key, "a", skipped()),
            (failed(), false),
            "what was found bad is not let through because it cannot be tried again"
        );
        assert_eq!(
            checks.settle(&key, "b", running()),
            (running(), false),
            "another image"
        );
        checks.settle(&key, "b", failed());
        assert_eq!(
            checks.settle(&key, "b", ImageCheck::Passed),
            (ImageCheck::Passed, false)
        );
        assert_eq!(checks.settle(&key, "b", running()), (running(), false));
        assert_eq!(checks.settle(&key, "b", skipped()), (skipped(), true));
        assert_eq!(checks.settle(&key, "b", skipped()), (skipped(), false));
    }
}
