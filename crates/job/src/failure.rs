//! Why a Job failed: a reason for programs, a message for people, and whether a retry may help. Never contains a secret.

use std::borrow::Cow;
use std::fmt;

use etcd_operator_etcd::error::{Class as EtcdClass, Error as EtcdError};
use etcd_operator_store::error::{Class, Error as StoreError};
use etcd_operator_store::secret::InvalidConfig;

use crate::cli_messages;
use crate::member_choice::NoUsableMember;
use crate::stream_limits::LimitExceeded;

/// Why a Job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason, one CamelCase word.
    pub reason: Cow<'static, str>,
    /// The message.
    pub message: String,
    /// Whether a retry of the same order may succeed.
    pub is_retriable: bool,
}

/// The reason if a Secret with encryption keys is invalid, or a key is missing.
pub const KEY: &str = "Key";
/// The reason if a Secret with the CA of a store is invalid.
pub const AUTHORITY: &str = "Authority";
/// The reason if a Secret with certificates for etcd is invalid.
pub const CLIENT_TLS: &str = "ClientTLS";

impl Failure {
    /// A failure that a retry does not cure.
    pub fn permanent(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
            is_retriable: false,
        }
    }

    /// A failure that a retry may cure.
    pub fn retriable(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            is_retriable: true,
            ..Self::permanent(reason, message)
        }
    }

    /// An invalid order.
    pub fn bad_order(message: impl Into<String>) -> Self {
        Self::permanent("BadOrder", message)
    }

    /// A missing or invalid Secret with credentials of a store.
    pub fn bad_secret(message: impl Into<String>) -> Self {
        Self::permanent(Class::Credentials.as_str(), message)
    }

    /// The same failure with another reason.
    #[must_use]
    pub fn with_reason(self, reason: &'static str) -> Self {
        Self {
            reason: reason.into(),
            ..self
        }
    }

    /// The same failure for a command run by hand: its message names flags instead of fields.
    #[must_use]
    pub fn by_hand(self) -> Self {
        Self {
            message: cli_messages::by_hand(&self.message),
            ..self
        }
    }

    /// The same failure with context before its message.
    #[must_use]
    pub fn with_context(self, context: &str) -> Self {
        Self {
            message: format!("{context}: {}", self.message),
            ..self
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let is_retriable =
            error.class.is_worth_retrying() || matches!(error.class, Class::NoUpload | Class::Changed);
        Self {
            reason: error.class.as_str().into(),
            message: error.to_string(),
            is_retriable,
        }
    }
}

impl From<EtcdError> for Failure {
    fn from(error: EtcdError) -> Self {
        let message = error.to_string();
        match error.class() {
            EtcdClass::Unauthorised => Self::permanent("Unauthorised", message),
            EtcdClass::Unsupported => Self::permanent("Unsupported", message),
            EtcdClass::Corrupt => Self::permanent("SnapshotDamaged", message),
            _ => Self::retriable("StreamBroken", message),
        }
    }
}

impl From<InvalidConfig> for Failure {
    fn from(bad: InvalidConfig) -> Self {
        if bad.setting.ends_with("caSecret") {
            return Self::permanent(AUTHORITY, bad.to_string());
        }
        if bad.setting == "clientTLSSecret" {
            return Self::permanent(CLIENT_TLS, bad.to_string());
        }
        if bad.setting.contains("Secret") || bad.setting.contains("of spec.encryption") {
            return Self::bad_secret(bad.to_string());
        }
        Self::bad_order(bad.to_string())
    }
}

impl From<NoUsableMember> for Failure {
    fn from(none: NoUsableMember) -> Self {
        let message = none.to_string();
        match none {
            NoUsableMember::NoAnswer | NoUsableMember::AllCorrupt => Self::retriable("NoMember", message),
            NoUsableMember::DifferentClusters(_) | NoUsableMember::OtherCluster { .. } => {
                Self::permanent("OtherCluster", message)
            }
        }
    }
}

impl From<LimitExceeded> for Failure {
    fn from(exceeded: LimitExceeded) -> Self {
        let reason = match exceeded {
            LimitExceeded::TooSlow { .. } => "TooSlow",
            LimitExceeded::DatabaseGrew { .. } => "DatabaseGrew",
        };
        Self::retriable(reason, exceeded.to_string())
    }
}
