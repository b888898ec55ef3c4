//! The small buckets: what etcd notes about itself, its members, its users. Lists are cut where no cluster ends.

use serde::{Deserialize, Deserializer, Serialize};

use super::record::Revision;
use super::wire::{self, Field};
use crate::database::{Entry, Error};
use crate::source::ReadAt;

/// How long the lists of names are at most; more are counted.
const MOST: usize = 10_000;
/// The longest value that is looked at: a member with its URLs, a user with the roles.
const LONGEST: usize = 1 << 20;

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its ID.
    pub id: u64,
    /// Its name; empty until it has started.
    #[serde(default)]
    pub name: String,
    /// Where its peers reach it.
    #[serde(default, rename = "peerURLs", deserialize_with = "or_none")]
    pub peer_urls: Vec<String>,
    /// Where clients reach it.
    #[serde(default, rename = "clientURLs", deserialize_with = "or_none")]
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    #[serde(default, rename = "isLearner")]
    pub is_learner: bool,
}

/// Who belongs to the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Roster {
    /// Voters and learners.
    pub members: Vec<Member>,
    /// The IDs of those who were removed; they never come back.
    pub removed: Vec<u64>,
}

/// An alarm that was on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Alarm {
    /// Whose it is.
    pub member: u64,
    /// `NOSPACE`, `CORRUPT`, or a number.
    pub alarm: String,
}

/// Users and what they may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// Whether it is asked for.
    pub enabled: bool,
    /// Its own revision.
    pub revision: Option<u64>,
    /// The names of users.
    pub users: Vec<String>,
    /// The names of roles.
    pub roles: Vec<String>,
}

/// Voters and learners as raft counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfState {
    /// IDs of voters.
    #[serde(default, deserialize_with = "or_none")]
    pub voters: Vec<u64>,
    /// IDs of learners.
    #[serde(default, deserialize_with = "or_none")]
    pub learners: Vec<u64>,
}

/// A downgrade that was under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downgrade {
    /// To which version.
    #[serde(default, rename = "target-version")]
    pub target: String,
    /// Whether it was on.
    #[serde(default)]
    pub enabled: bool,
}

/// Versions that left a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// Of the cluster: the lowest minor of its members.
    pub cluster: Option<String>,
    /// Of the file's own form, from 3.6 on.
    pub storage: Option<String>,
    /// A downgrade.
    pub downgrade: Option<Downgrade>,
}

/// What the small buckets say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// The last revision of which older ones are gone.
    pub compacted: Option<i64>,
    /// The last revision up to which compaction was begun.
    pub compacting: Option<i64>,
    /// The last entry of the raft log that is in the file.
    pub consistent_index: Option<u64>,
    /// Its term, from 3.5 on.
    pub term: Option<u64>,
    /// The members as raft counts them, from 3.5 on.
    pub conf_state: Option<ConfState>,
    /// Versions.
    pub versions: Versions,
    /// Members.
    pub roster: Roster,
    /// Alarms that were on.
    pub alarms: Vec<Alarm>,
    /// Users and roles.
    pub auth: Auth,
    /// How many leases there are; only a walk counts them.
    pub leases: Option<u64>,
}

/// The buckets that [`Facts`] are made of, without that of leases, which may be long.
pub(super) const SHORT: [&[u8]; 8] = [
    super::META,
    b"alarm",
    b"auth",
    b"authRoles",
    b"authUsers",
    b"cluster",
    b"members",
    b"members_removed",
];

/// The newest etcd whose files are known.
const NEWEST: (u32, u32) = (3, 7);

/// All buckets there are.
pub(super) const BUCKETS: [&[u8]; 10] = [
    super::KEY,
    super::META,
    b"alarm",
    b"auth",
    b"authRoles",
    b"authUsers",
    b"cluster",
    b"lease",
    b"members",
    b"members_removed",
];

/// Why a value was not taken.
type Why = String;

impl Facts {
    /// Takes in an entry of a bucket that belongs here. Whether it is known: a later etcd may keep more.
    pub(super) fn take<S: ReadAt>(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<bool, Error> {
        let value = entry.value.whole(source, LONGEST)?;
        let result = match value {
            None => Err("it is far too long".to_owned()),
            Some(value) => self.dispatch(entry.bucket, entry.key, &value),
        };
        result.map_err(|why| entry.wrong(&why))
    }

    fn dispatch(&mut self, bucket: &[u8], key: &[u8], value: &[u8]) -> Result<bool, Why> {
        match bucket {
            b"meta" => return self.note(key, value),
            b"auth" => return self.auth_note(key, value),
            b"cluster" => return self.cluster_note(key, value),
            b"alarm" => push(&mut self.alarms, alarm(key)?),
            b"authUsers" => push(&mut self.auth.users, named(key, value)?),
            b"authRoles" => push(&mut self.auth.roles, named(key, value)?),
            b"members" => push(&mut self.roster.members, member(key, value)?),
            b"members_removed" if value == b"removed" => push(&mut self.roster.removed, id(key)?),
            b"members_removed" => return Err("it does not say that the member was removed".to_owned()),
            b"lease" => {
                lease(key, value)?;
                *self.leases.get_or_insert(0) += 1;
                Ok(())
            }
            _ => return Ok(false),
        }
        .map(|()| true)
    }

    fn note(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Why> {
        match key {
            b"finishedCompactRev" => self.compacted = Some(compaction(value)?),
            b"scheduledCompactRev" => self.compacting = Some(compaction(value)?),
            b"consistent_index" => self.consistent_index = Some(eight(value)?),
            b"term" => self.term = Some(eight(value)?),
            b"confState" => self.conf_state = Some(json(value)?),
            b"storageVersion" => self.versions.storage = Some(text(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn auth_note(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Why> {
        match (key, value) {
            (b"authEnabled", [enabled @ (0 | 1)]) => self.auth.enabled = *enabled == 1,
            (b"authEnabled", _) => return Err("it is neither on nor off".to_owned()),
            (b"authRevision", value) => self.auth.revision = Some(eight(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn cluster_note(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Why> {
        match key {
            b"clusterVersion" => self.versions.cluster = Some(text(value)?),
            b"downgrade" => self.versions.downgrade = Some(json(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the file is by an etcd that is newer than those whose files are known here.
    pub(super) fn is_of_the_future(&self) -> bool {
        let storage = self.versions.storage.as_deref().unwrap_or_default();
        let mut parts = storage.split('.').map(|part| part.parse().unwrap_or(0));
        let version: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        version > NEWEST
    }
}

fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), Why> {
    if list.len() < MOST {
        list.push(item);
        return Ok(());
    }
    Err(format!("it is one of more than {MOST}"))
}

fn compaction(value: &[u8]) -> Result<i64, Why> {
    match Revision::parse(value) {
        Ok((revision, false)) => Ok(revision.main),
        Ok((_, true)) => Err("it is a deletion".to_owned()),
        Err(why) => Err(why.to_owned()),
    }
}

fn eight(value: &[u8]) -> Result<u64, Why> {
    <[u8; 8]>::try_from(value)
        .map(u64::from_be_bytes)
        .map_err(|_| format!("it has {} bytes, not 8", value.len()))
}

fn text(value: &[u8]) -> Result<String, Why> {
    let text = std::str::from_utf8(value).map_err(|_| "it is not text")?;
    let is_version = !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ".-+".contains(c));
    if is_version {
        Ok(text.to_owned())
    } else {
        Err("it is not a version".to_owned())
    }
}

fn json<T: for<'a> Deserialize<'a>>(value: &[u8]) -> Result<T, Why> {
    serde_json::from_slice(value).map_err(|error| error.to_string())
}

/// A list that Go writes as `null` when there is none.
fn or_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// An ID as the key of a member: hexadecimal without zeros in front.
fn id(key: &[u8]) -> Result<u64, Why> {
    std::str::from_utf8(key)
        .ok()
        .and_then(|text| {
            u64::from_str_radix(text, 16)
                .ok()
                .filter(|id| format!("{id:x}") == text)
        })
        .ok_or_else(|| "it is not the ID of a member".to_owned())
}

fn member(key: &[u8], value: &[u8]) -> Result<Member, Why> {
    let (id, member) = (id(key)?, json::<Member>(value)?);
    if member.id == id {
        return Ok(member);
    }
    Err(format!("it is the member {:x}", member.id))
}

fn fields(bytes: &[u8]) -> Result<Vec<(u64, Field<'_>)>, Why> {
    wire::fields(bytes).ok_or_else(|| "it cannot be decoded".to_owned())
}

fn alarm(key: &[u8]) -> Result<Alarm, Why> {
    let (mut member, mut kind) = (0, 0);
    for field in fields(key)? {
        match field {
            (1, Field::Number(id)) => member = id,
            (2, Field::Number(number)) => kind = number,
            _ => return Err("it is not an alarm".to_owned()),
        }
    }
    let alarm = match kind {
        1 => "NOSPACE".to_owned(),
        2 => "CORRUPT".to_owned(),
        other => other.to_string(),
    };
    Ok(Alarm { member, alarm })
}

/// The name of a user or a role, which is its key and its first field.
fn named(key: &[u8], value: &[u8]) -> Result<String, Why> {
    let has_name = fields(value)?.contains(&(1, Field::Bytes(key)));
    match std::str::from_utf8(key) {
        Ok(name) if has_name => Ok(name.to_owned()),
        _ => Err("it does not have the name of its key".to_owned()),
    }
}

/// A lease says its ID again, and how long it lasts.
fn lease(key: &[u8], value: &[u8]) -> Result<(), Why> {
    let id = eight(key)?;
    let fields = fields(value)?;
    let lasts = fields
        .iter()
        .any(|field| matches!(field, (2, Field::Number(seconds)) if *seconds > 0));
    if fields.contains(&(1, Field::Number(id))) && lasts {
        return Ok(());
    }
    Err("it is not the lease of its key".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(bucket: &[u8], key: &[u8], value: &[u8]) -> Result<(bool, Facts), Why> {
        let mut facts = Facts::default();
        facts
            .dispatch(bucket, key, value)
            .map(|is_known| (is_known, facts))
    }

    #[test]
    fn lists_that_are_missing_or_null_are_empty() {
        let value = br#"{"id":10,"peerURLs":null,"name":"m"}"#;
        let (_, facts) = note(b"members", b"a", value).expect("a member");
        assert_eq!(facts.roster.members[0].peer_urls, [""; 0]);
        let (_, facts) = note(b"meta", b"confState", br#"{"voters":[1],"learners":null}"#).expect("a state");
        assert_eq!(facts.conf_state.map(|state| state.voters), Some(vec![1]));
    }

    #[test]
    fn a_member_under_the_id_of_another_is_refused() {
        let value = br#"{"id":11,"peerURLs":["http://x"]}"#;
        assert_eq!(note(b"members", b"a", value).unwrap_err(), "it is the member b");
        assert_eq!(
            note(b"members", b"0b", value).unwrap_err(),
            "it is not the ID of a member"
        );
    }

    #[test]
    fn what_a_later_etcd_keeps_is_strange_only_in_files_that_know_no_later_etcd() {
        assert_eq!(
            note(b"meta", b"new", b"1").map(|(is_known, _)| is_known),
            Ok(false)
        );
        for (storage, is_later) in [
            ("3.6.0", false),
            ("3.7.0", false),
            ("3.8.0", true),
            ("4.0.0", true),
        ] {
            let (_, facts) = note(b"meta", b"storageVersion", storage.as_bytes()).expect("a version");
            assert_eq!(facts.is_of_the_future(), is_later, "{storage}");
        }
        assert!(!Facts::default().is_of_the_future());
    }
}
