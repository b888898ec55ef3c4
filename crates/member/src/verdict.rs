//! What a disk is, to whoever expects something of it. Pure: the same disk and expectation, the same verdict.
//!
//! Only [`Verdict::Whole`] starts without a permit. Whatever is in doubt is not whole.

#[cfg(test)]
mod tests;

use etcd_operator_api::contract::{Fingerprint, Identity, Verdict};
use etcd_operator_api::refusal::bounded;

use crate::view::{Data, DiskView, IdentityFile, LogHead, Store};

/// How many names of strange files are told, and how much of each: whoever put them there chose them.
const NAMED: usize = 5;
const LONGEST_NAME: usize = 40;

/// What the pod expects of its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The UID of the `EtcdCluster`.
    pub cluster_uid: String,
    /// The member's name.
    pub member: String,
    /// Which life of the cluster's data the pod was made for.
    pub incarnation: i64,
}

/// A verdict with the words that explain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What the disk is.
    pub verdict: Verdict,
    /// What led to that, for people.
    pub detail: String,
}

impl Finding {
    fn new(verdict: Verdict, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { verdict, detail }
    }

    /// Whether etcd may start without a permit.
    pub fn is_whole(&self) -> bool {
        self.verdict == Verdict::Whole
    }
}

/// Judges what a disk is for a pod that expects this. A read error comes first, then whose the disk is, then its
/// incarnation, then its data.
pub fn judge(disk: &DiskView, expected: &Expected) -> Finding {
    if let Some(trouble) = &disk.trouble {
        return Finding::new(Verdict::Unreadable, trouble);
    }
    match &disk.identity {
        IdentityFile::Unusable(why) => Finding::new(Verdict::Unreadable, why),
        IdentityFile::Absent => restored(disk, expected).unwrap_or_else(|| nameless(disk)),
        IdentityFile::Found(identity) => {
            stranger(identity, expected).unwrap_or_else(|| ours(disk, identity, expected))
        }
    }
}

/// The finding for a complete restored directory of the expected incarnation, or for a mark of one that cannot be
/// parsed. `None` if there is none: one of another incarnation is left over.
fn restored(disk: &DiskView, expected: &Expected) -> Option<Finding> {
    let prepared = match &disk.prepared {
        Ok(prepared) => prepared.as_ref()?,
        Err(why) => return Some(Finding::new(Verdict::Unreadable, why)),
    };
    if prepared.incarnation != expected.incarnation {
        return None;
    }
    let verdict = Verdict::Prepared {
        restore_uid: prepared.restore_uid.clone(),
        object_sha256: prepared.object_sha256.clone(),
        cluster_id: prepared.cluster_id.clone(),
        member_id: prepared.member_id.clone(),
    };
    let words = format!("{} is complete and waits to be put in place", prepared.directory);
    Some(Finding::new(verdict, words))
}

/// Judges a disk without an identity: empty, or foreign if there are data, directories that were set aside, or files of
/// others.
fn nameless(disk: &DiskView) -> Finding {
    match &disk.data {
        Data::None if disk.kept.is_empty() && disk.is_of_strangers() => Finding::new(
            Verdict::Foreign,
            format!(
                "no identity, but files of somebody else: {}",
                named(&disk.strange)
            ),
        ),
        Data::None if disk.kept.is_empty() => Finding::new(Verdict::Empty, "there is nothing on the disk"),
        Data::None => Finding::new(
            Verdict::Foreign,
            format!(
                "no identity, but directories that were kept: {}",
                disk.kept.join(", ")
            ),
        ),
        Data::Unlogged => Finding::new(
            Verdict::Foreign,
            "no identity, but files where etcd's data belongs",
        ),
        Data::Logged(store) => Finding::new(
            Verdict::Foreign,
            format!("no identity, but data of {}", owner(store)),
        ),
    }
}

/// Names for people: not all where there are many, and none that is long or breaks the line.
fn named(names: &[String]) -> String {
    let plain = |name: &String| bounded(name, LONGEST_NAME).replace(char::is_control, "\u{fffd}");
    let shown: Vec<String> = names.iter().take(NAMED).map(plain).collect();
    match names.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn owner(store: &Store) -> String {
    match &store.head {
        Ok(LogHead { cluster, member }) => format!("member {member} of cluster {cluster}"),
        Err(why) => format!("an etcd that cannot be told: {why}"),
    }
}

/// The finding for a disk of another cluster or member. `None` if its identity is the expected one.
fn stranger(identity: &Identity, expected: &Expected) -> Option<Finding> {
    let (theirs, wanted) = (&identity.cluster_uid, &expected.cluster_uid);
    if theirs != wanted {
        let words = format!("the disk belongs to the EtcdCluster with UID {theirs}, not {wanted}");
        return Some(Finding::new(Verdict::Foreign, words));
    }
    let (theirs, wanted) = (&identity.member, &expected.member);
    (theirs != wanted).then(|| {
        let words = format!("the disk belongs to member {theirs}, not {wanted}");
        Finding::new(Verdict::Foreign, words)
    })
}

/// Judges a disk with the identity of the expected member.
fn ours(disk: &DiskView, identity: &Identity, expected: &Expected) -> Finding {
    if !identity.ran && disk.data == Data::None && disk.kept.is_empty() {
        return Finding::new(
            Verdict::Empty,
            "an identity with which etcd never ran, and no data",
        );
    }
    if identity.incarnation != expected.incarnation {
        if let Some(finding) = restored(disk, expected) {
            return finding;
        }
        let found = identity.incarnation;
        let words = format!(
            "incarnation {found} is on the disk, {} is expected",
            expected.incarnation
        );
        return Finding::new(Verdict::OtherIncarnation { found }, words);
    }
    match &disk.data {
        Data::None => Finding::new(
            Verdict::Unborn,
            "the identity is ours, and there is no data: it never took part, or has lost everything",
        ),
        Data::Unlogged => Finding::new(
            Verdict::Unborn,
            "the identity is ours, and the data has no write-ahead log: it never took part",
        ),
        Data::Logged(store) => with_log(disk, identity, store),
    }
}

/// Judges data of the expected incarnation with a log. Damaged if they are not intact or not of the identity's IDs,
/// moved if the volume is another one, else whole.
fn with_log(disk: &DiskView, identity: &Identity, store: &Store) -> Finding {
    let head = match store.whole() {
        Ok(head) => head,
        Err(why) => return Finding::new(Verdict::Damaged, why),
    };
    let ids = [
        ("cluster", &identity.cluster_id, head.cluster.to_string()),
        ("member", &identity.member_id, head.member.to_string()),
    ];
    for (what, recorded, logged) in ids {
        // An identity from before the first answer of the cluster does not know its IDs yet.
        if let Some(recorded) = recorded.as_ref().filter(|recorded| **recorded != logged) {
            let words = format!("the identity says {what} {recorded}, the write-ahead log says {logged}");
            return Finding::new(Verdict::Damaged, words);
        }
    }
    match identity.fingerprint.difference(&disk.fingerprint) {
        Some(kind) => {
            let value = |print: &Fingerprint| print.0.get(kind).cloned().unwrap_or_default();
            let (was, is) = (value(&identity.fingerprint), value(&disk.fingerprint));
            let words = format!("another volume than before: {kind} was {was}, is {is}");
            Finding::new(Verdict::Moved, words)
        }
        None => Finding::new(Verdict::Whole, format!("data of {}", owner(store))),
    }
}
