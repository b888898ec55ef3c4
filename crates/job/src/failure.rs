//! Why a Job did not do what it was told: one word for programs, a sentence for people, and whether to try again. Never a
//! secret.

use std::borrow::Cow;
use std::fmt;

use etcd_operator_etcd::error::{Class as EtcdClass, Error as EtcdError};
use etcd_operator_store::error::{Class, Error as StoreError};
use etcd_operator_store::secret::InvalidConfig;

use crate::choice::NoChoice;
use crate::floor::GivenUp;
use crate::hand;

/// Why a Job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In one word.
    pub reason: Cow<'static, str>,
    /// In a sentence.
    pub message: String,
    /// Whether the same order may succeed a little later.
    pub is_retriable: bool,
}

/// A Secret with keys that seal and open is not what it should be.
pub const KEY: &str = "Key";
/// A Secret with the authority of a store is not what it should be.
pub const AUTHORITY: &str = "Authority";
/// A Secret with certificates for etcd is not what it should be.
pub const CLIENT_TLS: &str = "ClientTLS";

impl Failure {
    /// One that another try does not mend.
    pub fn lasting(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
            is_retriable: false,
        }
    }

    /// One that may pass.
    pub fn passing(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            is_retriable: true,
            ..Self::lasting(reason, message)
        }
    }

    /// What is wrong with the order or with what it names.
    pub fn order(message: impl Into<String>) -> Self {
        Self::lasting("BadOrder", message)
    }

    /// What is wrong with a Secret, or that there is none.
    pub fn secret(message: impl Into<String>) -> Self {
        Self::lasting(Class::Credentials.as_str(), message)
    }

    /// The same under the word for the Secret it is about, where that is not the store's.
    #[must_use]
    pub fn about(self, reason: &'static str) -> Self {
        Self {
            reason: reason.into(),
            ..self
        }
    }

    /// The same for whoever runs it by hand, and has flags and no spec.
    #[must_use]
    pub fn by_hand(self) -> Self {
        Self {
            message: hand::by_hand(&self.message),
            ..self
        }
    }

    /// Says first what was being done.
    #[must_use]
    pub fn while_doing(self, what: &str) -> Self {
        Self {
            message: format!("{what}: {}", self.message),
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
        let may_pass =
            error.class.is_worth_retrying() || matches!(error.class, Class::NoUpload | Class::Changed);
        Self {
            reason: error.class.as_str().into(),
            message: error.to_string(),
            is_retriable: may_pass,
        }
    }
}

impl From<EtcdError> for Failure {
    fn from(error: EtcdError) -> Self {
        let message = error.to_string();
        match error.class() {
            EtcdClass::Unauthorised => Self::lasting("Unauthorised", message),
            EtcdClass::Unsupported => Self::lasting("Unsupported", message),
            EtcdClass::Corrupt => Self::lasting("SnapshotDamaged", message),
            _ => Self::passing("StreamBroken", message),
        }
    }
}

impl From<InvalidConfig> for Failure {
    fn from(bad: InvalidConfig) -> Self {
        if bad.setting.ends_with("caSecret") {
            return Self::lasting(AUTHORITY, bad.to_string());
        }
        if bad.setting == "clientTLSSecret" {
            return Self::lasting(CLIENT_TLS, bad.to_string());
        }
        if bad.setting.contains("Secret") || bad.setting.contains("of spec.encryption") {
            return Self::secret(bad.to_string());
        }
        Self::order(bad.to_string())
    }
}

impl From<NoChoice> for Failure {
    fn from(none: NoChoice) -> Self {
        let message = none.to_string();
        match none {
            NoChoice::Nobody | NoChoice::Corrupt => Self::passing("NoMember", message),
            NoChoice::Clusters(_) | NoChoice::Other { .. } => Self::lasting("OtherCluster", message),
        }
    }
}

impl From<GivenUp> for Failure {
    fn from(why: GivenUp) -> Self {
        let reason = match why {
            GivenUp::TooSlow { .. } => "TooSlow",
            GivenUp::Grew { .. } => "DatabaseGrew",
        };
        Self::passing(reason, why.to_string())
    }
}
