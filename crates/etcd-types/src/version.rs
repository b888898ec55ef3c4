//! Versions of etcd. Whether one is fit to run is the affair of `policy`.

use std::fmt;
use std::str::FromStr;

/// A version as a server says it or an image's tag tells it. Parsing accepts a leading `v` and drops `+BUILD`. A
/// pre-release is ordered after its release; none is ever run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number: features, flags and file formats change with it.
    pub minor: u32,
    /// The third number: bugs are mended with it.
    pub patch: u32,
    /// What follows a '-', for example rc.0. Empty for a release.
    pub pre: String,
}

/// Why a text is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a version of etcd: MAJOR.MINOR.PATCH, for example 3.6.16")]
pub struct VersionError(String);

/// Why a text is not a minor version that is known here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a known minor version of etcd: MAJOR.MINOR, for example 3.6")]
pub struct MinorError(String);

/// A minor version of etcd that the operator knows: 3.2 to 3.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Minor {
    /// 3.2
    V3_2,
    /// 3.3
    V3_3,
    /// 3.4
    V3_4,
    /// 3.5
    V3_5,
    /// 3.6
    V3_6,
    /// 3.7
    V3_7,
}

impl Minor {
    /// All of them, oldest first.
    pub const ALL: [Self; 6] = [
        Self::V3_2,
        Self::V3_3,
        Self::V3_4,
        Self::V3_5,
        Self::V3_6,
        Self::V3_7,
    ];

    /// The minor version of a version. `None` for those that the operator does not know, such as 3.8 and 4.0.
    pub fn of(version: &Version) -> Option<Self> {
        if version.major != 3 {
            return None;
        }
        Self::ALL
            .into_iter()
            .find(|minor| minor.number() == version.minor)
    }

    /// The number behind `3.`.
    pub fn number(self) -> u32 {
        match self {
            Self::V3_2 => 2,
            Self::V3_3 => 3,
            Self::V3_4 => 4,
            Self::V3_5 => 5,
            Self::V3_6 => 6,
            Self::V3_7 => 7,
        }
    }
}

impl FromStr for Minor {
    type Err = MinorError;

    fn from_str(text: &str) -> Result<Self, MinorError> {
        let known = Self::ALL.into_iter().find(|minor| minor.to_string() == text);
        known.ok_or_else(|| MinorError(text.to_owned()))
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "3.{}", self.number())
    }
}

impl Version {
    /// A release of a known minor version. The patch need not exist.
    pub fn of(minor: Minor, patch: u32) -> Self {
        Self {
            major: 3,
            minor: minor.number(),
            patch,
            pre: String::new(),
        }
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let wrong = || VersionError(text.to_owned());
        let plain = text.strip_prefix('v').unwrap_or(text);
        let plain = plain.split_once('+').map_or(plain, |(version, _build)| version);
        let (numbers, pre) = match plain.split_once('-') {
            Some((_, "")) => return Err(wrong()),
            Some(parts) => parts,
            None => (plain, ""),
        };
        let numbers: Vec<u32> = numbers
            .split('.')
            .map(|part| {
                let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
                is_number.then(|| part.parse().ok()).flatten().ok_or_else(wrong)
            })
            .collect::<Result<_, _>>()?;
        let [major, minor, patch] = numbers[..] else {
            return Err(wrong());
        };
        Ok(Self {
            major,
            minor,
            patch,
            pre: pre.to_owned(),
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if self.pre.is_empty() {
            return Ok(());
        }
        write!(f, "-{}", self.pre)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_servers_and_tags_say_them() {
        for (text, shown) in [
            ("3.2.25", "3.2.25"),
            ("v3.6.16", "3.6.16"),
            ("3.7.0-rc.0", "3.7.0-rc.0"),
            ("3.3.0+git", "3.3.0"),
        ] {
            assert_eq!(
                text.parse::<Version>().map(|version| version.to_string()),
                Ok(shown.to_owned())
            );
        }
        for text in [
            "", "3.6", "3.6.x", "3.6.1.2", "vv3.6.1", "3.6.1-", "3.+6.1", "3.6.1 ",
        ] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_minor_is_known_or_it_is_not() {
        let minor = |text: &str| Minor::of(&text.parse().expect(text));
        for known in Minor::ALL {
            assert_eq!(Minor::of(&Version::of(known, 9)), Some(known));
            assert_eq!(known.to_string().parse(), Ok(known));
        }
        for unknown in ["2.3.8", "3.1.20", "3.8.0", "4.4.0"] {
            assert_eq!(minor(unknown), None, "{unknown}");
        }
        for unknown in ["", "3", "3.8", "3.6.16", "v3.6"] {
            assert!(unknown.parse::<Minor>().is_err(), "{unknown}");
        }
    }
}
