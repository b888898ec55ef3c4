//! etcd versions, parsed from specs and image tags.

use std::{fmt, str::FromStr};

/// An etcd version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtcdVersion {
    /// Major version.
    pub major: u32,
    /// Minor version. Features and file formats change with it.
    pub minor: u32,
    /// Patch version.
    pub patch: u32,
    /// Pre-release suffix after the '-', for example rc.0. Empty for a release.
    pub pre: String,
}

/// A text is not an etcd version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a version: write MAJOR.MINOR.PATCH, for example 3.6.16")]
pub struct VersionError(String);

impl FromStr for EtcdVersion {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let wrong = || VersionError(text.to_owned());
        let plain = text.strip_prefix('v').unwrap_or(text);
        let (numbers, pre) = plain.split_once('-').unwrap_or((plain, ""));
        let part = |part: Option<&str>| -> Result<u32, VersionError> {
            let digits = part.filter(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
            digits.and_then(|p| p.parse().ok()).ok_or_else(wrong)
        };
        let mut parts = numbers.split('.');
        let (major, minor, patch) = (part(parts.next())?, part(parts.next())?, part(parts.next())?);
        let pre_ok = pre
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-');
        if parts.next().is_some() || !pre_ok || (plain.contains('-') && pre.is_empty()) {
            return Err(wrong());
        }
        Ok(Self {
            major,
            minor,
            patch,
            pre: pre.to_owned(),
        })
    }
}

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if self.pre.is_empty() {
            Ok(())
        } else {
            write!(f, "-{}", self.pre)
        }
    }
}

impl EtcdVersion {
    /// The version in the tag of an image, for example `quay.io/coreos/etcd:v3.6.16`. The tag may end in an architecture,
    /// and a digest may follow it. `None` if the tag is not a version.
    pub fn from_image(image: &str) -> Option<Self> {
        let untagged = image.split('@').next()?;
        let (_, tag) = untagged.rsplit_once(':')?;
        if tag.contains('/') {
            return None;
        }
        let architectures = ["-amd64", "-arm64", "-ppc64le", "-s390x", "-riscv64"];
        let tag = architectures
            .iter()
            .find_map(|a| tag.strip_suffix(a))
            .unwrap_or(tag);
        tag.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_with_and_without_a_v() {
        for (text, shown) in [
            ("3.2.25", "3.2.25"),
            ("v3.6.16", "3.6.16"),
            ("3.7.0-rc.0", "3.7.0-rc.0"),
        ] {
            assert_eq!(
                text.parse::<EtcdVersion>().map(|v| v.to_string()),
                Ok(shown.to_owned())
            );
        }
        for bad in [
            "", "abc", "3", "3.6", "3.6.x", "3.6.16.1", "vv3.6.16", "3.6.16-", "3.6.+1", "3.6.16 ",
        ] {
            assert!(bad.parse::<EtcdVersion>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_the_tag_of_an_image_tells_its_version() {
        let check = |image: &str| EtcdVersion::from_image(image).map(|v| v.to_string());
        assert_eq!(check("quay.io/coreos/etcd:v3.4.13").as_deref(), Some("3.4.13"));
        assert_eq!(check("cnych/etcd:v3.4.13").as_deref(), Some("3.4.13"));
        assert_eq!(
            check("registry:5000/etcd:3.6.1-arm64@sha256:00").as_deref(),
            Some("3.6.1")
        );
        for unknown in [
            "etcd",
            "registry:5000/etcd",
            "etcd:latest",
            "etcd@sha256:0123",
            "",
        ] {
            assert_eq!(check(unknown), None, "{unknown}");
        }
    }
}
