//! Has a Job start the etcd image of a changed template with `etcd --version`, before the template changes. That an image cannot be
//! used is stored in the status; until then the Job and its pod say by themselves how far that is, and one that is gone is made again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::names::ANNOTATION_IMAGE_CHECK;
use etcd_operator_api::severity::Severity;
use etcd_operator_cluster_core::observed_state::{ImageCheck, ImageJob, read_image_job};
use etcd_operator_runtime::apply::Error as ApplyError;
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::Reconciler;
use crate::act::Error;
use crate::observe::is_owned;

/// How long a quota or the scheduler may hold the Job up before the check is skipped.
const HELD_UP_FOR: Duration = Duration::from_mins(2);
/// How soon a Job usually has a pod, and that a node.
const USUALLY_WITHIN: Duration = Duration::from_secs(10);
/// After what time a Job that waits is asked again.
const ASKED_EVERY: Duration = Duration::from_secs(15);
/// How much of the time between two looks counts at most: as long as a cluster is usually left alone.
const LOOK_COUNTS_FOR: Duration = Duration::from_secs(30);
/// After what time without a look at a Job nothing counts of what was seen before.
const REMEMBERED_FOR: Duration = Duration::from_hours(1);
/// For how long a check that was skipped is not made: a rollout may still wait for a backup or its turn.
const SKIPPED_FOR: Duration = Duration::from_hours(1);

/// The label in which the controller of Jobs names the Job of a pod.
const LABEL_JOB_NAME: &str = "job-name";

/// What the Jobs said last, so that they are not asked all the time; cheap to clone. A process that begins anew knows none, and
/// waits for two minutes again before it skips one.
#[derive(Clone, Debug, Default)]
pub struct ImageChecks(Arc<Mutex<BTreeMap<ObjectKey, LastCheck>>>);

/// What the Job of one cluster said last.
#[derive(Clone, Debug)]
struct LastCheck {
    /// When it was asked, by the clock that never goes back.
    at: Duration,
    job: ObjectKey,
    /// What the Job is for.
    content: String,
    /// For how long this Job and those before it had no pod or no node. Between two reads that are far apart, as while the cluster waits
    /// for the rollouts of others, the Job may have had one: `LOOK_COUNTS_FOR` of that counts at most.
    held_up_for: Option<Duration>,
    found: ImageCheck,
}

impl ImageChecks {
    /// Forgets a cluster, and tells which Job of it was asked.
    pub fn forget(&self, key: &ObjectKey) -> Option<ObjectKey> {
        self.lock().remove(key).map(|last| last.job)
    }

    /// What the same Job said a moment ago. `None` if the Job must be asked.
    fn recent(&self, key: &ObjectKey, content: &str, now: Duration) -> Option<ImageCheck> {
        let checks = self.lock();
        let last = checks.get(key).filter(|last| last.content == content)?;
        let counts_for = match &last.found {
            ImageCheck::Skipped { .. } => SKIPPED_FOR,
            ImageCheck::Running { waits: Some(_) } => ASKED_EVERY,
            _ => return None,
        };
        (now.saturating_sub(last.at) < counts_for).then(|| last.found.clone())
    }

    /// What follows from what the Job says. An image that is known to be bad stays so while the Job is held up.
    fn settle(
        &self,
        key: &ObjectKey,
        job: &Job,
        says: ImageJob,
        is_known: bool,
        now: Duration,
    ) -> ImageCheck {
        let content = content(job).unwrap_or_default();
        let mut checks = self.lock();
        let last = checks.get(key).filter(|last| last.content == content);
        let last = last.filter(|last| now.saturating_sub(last.at) < REMEMBERED_FOR);
        let before = last.and_then(|last| Some((last.at, last.held_up_for?)));
        let (found, held_up_for) = match says {
            ImageJob::Passed => (ImageCheck::Passed, None),
            ImageJob::Failed(problem) => (ImageCheck::Failed(problem), None),
            // A Job that takes the place of another may be held up as well, but has the time to get a pod.
            ImageJob::Begins => {
                let kept = before.map(|(_, waited)| waited.min(HELD_UP_FOR.saturating_sub(LOOK_COUNTS_FOR)));
                (ImageCheck::Running { waits: None }, kept)
            }
            ImageJob::Running { waits: None } => (ImageCheck::Running { waits: None }, None),
            ImageJob::Running { waits } if !is_known => (ImageCheck::Running { waits }, None),
            ImageJob::Unknown { why } if !is_known => (
                ImageCheck::Running { waits: Some(why) },
                before.map(|(_, waited)| waited),
            ),
            ImageJob::HeldUp { why } | ImageJob::Unknown { why } | ImageJob::Running { waits: Some(why) } => {
                let waited = before.map_or(Duration::ZERO, |(at, waited)| {
                    waited.saturating_add(now.saturating_sub(at).min(LOOK_COUNTS_FOR))
                });
                if waited < HELD_UP_FOR {
                    let waits = (waited >= USUALLY_WITHIN).then_some(why);
                    (ImageCheck::Running { waits }, Some(waited))
                } else if is_known {
                    (ImageCheck::NotTried { why }, None)
                } else {
                    (ImageCheck::Skipped { why }, None)
                }
            }
        };
        let last = LastCheck {
            at: now,
            job: ObjectKey::of(job),
            content: content.to_owned(),
            held_up_for,
            found: found.clone(),
        };
        checks.insert(key.clone(), last);
        found
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, LastCheck>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconciler {
    /// What the Job says, which is created if there is none; `is_known` says whether an earlier one found the image bad.
    pub(super) async fn check_image(
        &self,
        key: &ObjectKey,
        cluster: &EtcdCluster,
        job: &Job,
        is_known: bool,
    ) -> Result<ImageCheck, Error> {
        let now = self.deps.clock.elapsed();
        let content = content(job).unwrap_or_default();
        if let Some(found) = self.image_checks.recent(key, content, now) {
            return Ok(found);
        }
        let says = match self.ask_job(cluster, job).await {
            Ok(says) => says,
            Err(error @ (ApplyError::NotLeading(_) | ApplyError::Unwritable { .. })) => {
                return Err(error.into());
            }
            Err(error) if is_refused(&error) => ImageJob::HeldUp {
                why: error.to_string(),
            },
            // What cannot be read says nothing about the image.
            Err(error) => {
                tracing::warn!(%key, %error, "the Job of an etcd image cannot be asked");
                ImageJob::Unknown {
                    why: error.to_string(),
                }
            }
        };
        let found = self.image_checks.settle(key, job, says, is_known, now);
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
        Ok(found)
    }

    /// Deletes the Job of an image that is not wanted any more, or whose problem is stored in the status by now: its pod could take
    /// the place of a member in a quota.
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

    async fn ask_job(&self, cluster: &EtcdCluster, job: &Job) -> Result<ImageJob, ApplyError> {
        let applier = &self.deps.applier;
        let key = ObjectKey::of(job);
        let unknown = |why: String| ImageJob::Unknown { why };
        let Some(stored) = applier.read::<Job>(&key).await? else {
            applier.create(job).await?;
            return Ok(ImageJob::Begins);
        };
        if !is_owned(&stored, uid_of(cluster)) {
            return Ok(unknown(format!(
                "Job {} exists and belongs to another owner, delete it",
                key.name
            )));
        }
        if stored.metadata.deletion_timestamp.is_some() {
            return Ok(unknown(format!("Job {} is being deleted", key.name)));
        }
        let says = if content(&stored) == content(job) {
            let selector = format!("{LABEL_JOB_NAME}={}", key.name);
            let pods = applier.list_labelled::<Pod>(&key.namespace, &selector).await?;
            read_image_job(&stored, &pods, self.deps.clock.now())
        } else {
            // It tries an earlier image.
            ImageJob::Begins
        };
        if let (ImageJob::Begins, Some(uid)) = (&says, &stored.metadata.uid) {
            applier.delete_uid::<Job>(&key, uid, None).await?;
        }
        Ok(says)
    }
}

/// Whether the API server refuses a call for good: a quota of Jobs, a policy or a missing right.
fn is_refused(error: &ApplyError) -> bool {
    error.status().is_some() && error.is_refusal()
}

/// What a Job is for.
fn content(job: &Job) -> Option<&str> {
    let annotations = job.metadata.annotations.as_ref()?;
    annotations.get(ANNOTATION_IMAGE_CHECK).map(String::as_str)
}

fn uid_of(cluster: &EtcdCluster) -> &str {
    cluster.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use etcd_operator_cluster_core::observed_state::ImageProblem;
    use serde_json::json;

    use super::*;

    const START: Duration = Duration::from_hours(1);

    fn job(content: &str) -> Job {
        serde_json::from_value(json!({
            "metadata": {"name": "c-image-1", "namespace": "ns", "annotations": {ANNOTATION_IMAGE_CHECK: content}},
        }))
        .expect("a Job")
    }

    fn problem() -> ImageProblem {
        ImageProblem::NotRunning {
            text: "it is not there".to_owned(),
        }
    }

    fn held_up() -> ImageJob {
        ImageJob::HeldUp {
            why: "a quota".to_owned(),
        }
    }

    fn held_up_at(checks: &ImageChecks, key: &ObjectKey, is_known: bool, seconds: u64) -> ImageCheck {
        let now = START + Duration::from_secs(seconds);
        checks.settle(key, &job("a"), held_up(), is_known, now)
    }

    #[test]
    fn a_job_that_waits_is_asked_again_after_a_moment_and_one_that_was_skipped_after_an_hour() {
        let checks = ImageChecks::default();
        let key = ObjectKey::new("ns", "c");
        let is_recent = |content: &str, seconds| {
            checks
                .recent(&key, content, START + Duration::from_secs(seconds))
                .is_some()
        };
        let waits = ImageJob::Running {
            waits: Some("a webhook is away".to_owned()),
        };
        checks.settle(&key, &job("a"), waits, false, START);
        assert!(is_recent("a", 14) && !is_recent("a", 15) && !is_recent("b", 0));
        for says in [
            ImageJob::Running { waits: None },
            ImageJob::Begins,
            ImageJob::Passed,
            ImageJob::Failed(problem()),
        ] {
            checks.settle(&key, &job("a"), says, false, START);
            assert!(!is_recent("a", 0));
        }
        for seconds in (0..120).step_by(15) {
            held_up_at(&checks, &key, false, seconds);
        }
        let skipped = held_up_at(&checks, &key, false, 120);
        assert!(matches!(skipped, ImageCheck::Skipped { .. }));
        assert!(is_recent("a", 3719) && !is_recent("a", 3720) && !is_recent("b", 0));
        assert_eq!(checks.forget(&key), Some(ObjectKey::new("ns", "c-image-1")));
        assert_eq!(checks.forget(&key), None);
    }

    #[test]
    fn a_job_that_was_seen_to_be_held_up_for_two_minutes_is_skipped() {
        let checks = ImageChecks::default();
        let key = ObjectKey::new("ns", "c");
        let settle = |content: &str, says: ImageJob, seconds| {
            checks.settle(
                &key,
                &job(content),
                says,
                false,
                START + Duration::from_secs(seconds),
            )
        };
        let waits = |why: Option<&str>| ImageCheck::Running {
            waits: why.map(str::to_owned),
        };
        assert_eq!(settle("a", held_up(), 0), waits(None));
        for seconds in (15..120).step_by(15) {
            assert_eq!(settle("a", held_up(), seconds), waits(Some("a quota")));
        }
        assert_eq!(settle("a", held_up(), 119), waits(Some("a quota")));
        let running = ImageJob::Running { waits: None };
        assert_eq!(settle("a", running, 121), waits(None));
        assert_eq!(settle("a", held_up(), 122), waits(None), "it had a pod meanwhile");
        assert_eq!(settle("b", held_up(), 300), waits(None), "another image");
        // Others have the turns, so it is seen only now and then, when another Job has taken its place: each look counts for a moment.
        for look in 1..4 {
            let seconds = 300 + 1800 * look;
            // The one before is deleted, and another one created.
            for _ in 0..2 {
                assert_eq!(settle("b", ImageJob::Begins, seconds), waits(None));
            }
            assert_eq!(settle("b", held_up(), seconds + 30), waits(Some("a quota")));
        }
        settle("b", ImageJob::Begins, 300 + 1800 * 4);
        let skipped = settle("b", held_up(), 330 + 1800 * 4);
        assert!(matches!(skipped, ImageCheck::Skipped { .. }));
    }

    #[test]
    fn another_job_has_half_a_minute_to_get_a_pod_however_long_the_one_before_was_held_up() {
        let checks = ImageChecks::default();
        let key = ObjectKey::new("ns", "c");
        for seconds in [0, 30, 60, 90, 119] {
            held_up_at(&checks, &key, false, seconds);
        }
        let now = START + Duration::from_secs(700);
        checks.settle(&key, &job("a"), ImageJob::Begins, false, now);
        let soon = held_up_at(&checks, &key, false, 715);
        assert!(matches!(soon, ImageCheck::Running { .. }), "{soon:?}");
        let later = held_up_at(&checks, &key, false, 730);
        assert!(matches!(later, ImageCheck::Skipped { .. }), "{later:?}");
    }

    #[test]
    fn what_was_held_up_long_ago_does_not_count() {
        let checks = ImageChecks::default();
        let key = ObjectKey::new("ns", "c");
        for seconds in [0, 30, 60, 90, 90 + 3600] {
            let found = held_up_at(&checks, &key, false, seconds);
            assert!(
                matches!(found, ImageCheck::Running { .. }),
                "{seconds}: {found:?}"
            );
        }
        let found = held_up_at(&checks, &key, false, 120 + 3600);
        assert!(matches!(found, ImageCheck::Running { .. }), "{found:?}");
    }

    #[test]
    fn an_image_that_is_known_to_be_bad_is_never_skipped() {
        let checks = ImageChecks::default();
        let key = ObjectKey::new("ns", "c");
        for seconds in (0..120).step_by(15) {
            held_up_at(&checks, &key, true, seconds);
        }
        let still_known = held_up_at(&checks, &key, true, 120);
        assert!(matches!(still_known, ImageCheck::NotTried { .. }));
    }

    #[test]
    fn what_tells_nothing_skips_nothing_and_ends_another_try_of_a_bad_image() {
        let checks = ImageChecks::default();
        let why = || "no answer, or the node hangs".to_owned();
        let after_two_minutes = |name: &str, says: &ImageJob, is_known: bool| {
            let key = ObjectKey::new("ns", name);
            let settle = |look: u64| {
                let now = START + Duration::from_secs(15 * look);
                checks.settle(&key, &job("a"), says.clone(), is_known, now)
            };
            for look in 0..8 {
                settle(look);
            }
            settle(8)
        };
        for (name, says) in [
            ("unreachable", ImageJob::Unknown { why: why() }),
            ("hangs", ImageJob::Running { waits: Some(why()) }),
        ] {
            let unknown = after_two_minutes(&format!("new-{name}"), &says, false);
            assert_eq!(unknown, ImageCheck::Running { waits: Some(why()) });
            let known = after_two_minutes(&format!("bad-{name}"), &says, true);
            assert_eq!(known, ImageCheck::NotTried { why: why() });
        }
    }
}
