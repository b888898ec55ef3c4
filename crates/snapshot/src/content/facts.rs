//! Parses the small buckets: cluster and storage versions, members, alarms, users and roles. The length of
//! lists is limited.

use serde::{Deserialize, Deserializer, Serialize};

use super::protobuf::{self, Field};
use super::record::Revision;
use crate::database::{Entry, Error};
use crate::source::ReadAt;

/// The maximum length of a list. Longer lists are damage.
const MAX_ITEMS: usize = 10_000;
/// The maximum size of a value, such as a member with its URLs or a user with its roles.
const MAX_VALUE_SIZE: usize = 1 << 20;

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The member ID.
    pub id: u64,
    /// The name. Empty until the member has started.
    #[serde(default)]
    pub name: String,
    /// The peer URLs.
    #[serde(default, rename = "peerURLs", deserialize_with = "null_as_empty")]
    pub peer_urls: Vec<String>,
    /// The client URLs.
    #[serde(default, rename = "clientURLs", deserialize_with = "null_as_empty")]
    pub client_urls: Vec<String>,
    /// Whether the member is a learner.
    #[serde(default, rename = "isLearner")]
    pub is_learner: bool,
}

/// The membership of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Roster {
    /// Voters and learners.
    pub members: Vec<Member>,
    /// The IDs of removed members. etcd never reuses them.
    pub removed: Vec<u64>,
}

/// An active alarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Alarm {
    /// The ID of the member that raised it.
    pub member: u64,
    /// `NOSPACE`, `CORRUPT`, or a number.
    pub alarm: String,
}

/// Users and roles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// Whether authentication is enabled.
    pub enabled: bool,
    /// The auth revision.
    pub revision: Option<u64>,
    /// The names of the users.
    pub users: Vec<String>,
    /// The names of the roles.
    pub roles: Vec<String>,
}

/// The raft configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfState {
    /// The IDs of the voters.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub voters: Vec<u64>,
    /// The IDs of the learners.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub learners: Vec<u64>,
}

/// A downgrade in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downgrade {
    /// The target version.
    #[serde(default, rename = "target-version")]
    pub target: String,
    /// Whether the downgrade is enabled.
    #[serde(default)]
    pub enabled: bool,
}

/// The versions recorded in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// The cluster version: the lowest minor version of the members.
    pub cluster: Option<String>,
    /// The storage version, written by etcd 3.6 and newer.
    pub storage: Option<String>,
    /// The downgrade, if any.
    pub downgrade: Option<Downgrade>,
}

/// The content of the small buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// The revision of the last finished compaction.
    pub compacted: Option<i64>,
    /// The revision of the last scheduled compaction.
    pub compacting: Option<i64>,
    /// The index of the last raft entry applied to the file.
    pub consistent_index: Option<u64>,
    /// The term of that entry, written by etcd 3.5 and newer.
    pub term: Option<u64>,
    /// The raft configuration, written by etcd 3.5 and newer.
    pub conf_state: Option<ConfState>,
    /// The versions.
    pub versions: Versions,
    /// The members.
    pub roster: Roster,
    /// The active alarms.
    pub alarms: Vec<Alarm>,
    /// Users and roles.
    pub auth: Auth,
    /// The number of leases. Only a full check counts them.
    pub leases: Option<u64>,
}

/// The buckets that [`Facts`] needs, without the leases, of which there may be many.
pub(super) const SMALL_BUCKETS: [&[u8]; 8] = [
    super::META,
    b"alarm",
    b"auth",
    b"authRoles",
    b"authUsers",
    b"cluster",
    b"members",
    b"members_removed",
];

/// The newest etcd version whose files are known.
const NEWEST_KNOWN: (u32, u32) = (3, 7);

/// All buckets that etcd creates.
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

/// Why a value is invalid.
type Reason = String;

impl Facts {
    /// Adds an entry of one of the buckets. Returns false if the entry is unknown, which a newer etcd may
    /// have written.
    pub(super) fn add_entry<S: ReadAt>(&mut self, source: &mut S, entry: &Entry<'_>) -> Result<bool, Error> {
        let value = entry.value.read_all(source, MAX_VALUE_SIZE)?;
        let result = match value {
            None => Err("it is too long".to_owned()),
            Some(value) => self.parse_entry(entry.bucket, entry.key, &value),
        };
        result.map_err(|why| entry.damage(&why))
    }

    fn parse_entry(&mut self, bucket: &[u8], key: &[u8], value: &[u8]) -> Result<bool, Reason> {
        match bucket {
            b"meta" => return self.parse_meta_entry(key, value),
            b"auth" => return self.parse_auth_entry(key, value),
            b"cluster" => return self.parse_cluster_entry(key, value),
            b"alarm" => push_limited(&mut self.alarms, parse_alarm(key)?),
            b"authUsers" => push_limited(&mut self.auth.users, parse_name(key, value)?),
            b"authRoles" => push_limited(&mut self.auth.roles, parse_name(key, value)?),
            b"members" => push_limited(&mut self.roster.members, parse_member(key, value)?),
            b"members_removed" if value == b"removed" => {
                push_limited(&mut self.roster.removed, parse_member_id(key)?)
            }
            b"members_removed" => return Err("its value is not `removed`".to_owned()),
            b"lease" => {
                check_lease(key, value)?;
                *self.leases.get_or_insert(0) += 1;
                Ok(())
            }
            _ => return Ok(false),
        }
        .map(|()| true)
    }

    fn parse_meta_entry(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Reason> {
        match key {
            b"finishedCompactRev" => self.compacted = Some(parse_compaction(value)?),
            b"scheduledCompactRev" => self.compacting = Some(parse_compaction(value)?),
            b"consistent_index" => self.consistent_index = Some(parse_u64(value)?),
            b"term" => self.term = Some(parse_u64(value)?),
            b"confState" => self.conf_state = Some(parse_json(value)?),
            b"storageVersion" => self.versions.storage = Some(parse_version(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn parse_auth_entry(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Reason> {
        match (key, value) {
            (b"authEnabled", [enabled @ (0 | 1)]) => self.auth.enabled = *enabled == 1,
            (b"authEnabled", _) => return Err("it is neither 0 nor 1".to_owned()),
            (b"authRevision", value) => self.auth.revision = Some(parse_u64(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn parse_cluster_entry(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Reason> {
        match key {
            b"clusterVersion" => self.versions.cluster = Some(parse_version(value)?),
            b"downgrade" => self.versions.downgrade = Some(parse_json(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether an etcd version newer than the known ones wrote the file.
    pub(super) fn is_from_newer_etcd(&self) -> bool {
        let storage = self.versions.storage.as_deref().unwrap_or_default();
        let mut parts = storage.split('.').map(|part| part.parse().unwrap_or(0));
        let version: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        version > NEWEST_KNOWN
    }
}

fn push_limited<T>(list: &mut Vec<T>, item: T) -> Result<(), Reason> {
    if list.len() < MAX_ITEMS {
        list.push(item);
        return Ok(());
    }
    Err(format!("the bucket has more than {MAX_ITEMS} entries"))
}

fn parse_compaction(value: &[u8]) -> Result<i64, Reason> {
    match Revision::parse(value) {
        Ok((revision, false)) => Ok(revision.main),
        Ok((_, true)) => Err("it is a deletion".to_owned()),
        Err(why) => Err(why.to_owned()),
    }
}

fn parse_u64(value: &[u8]) -> Result<u64, Reason> {
    <[u8; 8]>::try_from(value)
        .map(u64::from_be_bytes)
        .map_err(|_| format!("it has {} bytes, not 8", value.len()))
}

fn parse_version(value: &[u8]) -> Result<String, Reason> {
    let text = std::str::from_utf8(value).map_err(|_| "it is not UTF-8 text")?;
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

fn parse_json<T: for<'a> Deserialize<'a>>(value: &[u8]) -> Result<T, Reason> {
    serde_json::from_slice(value).map_err(|error| error.to_string())
}

/// Deserializes a list. Go writes an empty list as `null`.
fn null_as_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Parses the key of a member: its ID in hexadecimal without leading zeros.
fn parse_member_id(key: &[u8]) -> Result<u64, Reason> {
    std::str::from_utf8(key)
        .ok()
        .and_then(|text| {
            u64::from_str_radix(text, 16)
                .ok()
                .filter(|id| format!("{id:x}") == text)
        })
        .ok_or_else(|| "it is not a member ID".to_owned())
}

fn parse_member(key: &[u8], value: &[u8]) -> Result<Member, Reason> {
    let (id, member) = (parse_member_id(key)?, parse_json::<Member>(value)?);
    if member.id == id {
        return Ok(member);
    }
    Err(format!("it contains the member {:x}", member.id))
}

fn parse_fields(bytes: &[u8]) -> Result<Vec<(u64, Field<'_>)>, Reason> {
    protobuf::parse_fields(bytes).ok_or_else(|| "it is not valid protobuf".to_owned())
}

fn parse_alarm(key: &[u8]) -> Result<Alarm, Reason> {
    let (mut member, mut kind) = (0, 0);
    for field in parse_fields(key)? {
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

/// Parses a user or role. The name is the key and also the first field of the value.
fn parse_name(key: &[u8], value: &[u8]) -> Result<String, Reason> {
    let has_name = parse_fields(value)?.contains(&(1, Field::Bytes(key)));
    match std::str::from_utf8(key) {
        Ok(name) if has_name => Ok(name.to_owned()),
        _ => Err("its name differs from its key".to_owned()),
    }
}

/// Checks a lease. Its value repeats the ID and contains the TTL.
fn check_lease(key: &[u8], value: &[u8]) -> Result<(), Reason> {
    let id = parse_u64(key)?;
    let fields = parse_fields(value)?;
    let has_ttl = fields
        .iter()
        .any(|field| matches!(field, (2, Field::Number(seconds)) if *seconds > 0));
    if fields.contains(&(1, Field::Number(id))) && has_ttl {
        return Ok(());
    }
    Err("its lease differs from its key".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bucket: &[u8], key: &[u8], value: &[u8]) -> Result<(bool, Facts), Reason> {
        let mut facts = Facts::default();
        facts
            .parse_entry(bucket, key, value)
            .map(|is_known| (is_known, facts))
    }

    #[test]
    fn missing_and_null_lists_are_empty() {
        let value = br#"{"id":10,"peerURLs":null,"name":"m"}"#;
        let (_, facts) = parse(b"members", b"a", value).expect("a member");
        assert_eq!(facts.roster.members[0].peer_urls, [""; 0]);
        let (_, facts) = parse(b"meta", b"confState", br#"{"voters":[1],"learners":null}"#).expect("a state");
        assert_eq!(facts.conf_state.map(|state| state.voters), Some(vec![1]));
    }

    #[test]
    fn a_member_with_another_id_than_its_key_is_refused() {
        let value = br#"{"id":11,"peerURLs":["http://x"]}"#;
        assert_eq!(
            parse(b"members", b"a", value).unwrap_err(),
            "it contains the member b"
        );
        assert_eq!(
            parse(b"members", b"0b", value).unwrap_err(),
            "it is not a member ID"
        );
    }

    #[test]
    fn unknown_entries_are_tolerated_in_files_of_newer_etcd_versions() {
        assert_eq!(
            parse(b"meta", b"new", b"1").map(|(is_known, _)| is_known),
            Ok(false)
        );
        for (storage, is_later) in [
            ("3.6.0", false),
            ("3.7.0", false),
            ("3.8.0", true),
            ("4.0.0", true),
        ] {
            let (_, facts) = parse(b"meta", b"storageVersion", storage.as_bytes()).expect("a version");
            assert_eq!(facts.is_from_newer_etcd(), is_later, "{storage}");
        }
        assert!(!Facts::default().is_from_newer_etcd());
    }
}
