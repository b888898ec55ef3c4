//! The permits of a restore: to make a member's data beside the old ones, and to put them in their place. Pure.

use etcd_operator_api::contract::{Permit, RestoreTerms, Verdict};
use etcd_operator_etcd::flags::{First, FirstState};

use super::{Applicant, Grant, Refusal, SetAside, first, id, matching_ids};
use crate::view::LogHead;
use crate::volume::RESTORED;

/// The member that is restored beside the data, from the snapshot that was downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// The restore it belongs to.
    pub restore_uid: String,
    /// The SHA-256 of the object, in hexadecimal.
    pub object_sha256: String,
    /// The life of the data that begins with it.
    pub incarnation: i64,
    /// The member that it is for.
    pub member: String,
    /// The name of the directory.
    pub directory: String,
    /// All members of the restored cluster, and what keeps it apart from others.
    pub first: First,
    /// By how much revisions are raised.
    pub bump: Option<u64>,
    /// Bytes of the snapshot.
    pub snapshot_size: u64,
}

/// Only a disk without data, or with data of an earlier incarnation, is prepared, and only from the download that the
/// permit names.
pub(super) fn prepare(permit: &Permit, applicant: &Applicant<'_>) -> Result<Preparation, Refusal> {
    match applicant.verdict {
        Verdict::Empty | Verdict::Unborn => {}
        Verdict::OtherIncarnation { found } if *found < permit.incarnation => {}
        verdict => return Err(Refusal::forbidden(permit.mode, verdict)),
    }
    let terms = terms(permit)?;
    let first = first(permit, FirstState::New, applicant.expected)?;
    if first.token.is_empty() {
        return Err(Refusal::Missing("token"));
    }
    let fetched = applicant.disk.fetched.as_ref();
    let fetched = fetched
        .filter(|fetched| fetched.restore_uid == terms.uid && fetched.object_sha256 == terms.object_sha256)
        .ok_or_else(|| Refusal::NoDownload(terms.uid.clone()))?;
    let bump = u64::try_from(terms.revision_bump)
        .map_err(|_| Refusal::Malformed("revisionBump", terms.revision_bump.to_string()))?;
    Ok(Preparation {
        restore_uid: terms.uid.clone(),
        object_sha256: terms.object_sha256.clone(),
        incarnation: permit.incarnation,
        member: applicant.expected.member.clone(),
        directory: format!("{RESTORED}{}", terms.uid),
        first,
        bump: Some(bump).filter(|bump| *bump > 0),
        snapshot_size: fetched.snapshot_size,
    })
}

/// Only what was prepared for this very restore is put in place, and only if its log is of the IDs that are permitted.
pub(super) fn swap(permit: &Permit, applicant: &Applicant<'_>) -> Result<Grant, Refusal> {
    let disk = applicant.disk;
    let prepared = match (applicant.verdict, &disk.prepared) {
        (Verdict::Prepared { .. }, Ok(Some(prepared))) => prepared,
        (verdict, _) => return Err(Refusal::forbidden(permit.mode, verdict)),
    };
    let terms = terms(permit)?;
    let is_same = prepared.restore_uid == terms.uid
        && prepared.object_sha256 == terms.object_sha256
        && prepared.incarnation == permit.incarnation;
    if !is_same {
        return Err(Refusal::OtherRestore {
            permitted: terms.uid.clone(),
            found: prepared.restore_uid.clone(),
        });
    }
    let head = LogHead {
        cluster: id(prepared.cluster_id.as_deref(), "clusterID")?,
        member: id(prepared.member_id.as_deref(), "memberID")?,
    };
    matching_ids(permit, head)?;
    let directory = &prepared.directory;
    let put = if disk.restored.contains(directory) {
        Some(directory.clone())
    } else {
        // It may have been put in place already, by a process that did not live to say so.
        let in_place = disk.store().and_then(|store| store.whole().ok());
        if in_place != Some(head) {
            return Err(Refusal::NotRestored(directory.clone()));
        }
        None
    };
    let keeps = SetAside {
        restore_uid: terms.uid.clone(),
        seconds: terms.keep_seconds,
    };
    Ok(Grant::restored(applicant, put, head, keeps))
}

/// What the permit says of the restore. Its UID becomes part of a name on the disk.
fn terms(permit: &Permit) -> Result<&RestoreTerms, Refusal> {
    let terms = permit.restore.as_ref().ok_or(Refusal::Missing("restore"))?;
    let is_name = !terms.uid.is_empty()
        && terms.uid.len() <= 64
        && terms
            .uid
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_name {
        return Err(Refusal::Malformed("uid of a restore", terms.uid.clone()));
    }
    if terms.object_sha256.is_empty() {
        return Err(Refusal::Missing("objectSHA256"));
    }
    Ok(terms)
}
