//! Names of objects, and which of the names in a store belong to a path. Pure.
//!
//! A single backup is named as the path says; a periodic one `path_v<revision>_<UTC time>`. What only begins with the
//! same letters belongs to somebody else.

use etcd_operator_api::contract::{CLAIM_SUFFIX, MANIFEST_SUFFIX, Naming};
use etcd_operator_api::location::TIME;
pub use etcd_operator_api::location::belongs;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Who makes backups that no `EtcdBackup` asked for: anybody, so that none of them is the maker's of another.
pub const BY_HAND: &str = "by-hand";
/// The name of a backup taken now of a member that is at this revision.
pub fn object(path: &str, naming: Naming, revision: i64, at: Timestamp) -> String {
    match naming {
        Naming::OneShot => path.to_owned(),
        Naming::Periodic => {
            let time = at.to_zoned(TimeZone::UTC).strftime(TIME).to_string();
            format!("{path}_v{revision}_{time}")
        }
    }
}

/// The name of the manifest of an object.
pub fn manifest(object: &str) -> String {
    format!("{object}{MANIFEST_SUFFIX}")
}

/// The name of the claim on an object.
pub fn claim(object: &str) -> String {
    format!("{object}{CLAIM_SUFFIX}")
}

/// What a name is, and of which object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The object.
    Object,
    /// Its manifest.
    Manifest,
    /// The claim on it.
    Claim,
}

/// The object that a name belongs to.
pub fn parse(name: &str) -> (&str, Kind) {
    if let Some(object) = name.strip_suffix(MANIFEST_SUFFIX) {
        (object, Kind::Manifest)
    } else if let Some(object) = name.strip_suffix(CLAIM_SUFFIX) {
        (object, Kind::Claim)
    } else {
        (name, Kind::Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn names_are_those_of_the_older_operator() {
        let time = at("2019-12-15T15:57:59.9Z");
        assert_eq!(object("etcd.backup", Naming::OneShot, 3, time), "etcd.backup");
        assert_eq!(
            object("etcd.backup", Naming::Periodic, 3, time),
            "etcd.backup_v3_2019-12-15-15:57:59"
        );
        assert_eq!(
            object("100%d", Naming::Periodic, 12, at("2019-12-15T01:02:03+09:00")),
            "100%d_v12_2019-12-14-16:02:03"
        );
    }

    #[test]
    fn every_name_leads_back_to_its_object() {
        let name = "etcd/orders_v3_2019-12-15-15:57:59";
        assert_eq!(parse(name), (name, Kind::Object));
        assert_eq!(parse(&manifest(name)), (name, Kind::Manifest));
        assert_eq!(parse(&claim(name)), (name, Kind::Claim));
    }
}
