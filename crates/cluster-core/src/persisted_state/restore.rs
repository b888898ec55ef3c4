//! What is known from before of a restore: the one field that decides between commit and roll-back. Pure.

use etcd_operator_api::cluster::RestoreProgress;
use etcd_operator_api::restore::MemberRestoreStatus;
use etcd_operator_api::span::second;
use etcd_operator_etcd_types::id::ClusterId;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The restore that is under way, or the last one, as the status keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// The UID of the `EtcdRestore`.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// How far it is.
    pub phase: Phase,
    /// Since when it is that far, to the second.
    pub since: Timestamp,
    /// Whether the old cluster can no longer come back.
    pub committed: bool,
    /// The incarnation of the restored data.
    pub incarnation: i64,
    /// etcd's ID of the restored cluster, once the members have made it.
    pub cluster: Option<ClusterId>,
    /// The incarnation of the data of before; 0 if there were none.
    pub previous_incarnation: i64,
    /// etcd's ID of the cluster of before, if it had formed.
    pub previous_cluster: Option<ClusterId>,
    /// How many members the restored cluster begins with.
    pub size: u8,
    /// How many voters the data of before have where no voter of theirs was recorded: they were put in place and never served.
    pub previous_size: u8,
    /// The SHA-256 of the object, in hexadecimal.
    pub object_sha256: String,
    /// By how much the revision of the object is raised.
    pub revision_bump: i64,
    /// Seconds the data of before are kept: what was asked for when it began, whoever is deleted meanwhile.
    pub keep_seconds: u64,
    /// How far the members have come at best, and since when no further; none before they begin.
    pub furthest: Option<(i64, Timestamp)>,
    /// Whether clients are let in again.
    pub open: bool,
    /// Why it is rolled back.
    pub message: Option<String>,
}

/// How far a restore is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The pods of before are deleted.
    Stopping,
    /// Members restore into side directories.
    Preparing,
    /// The restored directories take the place of the old ones.
    Committed,
    /// The cluster of before comes back.
    RollingBack,
    /// The restored cluster works and is brought in order.
    Serving,
    /// The restored cluster is in order.
    Finished,
    /// The cluster of before is back.
    RolledBack,
}

impl Phase {
    const ALL: [Self; 7] = [
        Self::Stopping,
        Self::Preparing,
        Self::Committed,
        Self::RollingBack,
        Self::Serving,
        Self::Finished,
        Self::RolledBack,
    ];

    /// The word in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopping => "Stopping",
            Self::Preparing => "Preparing",
            Self::Committed => "Committed",
            Self::RollingBack => "RollingBack",
            Self::Serving => "Serving",
            Self::Finished => "Finished",
            Self::RolledBack => "RolledBack",
        }
    }

    /// Whether nothing more is done about it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::RolledBack)
    }
}

impl Restore {
    /// Whether it is under way: no other flow starts then.
    pub fn is_active(&self) -> bool {
        !self.phase.is_over()
    }

    /// Whether clients must not be sent to members: they could see old data and new data at once.
    pub fn blocks_clients(&self) -> bool {
        self.is_active() && !self.open
    }

    /// Whether the pods fetch the backup onto their volumes before they start.
    pub fn is_fetching(&self) -> bool {
        matches!(self.phase, Phase::Stopping | Phase::Preparing)
    }

    /// Whether a pod of this incarnation is queried. While the old pods only have to go, they are not: without their
    /// quorum each query would last until its timeout.
    pub fn is_queried(&self, incarnation: i64) -> bool {
        incarnation == self.incarnation || !self.is_fetching()
    }

    /// Goes on to another phase, from now on and without progress yet.
    pub fn enter(&mut self, phase: Phase, now: Timestamp) {
        self.phase = phase;
        self.since = second(now);
        self.furthest = None;
    }

    /// Records how far the members are, and returns since when they have come no further. Only more than ever before
    /// counts: members that begin anew again and again make no progress.
    pub fn note_progress(&mut self, far: i64, now: Timestamp) -> Timestamp {
        match self.furthest {
            Some((best, since)) if far <= best => since,
            _ => {
                let now = second(now);
                self.furthest = Some((far, now));
                now
            }
        }
    }

    /// The same without how far the members are, which changes with every byte.
    #[must_use]
    pub fn without_progress(&self) -> Self {
        Self {
            furthest: None,
            ..self.clone()
        }
    }

    /// As it stands in the status.
    pub fn write(&self, members: Option<Vec<MemberRestoreStatus>>) -> RestoreProgress {
        RestoreProgress {
            uid: self.uid.clone(),
            name: self.name.clone(),
            incarnation: self.incarnation,
            cluster_id: self.cluster.map(|id| id.to_string()),
            phase: self.phase.as_str().to_owned(),
            since: Some(Time(self.since)),
            committed: self.committed,
            previous_incarnation: Some(self.previous_incarnation),
            previous_cluster_id: self.previous_cluster.map(|id| id.to_string()),
            size: Some(self.size.into()),
            previous_size: (self.previous_size != self.size).then(|| self.previous_size.into()),
            object_sha256: Some(self.object_sha256.clone()),
            revision_bump: Some(self.revision_bump),
            keep_previous_seconds: i64::try_from(self.keep_seconds).ok(),
            furthest: self.furthest.map(|(far, _)| far),
            furthest_since: self.furthest.map(|(_, since)| Time(since)),
            open: self.open,
            message: self.message.clone(),
            members,
        }
    }

    /// Reads one from a status. `None` if this version does not know its phase, or if a needed part is missing.
    pub fn read(progress: &RestoreProgress) -> Option<Self> {
        let known = |text: &Option<String>| text.as_deref().and_then(|id| id.parse().ok());
        let size = u8::try_from(progress.size?).ok()?;
        // It is written where it differs. An older operator always restored by as many members as before.
        let previous_size = progress.previous_size.map_or(Ok(size), u8::try_from);
        Some(Self {
            uid: progress.uid.clone(),
            name: progress.name.clone(),
            phase: Phase::ALL
                .into_iter()
                .find(|phase| phase.as_str() == progress.phase)?,
            since: progress.since.as_ref()?.0,
            committed: progress.committed,
            incarnation: progress.incarnation,
            cluster: known(&progress.cluster_id),
            previous_incarnation: progress.previous_incarnation.unwrap_or_default(),
            previous_cluster: known(&progress.previous_cluster_id),
            size,
            previous_size: previous_size.ok()?,
            object_sha256: progress.object_sha256.clone().unwrap_or_default(),
            revision_bump: progress.revision_bump.unwrap_or_default(),
            keep_seconds: progress
                .keep_previous_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .unwrap_or_default(),
            furthest: progress
                .furthest
                .zip(progress.furthest_since.as_ref().map(|since| since.0)),
            open: progress.open,
            message: progress.message.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restore(phase: Phase) -> Restore {
        Restore {
            uid: "r".to_owned(),
            name: "orders".to_owned(),
            phase,
            since: Timestamp::UNIX_EPOCH,
            committed: true,
            incarnation: 3,
            cluster: "cdf8".parse().ok(),
            previous_incarnation: 2,
            previous_cluster: None,
            size: 3,
            previous_size: 1,
            object_sha256: "bb".to_owned(),
            revision_bump: 7,
            keep_seconds: 86_400,
            furthest: None,
            open: true,
            message: Some("why".to_owned()),
        }
    }

    #[test]
    fn pods_of_before_are_not_asked_while_they_go_and_all_others_always_are() {
        for phase in Phase::ALL {
            let restore = restore(phase);
            assert!(restore.is_queried(3), "{phase:?}");
            let is_going = [Phase::Stopping, Phase::Preparing].contains(&phase);
            assert_eq!(restore.is_queried(2), !is_going, "{phase:?}");
        }
    }

    #[test]
    fn only_what_is_further_than_ever_counts() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let mut restore = Restore::read(&RestoreProgress {
            phase: "Preparing".to_owned(),
            since: Some(Time(at(0))),
            size: Some(3),
            ..RestoreProgress::default()
        })
        .expect("a restore");
        let told =
            [(1, 0), (2, 5), (3, 2), (4, 5), (5, 6)].map(|(now, far)| restore.note_progress(far, at(now)));
        assert_eq!(told, [at(1), at(2), at(2), at(2), at(5)]);
        restore.enter(Phase::Committed, at(6));
        assert_eq!(restore.furthest, None);
    }

    #[test]
    fn a_restore_is_read_back_as_it_was_written_whatever_its_phase() {
        for phase in Phase::ALL {
            let mut restore = restore(phase);
            restore.enter(phase, "2026-03-01T03:00:00.7Z".parse().expect("a time"));
            restore.note_progress(5, "2026-03-01T03:00:01.7Z".parse().expect("a time"));
            let json = serde_json::to_string(&restore.write(None)).expect("JSON");
            let progress = serde_json::from_str(&json).expect("a progress");
            assert_eq!(Restore::read(&progress), Some(restore));
        }
        let unknown = RestoreProgress {
            phase: "Levitating".to_owned(),
            ..RestoreProgress::default()
        };
        assert_eq!(Restore::read(&unknown), None);
    }
}
