//! What lies on the disk of a member, as the real rules of `crates/member` see it, and every change that they lead to.

use std::collections::BTreeMap;

use etcd_operator_api::contract::{
    self, Arrival, Fetched, Fingerprint, Identity, KeptDirectory, ListedMember, Prepared, VERSION,
};
use etcd_operator_etcd::id::{RaftIndex, RaftTerm};
use etcd_operator_etcd::membership::Member;
use etcd_operator_member::download::Wanted;
use etcd_operator_member::permit::{Grant, Preparation};
use etcd_operator_member::view::{Data, DiskView, IdentityFile, LogEnd, LogHead, Store};
use jiff::{SignedDuration, Timestamp};

use crate::etcd::{Content, DataDir, DiskId, Etcds, Snapshot, restored};

/// A disk as the real rules see it.
pub(crate) fn view(etcds: &Etcds, disk: DiskId, is_weak: bool) -> DiskView {
    let Some(content) = etcds.content(disk).filter(|_| !etcds.is_unreadable(disk)) else {
        return DiskView {
            trouble: Some("cannot read the volume: input/output error".to_owned()),
            ..DiskView::default()
        };
    };
    DiskView {
        trouble: None,
        identity: content
            .identity
            .clone()
            .map_or(IdentityFile::Absent, IdentityFile::Found),
        data: data(content.data.as_ref()),
        prepared: Ok(content.prepared.clone()),
        restored: content.restored.keys().cloned().collect(),
        fetched: content.download.as_ref().map(|(fetched, _)| fetched.clone()),
        kept: content.kept.keys().cloned().collect(),
        // Nobody but members puts anything on these disks.
        strange: Vec::new(),
        fingerprint: fingerprint(disk, is_weak),
    }
}

fn fingerprint(disk: DiskId, is_weak: bool) -> Fingerprint {
    use contract::kind;
    let name = format!("{disk:?}");
    let kinds = if is_weak {
        vec![kind::INODE, kind::ROOT]
    } else {
        vec![kind::WWID]
    };
    Fingerprint(
        kinds
            .into_iter()
            .map(|kind| (kind.to_owned(), name.clone()))
            .collect(),
    )
}

fn data(found: Option<&DataDir>) -> Data {
    let Some(found) = found else { return Data::None };
    let Some(head) = found.head() else {
        return Data::Unlogged;
    };
    let broken = || Err("a page of the database is not valid".to_owned());
    Data::Logged(Store {
        head: Ok(LogHead {
            cluster: head.cluster,
            member: head.member,
        }),
        end: Some(LogEnd {
            term: RaftTerm(head.term),
            index: RaftIndex(head.index),
            has_client_entries: head.has_writes,
        }),
        database: if found.is_damaged() { broken() } else { Ok(()) },
        members: found.members().into_iter().map(listed).collect(),
    })
}

fn listed(member: Member) -> ListedMember {
    ListedMember {
        id: member.id.to_string(),
        name: member.name.unwrap_or_default(),
        peer_urls: member.peer_urls.iter().map(ToString::to_string).collect(),
    }
}

/// What a pod finds on a disk as it comes.
pub(crate) fn arrival(etcds: &Etcds, disk: DiskId) -> Option<Arrival> {
    let content = etcds.content(disk).filter(|_| !etcds.is_unreadable(disk))?;
    let head = content.data.as_ref().and_then(DataDir::head)?;
    Some(Arrival {
        version: VERSION,
        member_id: head.member.to_string(),
        index: head.index,
    })
}

/// Writes who the disk says it is.
pub(crate) fn write(etcds: &Etcds, disk: DiskId, identity: Identity) {
    etcds.edit(disk, |content| content.identity = Some(identity));
}

/// One step of what becomes of a disk by a permit: whoever makes it can die between any two of them.
enum Step<'a> {
    SetAside(&'a str),
    Note(KeptDirectory),
    Put(&'a str),
    Name(&'a Identity),
    Unmark,
    ClearDownload,
}

impl Step<'_> {
    fn take(self, content: &mut Content) -> Result<(), String> {
        let missing = |name: &str| format!("cannot rename {name}: no such directory");
        match self {
            Self::SetAside(name) => {
                let data = content.data.take().ok_or_else(|| missing("data"))?;
                content.kept.insert(name.to_owned(), data);
            }
            Self::Note(kept) => content.keeps.push(kept),
            Self::Put(name) => {
                let restored = content.restored.remove(name);
                content.data = Some(restored.ok_or_else(|| missing(name))?);
            }
            Self::Name(identity) => content.identity = Some(identity.clone()),
            Self::Unmark => content.prepared = None,
            Self::ClearDownload => content.download = None,
        }
        Ok(())
    }
}

/// What becomes of the disk by a permit, in the order of the keeper.
fn steps(grant: &Grant, now: Timestamp) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    if let Some(name) = &grant.set_aside {
        steps.push(Step::SetAside(name));
        steps.extend(grant.keeps.as_ref().map(|keeps| {
            let seconds = i64::try_from(keeps.seconds).unwrap_or(i64::MAX);
            let until = now.checked_add(SignedDuration::from_secs(seconds));
            Step::Note(KeptDirectory {
                directory: name.clone(),
                restore_uid: keeps.restore_uid.clone(),
                until: until.unwrap_or(Timestamp::MAX),
            })
        }));
    }
    steps.extend(grant.put.as_deref().map(Step::Put));
    steps.push(Step::Name(&grant.identity));
    steps.extend(grant.keeps.is_some().then_some(Step::Unmark));
    steps.push(Step::ClearDownload);
    steps
}

/// Makes of the disk what a permit leads to, or only so many steps of it.
pub(crate) fn commit(
    etcds: &Etcds,
    disk: DiskId,
    grant: &Grant,
    now: Timestamp,
    upto: usize,
) -> Result<(), String> {
    let mut outcome = Err("the disk is gone".to_owned());
    etcds.edit(disk, |content| {
        let mut steps = steps(grant, now).into_iter().take(upto);
        outcome = steps.try_for_each(|step| step.take(content));
    });
    outcome
}

/// What a whole start does with what restores have left: only data stay whose time is not over.
pub(crate) fn tidy(etcds: &Etcds, disk: DiskId, now: Timestamp) {
    etcds.edit(disk, |content| {
        content.prepared = None;
        content.restored.clear();
        content.download = None;
        tidy_kept(content, now);
    });
}

/// Removes what was set aside and whose time is over.
pub(crate) fn tidy_kept(content: &mut Content, now: Timestamp) {
    let (stay, go): (Vec<_>, Vec<_>) = content.keeps.drain(..).partition(|kept| kept.until > now);
    content.keeps = stay;
    for over in go {
        content.kept.remove(&over.directory);
    }
}

/// Makes way for a download: no other that was restored stays.
pub(crate) fn make_way(etcds: &Etcds, disk: DiskId) {
    etcds.edit(disk, |content| {
        content.prepared = None;
        content.restored.clear();
        content.download = None;
    });
}

/// A download is complete.
pub(crate) fn fetched(etcds: &Etcds, disk: DiskId, wanted: &Wanted, snapshot: Snapshot) {
    let fetched = Fetched {
        version: VERSION,
        restore_uid: wanted.restore_uid.clone(),
        object_sha256: wanted.object_sha256.clone(),
        snapshot_size: wanted.snapshot_size,
        boot: None,
    };
    etcds.edit(disk, |content| content.download = Some((fetched, snapshot)));
}

/// Begins to make a directory beside the data: half of it is there, and nothing says that it is complete.
pub(crate) fn begin_restored(etcds: &Etcds, disk: DiskId, preparation: &Preparation) {
    etcds.edit(disk, |content| {
        content.prepared = None;
        let half = (preparation.directory.clone(), DataDir::database_only());
        content.restored = BTreeMap::from([half]);
    });
}

/// The directory is complete, and the download goes away.
pub(crate) fn end_restored(etcds: &Etcds, disk: DiskId, preparation: &Preparation) -> Result<(), String> {
    let content = etcds.content(disk).ok_or("there is no disk")?;
    let (_, snapshot) = content.download.ok_or("there is no download")?;
    let bump = preparation.bump.unwrap_or(0);
    let data = restored(&snapshot, &preparation.member, &preparation.first, bump)?;
    let head = data.head().ok_or("nothing was restored")?;
    let prepared = Prepared {
        version: VERSION,
        restore_uid: preparation.restore_uid.clone(),
        object_sha256: preparation.object_sha256.clone(),
        incarnation: preparation.incarnation,
        directory: preparation.directory.clone(),
        cluster_id: Some(head.cluster.to_string()),
        member_id: Some(head.member.to_string()),
    };
    etcds.edit(disk, |content| {
        content.restored.insert(preparation.directory.clone(), data);
        content.prepared = Some(prepared);
        content.download = None;
    });
    Ok(())
}
