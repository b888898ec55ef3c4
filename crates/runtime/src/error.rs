//! Error classes, which determine back-off, condition reason and metric label.
//!
//! Waiting is not an error: a reconcile that waits returns a [`Wake`](crate::queue::Wake).

use kube::Error as KubeError;

/// The class of an error: whether and when a retry can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Goes away by itself or by a change outside the object: retry with exponential back-off.
    Transient,
    /// Another client wrote first: read again and retry soon.
    Conflict,
    /// The object itself is invalid: only an edit helps.
    Invalid,
    /// A bug of the operator: retry slowly and log an error.
    Fatal,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Transient, Self::Conflict, Self::Invalid, Self::Fatal];

    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Conflict => "conflict",
            Self::Invalid => "invalid",
            Self::Fatal => "fatal",
        }
    }

    /// The condition reason, unless the error has a more specific one.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Transient => "TemporaryError",
            Self::Conflict => "Conflict",
            Self::Invalid => "Invalid",
            Self::Fatal => "InternalError",
        }
    }
}

/// An error with a class.
pub trait Classified {
    /// The class of this error.
    fn class(&self) -> Class;

    /// The condition reason: one `CamelCase` word.
    fn reason(&self) -> &'static str {
        self.class().reason()
    }
}

impl Classified for KubeError {
    fn class(&self) -> Class {
        match self {
            Self::Api(status) => match status.code {
                409 => Class::Conflict,
                400 | 422 => Class::Invalid,
                // Includes 401 and 403: an administrator grants access without editing the object.
                _ => Class::Transient,
            },
            Self::BuildRequest(_) | Self::HttpError(_) => Class::Fatal,
            _ => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Api(status) => match status.code {
                401 => "Unauthorized",
                403 => "Forbidden",
                404 => "NotFound",
                429 => "TooManyRequests",
                _ => self.class().reason(),
            },
            Self::HyperError(_) | Self::Service(_) | Self::ReadEvents(_) => "ApiServerUnreachable",
            Self::Auth(_) => "Unauthorized",
            _ => self.class().reason(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn api(code: u16) -> KubeError {
        KubeError::Api(Status::failure("no", "").with_code(code).boxed())
    }

    #[test]
    fn every_status_code_of_the_api_server_has_its_class() {
        let table = [
            (400, Class::Invalid, "Invalid"),
            (401, Class::Transient, "Unauthorized"),
            (403, Class::Transient, "Forbidden"),
            (404, Class::Transient, "NotFound"),
            (409, Class::Conflict, "Conflict"),
            (422, Class::Invalid, "Invalid"),
            (429, Class::Transient, "TooManyRequests"),
            (500, Class::Transient, "TemporaryError"),
            (504, Class::Transient, "TemporaryError"),
        ];
        for (code, class, reason) in table {
            assert_eq!((api(code).class(), api(code).reason()), (class, reason), "{code}");
        }
    }

    #[test]
    fn a_lost_connection_is_transient_with_its_own_reason() {
        let error = KubeError::Service("connection reset".into());
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Transient, "ApiServerUnreachable")
        );
    }

    #[test]
    fn labels_and_reasons_are_distinct() {
        let labels: std::collections::BTreeSet<_> = Class::ALL.map(Class::label).into();
        let reasons: std::collections::BTreeSet<_> = Class::ALL.map(Class::reason).into();
        assert_eq!((labels.len(), reasons.len()), (4, 4));
    }
}
