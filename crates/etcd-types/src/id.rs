//! Ids of clusters and members, and positions in their history. Nothing here is ever counted up or invented.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// Why a text is not an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an id of etcd: 1 to 16 hexadecimal digits, not all zero, for example 8e9e05c52164694d")]
pub struct IdError(String);

/// Parses 1 to 16 hexadecimal digits in either case. Zero is an error: in etcd it means that there is no id.
fn parse(text: &str) -> Result<NonZeroU64, IdError> {
    let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    number
        .and_then(NonZeroU64::new)
        .ok_or_else(|| IdError(text.to_owned()))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// The id with this number; etcd says zero where there is none.
            pub fn new(number: u64) -> Option<Self> {
                NonZeroU64::new(number).map(Self)
            }

            /// Its number, as etcd's protocol has it.
            pub fn get(self) -> u64 {
                self.0.get()
            }
        }

        /// In hexadecimal without leading zeros, as etcd prints it.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                parse(text).map(Self)
            }
        }
    };
}

id! {
    /// The id of a cluster, made from the ids of its first members.
    ClusterId
}
id! {
    /// The id of a member, never used again once it is removed.
    MemberId
}

macro_rules! position {
    ($(#[$doc:meta])* $name:ident, $number:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

position! {
    /// The revision of the keys: one more with every transaction that changed one.
    Revision, i64
}
position! {
    /// The index of an entry in the replicated log.
    RaftIndex, u64
}
position! {
    /// The term of an election.
    RaftTerm, u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_and_print_as_etcd_prints_them() {
        for text in ["8e9e05c52164694d", "1", "cdf818194e3a8c32", "ffffffffffffffff"] {
            assert_eq!(
                text.parse::<MemberId>().map(|id| id.to_string()),
                Ok(text.to_owned())
            );
            assert_eq!(
                text.parse::<ClusterId>().map(|id| id.to_string()),
                Ok(text.to_owned())
            );
        }
        let id: MemberId = "00AB".parse().expect("an id");
        assert_eq!((id.get(), format!("{id:?}")), (0xab, "MemberId(ab)".to_owned()));
    }

    #[test]
    fn what_is_no_id_is_refused_with_an_example() {
        for text in ["", "0", "0000", "0x1", "+1", "g", "10000000000000000", " 1"] {
            let error = text.parse::<MemberId>().expect_err(text).to_string();
            assert!(error.contains("8e9e05c52164694d"), "{error}");
        }
        assert_eq!(MemberId::new(0), None);
    }
}
