//! What is known of the change of the spec that is rolled out to the members, or was last.

use std::fmt;

use etcd_operator_api::cluster::{ImageFailureStatus, RolloutMember, RolloutStatus};
use etcd_operator_api::refusal::bounded;
use etcd_operator_etcd_types::id::RaftIndex;
use etcd_operator_etcd_types::version::Version;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::observed_state::{ImageProblem, Ordinal};

/// How long after the first failure an image is tried again; twice as long after each further one.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(15);
/// The longest time between two tries.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// At most this much of what keeps an image from being tried is kept.
const MAX_WHY_CHARS: usize = 400;

/// The change that is rolled out, or was last. Without one, an earlier operator that rolled nothing out has managed the
/// cluster: what is pending waits until the spec is edited or a restart is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// The spec hash that members are to have.
    pub spec_hash: String,
    /// The version of etcd that goes with it.
    pub version: String,
    /// The last request by `kubectl rollout restart` that counted.
    pub restarted_at: Option<String>,
    /// The member that is being restarted.
    pub current: Option<RestartedMember>,
    /// Whether setting the version back returns the members to the lower minor version; none before a minor version changes.
    pub reversible: Option<bool>,
    /// The versions of etcd that members go through; none while the version does not change.
    pub path: Option<VersionPath>,
    /// When the change was first seen.
    pub started_at: Timestamp,
    /// When a member was last restarted, or was done.
    pub progressed_at: Timestamp,
    /// When the backup was requested that comes before another minor version.
    pub backup_requested_at: Option<Timestamp>,
    /// Up to where the raft log is filled before another minor version, so that every member has taken a snapshot of it.
    pub log_index: Option<RaftIndex>,
    /// Why the etcd image of the change cannot be used.
    pub image_failure: Option<ImageFailure>,
}

/// Why an etcd image cannot be used, as a Job has found. It counts until a Job has found the opposite, whatever keeps the next one
/// from telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFailure {
    /// The image.
    pub image: String,
    /// The version that it was expected to hold.
    pub version: String,
    /// What is wrong with it.
    pub problem: ImageProblem,
    /// How often it was tried since the spec was edited.
    pub tries: u32,
    /// When it was last tried.
    pub tried_at: Timestamp,
    /// Why the last try told nothing; none if that has found the problem.
    pub retry_failure: Option<String>,
}

impl ImageFailure {
    /// An image that was tried now, after so many tries in vain.
    pub fn found(
        image: &str,
        version: &Version,
        problem: ImageProblem,
        earlier: u32,
        now: Timestamp,
    ) -> Self {
        Self {
            image: image.to_owned(),
            version: version.to_string(),
            problem,
            tries: earlier.saturating_add(1),
            tried_at: whole_seconds(now),
            retry_failure: None,
        }
    }

    /// The same after another try, which could not be made now.
    #[must_use]
    pub fn not_tried(self, why: &str, now: Timestamp) -> Self {
        Self {
            tries: self.tries.saturating_add(1),
            tried_at: whole_seconds(now),
            retry_failure: Some(bounded(why.trim_end_matches('.'), MAX_WHY_CHARS)),
            ..self
        }
    }

    /// The same after an edit of the spec, which may have cured it: it is tried again at once.
    #[must_use]
    pub fn edited(self) -> Self {
        Self {
            tries: 0,
            retry_failure: None,
            ..self
        }
    }

    /// Whether it is time to try it again: the image may have been corrected in the registry. A time that is still to come is of a
    /// clock that was ahead, and tells nothing.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let doublings = self.tries.saturating_sub(1).min(5);
        let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
        let passed = now.duration_since(self.tried_at);
        self.tries == 0 || passed >= pause || passed.is_negative()
    }

    fn read(status: &ImageFailureStatus) -> Option<Self> {
        Some(Self {
            image: status.image.clone(),
            version: status.version.clone(),
            problem: ImageProblem::read(&status.reason, &status.message)?,
            tries: u32::try_from(status.tries).unwrap_or_default(),
            tried_at: status
                .tried_at
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            retry_failure: status.retry_failure.clone(),
        })
    }

    fn write(&self) -> ImageFailureStatus {
        ImageFailureStatus {
            image: self.image.clone(),
            version: self.version.clone(),
            reason: self.problem.reason().to_owned(),
            message: self.problem.text().to_owned(),
            tries: i32::try_from(self.tries).unwrap_or(i32::MAX),
            tried_at: Some(Time(self.tried_at)),
            retry_failure: self.retry_failure.clone(),
        }
    }
}

/// A member that is being restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartedMember {
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// The UID of the pod that goes.
    pub pod: String,
    /// When it was seen to go: an eviction may be refused for long before.
    pub left_at: Option<Timestamp>,
}

/// The versions of etcd that members go through, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionPath {
    /// The version before the change, those on the way, and the one that the spec asks for.
    pub versions: Vec<Version>,
    /// Which change is due or under way, counted from 1: members leave `versions[step - 1]` for `versions[step]`.
    pub step: usize,
}

impl fmt::Display for VersionPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.versions.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join(" → "))?;
        match (texts.len().saturating_sub(1), texts.get(self.step)) {
            (steps @ 2.., Some(next)) => write!(f, ", step {} of {steps}, to {next}", self.step),
            _ => Ok(()),
        }
    }
}

impl VersionPath {
    /// The version that members leave by the change that is due or under way.
    pub fn left(&self) -> Option<&Version> {
        self.versions.get(self.step.checked_sub(1)?)
    }

    fn read(status: &RolloutStatus) -> Option<Self> {
        let versions = status.versions.as_deref()?.iter().map(|text| text.parse());
        Some(Self {
            versions: versions.collect::<Result<_, _>>().ok()?,
            step: usize::try_from(status.step?).ok()?,
        })
    }
}

impl Rollout {
    /// A rollout that begins now. Its times are in whole seconds, as in the status.
    pub fn begin(spec_hash: &str, version: &str, now: Timestamp) -> Self {
        let now = whole_seconds(now);
        Self {
            spec_hash: spec_hash.to_owned(),
            version: version.to_owned(),
            restarted_at: None,
            current: None,
            reversible: None,
            path: None,
            started_at: now,
            progressed_at: now,
            backup_requested_at: None,
            log_index: None,
            image_failure: None,
        }
    }

    /// Whether the template changed, a member was restarted, or one was done, less than this time ago.
    pub fn has_progressed_within(&self, time: SignedDuration, now: Timestamp) -> bool {
        now.duration_since(self.progressed_at) < time
    }

    /// Records the member that is being restarted, or that none is any more. Only a change counts as progress.
    pub fn set_current(&mut self, current: Option<RestartedMember>, now: Timestamp) {
        if self.current != current {
            self.current = current;
            self.set_progressed(now);
        }
    }

    /// Records that the rollout goes on.
    pub fn set_progressed(&mut self, now: Timestamp) {
        self.progressed_at = whole_seconds(now);
    }

    /// Records when the pod of the member that is being restarted went. A second call changes nothing.
    pub fn set_left(&mut self, now: Timestamp) {
        if let Some(current) = self.current.as_mut().filter(|current| current.left_at.is_none()) {
            let now = whole_seconds(now);
            current.left_at = Some(now);
            self.progressed_at = now;
        }
    }

    /// Reads it from a status. `None` where that names no spec hash.
    pub fn read(status: &RolloutStatus, ordinal: impl Fn(&str) -> Option<Ordinal>) -> Option<Self> {
        let current = status.current.as_ref().and_then(|current| {
            Some(RestartedMember {
                ordinal: ordinal(&current.name)?,
                pod: current.pod_uid.clone(),
                left_at: current.left_at.as_ref().map(|time| time.0),
            })
        });
        let time = |time: &Option<Time>| time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        (!status.hash.is_empty()).then(|| Self {
            spec_hash: status.hash.clone(),
            version: status.target.clone(),
            restarted_at: status.restarted_at.clone(),
            current,
            reversible: status.reversible,
            path: VersionPath::read(status),
            started_at: time(&status.started_at),
            progressed_at: time(&status.progressed_at),
            backup_requested_at: status.backup_requested_at.as_ref().map(|time| time.0),
            log_index: status
                .log_index
                .and_then(|index| u64::try_from(index).ok())
                .map(RaftIndex),
            image_failure: status.image_failure.as_ref().and_then(ImageFailure::read),
        })
    }

    /// For a status.
    pub fn write(&self, name: impl Fn(Ordinal) -> String) -> RolloutStatus {
        RolloutStatus {
            target: self.version.clone(),
            hash: self.spec_hash.clone(),
            restarted_at: self.restarted_at.clone(),
            current: self.current.as_ref().map(|current| RolloutMember {
                name: name(current.ordinal),
                pod_uid: current.pod.clone(),
                left_at: current.left_at.map(Time),
            }),
            reversible: self.reversible,
            versions: self
                .path
                .as_ref()
                .map(|path| path.versions.iter().map(ToString::to_string).collect()),
            step: self.path.as_ref().and_then(|path| i32::try_from(path.step).ok()),
            started_at: Some(Time(self.started_at)),
            progressed_at: Some(Time(self.progressed_at)),
            backup_requested_at: self.backup_requested_at.map(Time),
            log_index: self.log_index.and_then(|index| i64::try_from(index.0).ok()),
            image_failure: self.image_failure.as_ref().map(ImageFailure::write),
            restart: None,
            last_served: None,
        }
    }
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_survives_its_way_through_a_status() {
        let now: Timestamp = "2026-11-27T12:00:00.75Z".parse().unwrap();
        let mut rollout = Rollout::begin("hash", "3.6.16", now);
        let ordinal = Ordinal::first_n(3).last().unwrap();
        let current = RestartedMember {
            ordinal,
            pod: "pod-uid".to_owned(),
            left_at: None,
        };
        rollout.set_current(Some(current), now);
        rollout.reversible = Some(false);
        rollout.path = Some(VersionPath {
            versions: ["3.5.35", "3.6.16"]
                .map(|version| version.parse().unwrap())
                .to_vec(),
            step: 1,
        });
        rollout.backup_requested_at = Some(rollout.started_at);
        rollout.log_index = Some(RaftIndex(10_042));
        rollout.set_left(now);
        let problem = ImageProblem::VersionDiffers {
            text: "it holds etcd 3.7.0".to_owned(),
        };
        let version = "3.6.16".parse().unwrap();
        let failure = ImageFailure::found("mirror/etcd:v3.6.16", &version, problem, 2, now);
        rollout.image_failure = Some(failure.not_tried("a quota", now));
        let text = serde_json::to_string(&rollout.write(|_| "c-2".to_owned())).unwrap();
        let status: RolloutStatus = serde_json::from_str(&text).unwrap();
        assert_eq!(Rollout::read(&status, |_| Some(ordinal)), Some(rollout));
        let unknown = RolloutStatus::default();
        assert_eq!(Rollout::read(&unknown, |_| None), None);
    }

    #[test]
    fn an_image_is_tried_again_after_pauses_that_grow_to_five_minutes() {
        let now: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
        let pause = |tries: u32| {
            let problem = ImageProblem::NotRunning { text: String::new() };
            let failure = ImageFailure {
                tries,
                ..ImageFailure::found("i", &"3.6.16".parse().unwrap(), problem, 0, now)
            };
            (0..=600)
                .find(|seconds| failure.is_due(now + SignedDuration::from_secs(*seconds)))
                .unwrap()
        };
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, 7, 100].map(pause),
            [0, 15, 30, 60, 120, 240, 300, 300, 300]
        );
    }

    #[test]
    fn an_image_that_was_tried_by_a_clock_that_was_ahead_is_tried_again() {
        let now: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
        let problem = ImageProblem::NotRunning { text: String::new() };
        let ahead = now + SignedDuration::from_hours(3);
        let failure = ImageFailure::found("i", &"3.6.16".parse().unwrap(), problem, 9, ahead);
        assert!(failure.is_due(now) && !failure.is_due(ahead));
    }
}
