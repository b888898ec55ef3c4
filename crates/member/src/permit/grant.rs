//! What a good permit leads to: the identity the disk gets, and what etcd is told. Pure.

use etcd_operator_api::contract::{Fingerprint, Identity, VERSION};
use etcd_operator_etcd::flags::First;
use etcd_operator_etcd::id::{ClusterId, MemberId};
use etcd_operator_etcd::url::PeerUrl;

use super::Applicant;
use crate::command::Start;
use crate::view::{Data, DiskView, LogHead};

/// What a good permit leads to: how the disk is changed, and how etcd is started after that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What the disk says of itself before etcd starts.
    pub identity: Identity,
    /// The name under which what lies in the data's place is kept, if something does.
    pub set_aside: Option<String>,
    /// Until when that is kept; for good unless somebody said so.
    pub keeps: Option<SetAside>,
    /// The restored directory that takes the data's place, if one does.
    pub put: Option<String>,
    /// What etcd is told for its first start.
    pub first: Option<First>,
    /// The cluster and the member of it that must not have started yet, as the other members know it.
    pub unstarted: Option<(ClusterId, MemberId)>,
}

/// How long the volume keeps the data that a restore replaced, from when they are set aside, and the UID of that restore. The
/// member deletes them afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The restore.
    pub restore_uid: String,
    /// How many seconds.
    pub seconds: u64,
}

impl Grant {
    /// What etcd starts on.
    pub fn start(self) -> Start {
        match self.first {
            Some(first) => Start::First(first),
            None if self.keeps.is_some() => Start::Restored,
            None => Start::Again,
        }
    }

    /// etcd starts without data. What is in the data directory is set aside for good.
    pub(super) fn anew(
        applicant: &Applicant<'_>,
        first: First,
        cluster: Option<ClusterId>,
        member: Option<MemberId>,
    ) -> Self {
        let disk = applicant.disk;
        Self {
            identity: identity(applicant, cluster, member),
            set_aside: (disk.data != Data::None).then(|| kept_name(disk)),
            keeps: None,
            put: None,
            first: Some(first),
            unstarted: None,
        }
    }

    /// etcd starts with a restored directory as its data. `put` is `None` if an earlier process has already renamed it.
    pub(super) fn restored(
        applicant: &Applicant<'_>,
        put: Option<String>,
        head: LogHead,
        keeps: SetAside,
    ) -> Self {
        let disk = applicant.disk;
        let is_in_the_way = put.is_some() && disk.data != Data::None;
        Self {
            identity: identity(applicant, Some(head.cluster), Some(head.member)),
            set_aside: is_in_the_way.then(|| kept_name(disk)),
            keeps: Some(keeps),
            put,
            first: None,
            unstarted: None,
        }
    }

    /// etcd starts with the data on the disk, which gets this member's identity.
    pub(super) fn as_it_is(applicant: &Applicant<'_>, head: LogHead) -> Self {
        Self {
            identity: identity(applicant, Some(head.cluster), Some(head.member)),
            set_aside: None,
            keeps: None,
            put: None,
            first: None,
            unstarted: None,
        }
    }
}

/// The identity that the disk gets, with this start counted.
fn identity(applicant: &Applicant<'_>, cluster: Option<ClusterId>, member: Option<MemberId>) -> Identity {
    let before = applicant.disk.identity.found();
    Identity {
        version: VERSION,
        cluster_uid: applicant.expected.cluster_uid.clone(),
        cluster_id: cluster.map(|id| id.to_string()),
        member: applicant.expected.member.clone(),
        member_id: member.map(|id| id.to_string()),
        incarnation: applicant.expected.incarnation,
        fingerprint: applicant.disk.fingerprint.clone(),
        ran: true,
        starts: before.map_or(1, |identity| identity.starts.saturating_add(1)),
    }
}

/// The identity of a whole disk with one more start counted. IDs and kinds of the fingerprint that it did not have are
/// added; nothing else changes.
pub fn restart(identity: &Identity, head: LogHead, now: &Fingerprint) -> Identity {
    let known = |recorded: &Option<String>, logged: String| Some(recorded.clone().unwrap_or(logged));
    Identity {
        cluster_id: known(&identity.cluster_id, head.cluster.to_string()),
        member_id: known(&identity.member_id, head.member.to_string()),
        fingerprint: identity.fingerprint.clone().with_new_of(now),
        ran: true,
        starts: identity.starts.saturating_add(1),
        ..identity.clone()
    }
}

/// The peer URL of a member, by its name. `None` if the initial cluster does not have it.
pub fn address_of<'a>(first: &'a First, member: &str) -> Option<&'a PeerUrl> {
    let found = first.members.iter().find(|(name, _)| name == member);
    found.map(|(_, url)| url)
}

/// The name under which data are set aside, with the incarnation of the disk. No directory on the disk has it.
fn kept_name(disk: &DiskView) -> String {
    let incarnation = disk.identity.found().map_or(0, |identity| identity.incarnation);
    let prefix = format!("kept-{incarnation}-");
    let numbers = disk
        .kept
        .iter()
        .filter_map(|name| name.strip_prefix(&prefix)?.parse::<u64>().ok());
    format!("{prefix}{}", numbers.max().unwrap_or(0).saturating_add(1))
}
