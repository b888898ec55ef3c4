//! What the StatefulSet remembers of the cluster's life, so that a lost status can be found again.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_etcd_types::id::ClusterId;
use k8s_openapi::api::apps::v1::StatefulSet;

use super::labels::Map;
use crate::persisted_state::{MemberRecord, Restore};

const INCARNATION: &str = "etcd.database.coreos.com/incarnation";
const CLUSTER_ID: &str = "etcd.database.coreos.com/cluster-id";
const VOTERS: &str = "etcd.database.coreos.com/voters";
/// A copy of how far a restore is: written before anything is done about it, so it is never behind what was done.
const RESTORE: &str = "etcd.database.coreos.com/restore-progress";
/// Beyond it the next restore goes, also where nobody is left who could tell what clients have seen.
const RESTORED_REVISION: &str = "etcd.database.coreos.com/restored-revision";
/// None of these is carried out again, also where its EtcdRestore has lost its status.
const EARLIER_RESTORES: &str = "etcd.database.coreos.com/earlier-restores";
const MEMBERS: &str = "etcd.database.coreos.com/members";
const SERVED_SPEC_HASHES: &str = "etcd.database.coreos.com/served-spec-hashes";

/// What annotations of the StatefulSet repeat of the status, to recover it from if it is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateAnnotations {
    /// Which life of the data runs.
    pub incarnation: i64,
    /// etcd's ID of the cluster, once it was read.
    pub cluster_id: Option<ClusterId>,
    /// The names of the voters: a set and not a count, for it may have gaps.
    pub voters: BTreeSet<String>,
    /// The voters by their names, with the volumes that are their own: who has lost his volume's attachment is known by it.
    pub members: BTreeMap<String, MemberRecord>,
    /// The restore that is under way, or the last one: without it a restore would be begun anew in the middle.
    pub restore: Option<Restore>,
    /// The revision to which restores have raised the data at most; 0 if none has.
    pub restored_revision: i64,
    /// The UIDs of the restores that were committed before the last one.
    pub earlier_restores: Vec<String>,
    /// Spec hashes of the pod templates with which a voter was seen healthy.
    pub served_spec_hashes: Vec<String>,
}

impl StateAnnotations {
    /// Reads the annotations of a StatefulSet. `None` without an incarnation that can be parsed; anything else that
    /// cannot be parsed counts as not there.
    pub fn read(set: &StatefulSet) -> Option<Self> {
        let annotations = set.metadata.annotations.as_ref()?;
        let list = |key| {
            let text = annotations.get(key).map(String::as_str).unwrap_or_default();
            text.split(',').filter(|part| !part.is_empty())
        };
        Some(Self {
            incarnation: annotations.get(INCARNATION)?.parse().ok()?,
            cluster_id: annotations.get(CLUSTER_ID).and_then(|id| id.parse().ok()),
            voters: list(VOTERS).map(str::to_owned).collect(),
            members: list(MEMBERS).filter_map(parse_member).collect(),
            restore: annotations
                .get(RESTORE)
                .and_then(|text| serde_json::from_str(text).ok())
                .and_then(|progress| Restore::read(&progress)),
            restored_revision: annotations
                .get(RESTORED_REVISION)
                .and_then(|revision| revision.parse().ok())
                .unwrap_or_default(),
            earlier_restores: list(EARLIER_RESTORES).map(str::to_owned).collect(),
            served_spec_hashes: list(SERVED_SPEC_HASHES).map(str::to_owned).collect(),
        })
    }

    /// The annotations to write. Each member's progress in a restore is left out: it would change the StatefulSet too
    /// often.
    pub(super) fn annotations(&self) -> Map {
        let Self {
            incarnation,
            cluster_id,
            voters,
            members,
            restore,
            restored_revision,
            earlier_restores,
            served_spec_hashes,
        } = self;
        let voters: Vec<&str> = voters.iter().map(String::as_str).collect();
        let mut all = Map::from([(INCARNATION.to_owned(), incarnation.to_string())]);
        all.extend(cluster_id.map(|id| (CLUSTER_ID.to_owned(), id.to_string())));
        if !voters.is_empty() {
            all.insert(VOTERS.to_owned(), voters.join(","));
        }
        if !members.is_empty() {
            let members: Vec<String> = members.iter().map(format_member).collect();
            all.insert(MEMBERS.to_owned(), members.join(","));
        }
        // How far the members are is not worth a change of the StatefulSet each time.
        let progress = restore
            .as_ref()
            .map(|restore| restore.without_progress().write(None));
        let text = progress.map(|progress| serde_json::to_string(&progress).expect("progress is JSON"));
        all.extend(text.map(|text| (RESTORE.to_owned(), text)));
        if *restored_revision > 0 {
            all.insert(RESTORED_REVISION.to_owned(), restored_revision.to_string());
        }
        if !earlier_restores.is_empty() {
            all.insert(EARLIER_RESTORES.to_owned(), earlier_restores.join(","));
        }
        if !served_spec_hashes.is_empty() {
            all.insert(SERVED_SPEC_HASHES.to_owned(), served_spec_hashes.join(","));
        }
        all
    }
}

/// A member as text. None of its parts holds a slash or a comma: Kubernetes lets neither names nor UIDs of claims have
/// one.
fn format_member((name, member): (&String, &MemberRecord)) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!(
        "{name}/{}/{}/{}",
        member.id,
        text(&member.claim),
        text(&member.volume)
    )
}

/// Parses what [`format_member`] wrote; `None` without a name and an ID. Only voters are recorded.
fn parse_member(member: &str) -> Option<(String, MemberRecord)> {
    let mut parts = member.split('/');
    let name = parts.next()?.to_owned();
    let id = parts.next()?.parse().ok()?;
    let mut noted = || parts.next().filter(|part| !part.is_empty()).map(str::to_owned);
    let (claim, volume) = (noted(), noted());
    let is_voter = true;
    Some((
        name,
        MemberRecord {
            id,
            is_voter,
            claim,
            volume,
            // It changes too often for a StatefulSet.
            last_index: None,
        },
    ))
}
