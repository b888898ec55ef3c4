//! The names of objects, manifests and claims in a store. Pure.
//!
//! A one-shot backup has the name of its path; a periodic one is named `path_v<revision>_<UTC time>`. Other names that start
//! with the path belong to other backups.

use etcd_operator_api::contract::{CLAIM_SUFFIX, MANIFEST_SUFFIX, Naming};
use etcd_operator_api::location::TIME;
pub use etcd_operator_api::location::belongs;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The owner UID of backups made by hand. Anyone may have made them, so two of them do not belong together.
pub const BY_HAND: &str = "by-hand";

/// The object name of a backup of a member at this revision.
pub fn object_name(path: &str, naming: Naming, revision: i64, at: Timestamp) -> String {
    match naming {
        Naming::OneShot => path.to_owned(),
        Naming::Periodic => {
            let time = at.to_zoned(TimeZone::UTC).strftime(TIME).to_string();
            format!("{path}_v{revision}_{time}")
        }
    }
}

/// The name of the manifest of an object.
pub fn manifest_name(object: &str) -> String {
    format!("{object}{MANIFEST_SUFFIX}")
}

/// The name of the claim on a stored object, `<object>.claim.json`: the owner of an object that has no manifest yet, or no
/// longer. Not a PersistentVolumeClaim.
pub fn claim_name(object: &str) -> String {
    format!("{object}{CLAIM_SUFFIX}")
}

/// What a name in a store stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// An object.
    Object,
    /// The manifest of an object.
    Manifest,
    /// The claim on an object.
    Claim,
}

/// Parses a name into the name of the object it belongs to, and its kind.
pub fn parse(name: &str) -> (&str, NameKind) {
    if let Some(object) = name.strip_suffix(MANIFEST_SUFFIX) {
        (object, NameKind::Manifest)
    } else if let Some(object) = name.strip_suffix(CLAIM_SUFFIX) {
        (object, NameKind::Claim)
    } else {
        (name, NameKind::Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn names_are_those_of_the_ancestor_operator() {
        let time = at("2019-12-15T15:57:59.9Z");
        assert_eq!(
            object_name("etcd.backup", Naming::OneShot, 3, time),
            "etcd.backup"
        );
        assert_eq!(
            object_name("etcd.backup", Naming::Periodic, 3, time),
            "etcd.backup_v3_2019-12-15-15:57:59"
        );
        assert_eq!(
            object_name("100%d", Naming::Periodic, 12, at("2019-12-15T01:02:03+09:00")),
            "100%d_v12_2019-12-14-16:02:03"
        );
    }

    #[test]
    fn every_name_parses_back_to_its_object() {
        let name = "etcd/orders_v3_2019-12-15-15:57:59";
        assert_eq!(parse(name), (name, NameKind::Object));
        assert_eq!(parse(&manifest_name(name)), (name, NameKind::Manifest));
        assert_eq!(parse(&claim_name(name)), (name, NameKind::Claim));
    }
}
