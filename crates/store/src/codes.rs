//! The error codes of S3 and of the stores that took its words over, as classes.

use std::time::Duration;

use http::StatusCode;

use crate::error::{Class, Fault};
use crate::secret::Censor;

/// What a refusal says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: u16,
    pub code: String,
    pub message: String,
    /// The region the bucket really lies in, where the store says so.
    pub region: Option<String>,
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// The refusal as a class with the store's own words.
    pub(crate) fn fault(&self, censor: &Censor) -> Fault {
        let mut said = match (self.code.is_empty(), self.message.is_empty()) {
            (false, false) => format!("{}: {}", self.code, self.message),
            (false, true) => self.code.clone(),
            (true, _) => format!("HTTP {} {}", self.status, self.message),
        };
        if let Some(region) = &self.region {
            said = format!("the bucket is in {region}; {said}");
        }
        Fault {
            class: class(&self.code, self.status),
            said: censor.clean(&said),
            retry_after: self.retry_after,
        }
    }
}

fn class(code: &str, status: u16) -> Class {
    by_code(code).unwrap_or_else(|| match by_status(status) {
        // Something else is missing than the object, such as the user: who took it for the object would go on without it.
        Class::NotFound if !code.is_empty() => Class::Unsupported,
        other => other,
    })
}

fn by_code(code: &str) -> Option<Class> {
    Some(match code {
        "NoSuchKey" | "NoSuchVersion" | "NotFound" | "BlobNotFound" => Class::NotFound,
        "NoSuchBucket"
        | "ContainerNotFound"
        | "ContainerBeingDeleted"
        | "NoSuchContainer"
        | "InvalidBucketName"
        | "InvalidResourceName" => Class::NoBucket,
        "NoSuchUpload" | "InvalidBlockList" => Class::NoUpload,
        "AccessDenied"
        | "AllAccessDisabled"
        | "AuthorizationPermissionMismatch"
        | "UserDisable"
        | "AccountProblem"
        | "AuthorizationFailure"
        | "InsufficientAccountPermissions"
        | "AccessForbidden" => Class::Forbidden,
        "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "InvalidToken"
        | "TokenRefreshRequired"
        | "SecurityTokenExpired"
        | "InvalidSecurityToken"
        | "SecurityTokenNotSupported"
        | "AuthenticationFailed"
        | "NoAuthenticationInformation"
        | "InvalidAuthenticationInfo"
        | "AuthenticationRequired"
        | "InvalidSecurity"
        | "UnauthorizedAccess"
        | "XAdminUserNotFound"
        | "CredentialsNotLoaded" => Class::Credentials,
        "RequestTimeTooSkewed" | "RequestExpired" => Class::Clock,
        "PermanentRedirect"
        | "TemporaryRedirect"
        | "AuthorizationHeaderMalformed"
        | "IllegalLocationConstraintException"
        | "InvalidRegion"
        | "Redirect" => Class::WrongRegion,
        "QuotaExceeded"
        | "InsufficientStorage"
        | "XMinioStorageFull"
        | "AccountQuotaExceeded"
        | "TooMuchData"
        | "StorageFull"
        | "BucketQuotaExceeded" => Class::Full,
        "ObjectLocked"
        | "FileImmutable"
        | "BlobImmutableDueToPolicy"
        | "ObjectImmutable"
        | "BlobImmutableDueToLegalHold"
        | "LeaseIdMissing"
        | "SnapshotsPresent"
        | "ObjectUnderActiveHold"
        | "RetentionPolicyNotMet" => Class::Locked,
        "SlowDown"
        | "Throttling"
        | "ThrottlingException"
        | "TooManyRequests"
        | "RequestThrottled"
        | "ServerBusy"
        | "RequestLimitExceeded"
        | "BandwidthLimitExceeded"
        | "RateLimitExceeded"
        | "QosQuotaExceeded"
        | "QpsLimitExceeded" => Class::Throttled,
        "InternalError" | "ServiceUnavailable" | "RequestTimeout" | "IncompleteBody" | "BadDigest"
        | "InvalidDigest" | "OperationTimedOut" | "Md5Mismatch" | "Busy" => Class::Transient,
        "OperationAborted" | "ConditionalRequestConflict" | "PartAlreadyInProgress" => Class::Conflict,
        "PreconditionFailed" | "FileAlreadyExists" | "BlobAlreadyExists" | "ObjectAlreadyExists" => {
            Class::Exists
        }
        // One is larger than any object may be, which no room helps with; the others lie in an archive and must be brought
        // back first.
        "EntityTooLarge" | "InvalidObjectState" | "BlobArchived" | "BlobBeingRehydrated" => {
            Class::Unsupported
        }
        _ => return None,
    })
}

fn by_status(status: u16) -> Class {
    match StatusCode::from_u16(status) {
        Ok(StatusCode::NOT_FOUND) => Class::NotFound,
        Ok(StatusCode::FORBIDDEN) => Class::Forbidden,
        Ok(StatusCode::UNAUTHORIZED) => Class::Credentials,
        Ok(StatusCode::CONFLICT) => Class::Conflict,
        Ok(StatusCode::PRECONDITION_FAILED) => Class::Exists,
        Ok(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => Class::Throttled,
        Ok(StatusCode::REQUEST_TIMEOUT) => Class::Transient,
        Ok(StatusCode::INSUFFICIENT_STORAGE) => Class::Full,
        Ok(StatusCode::NOT_IMPLEMENTED) => Class::Unsupported,
        Ok(status) if status.is_redirection() => Class::WrongRegion,
        Ok(status) if status.is_server_error() => Class::Transient,
        _ => Class::Unsupported,
    }
}

/// Whether an answer is a page for people, or a word of a server that knows no such address: no store says so what is wrong.
pub(crate) fn is_page(status: u16, kind: Option<&str>, body: &[u8]) -> bool {
    // What stands between may be ill for a while, or guard the way to a store.
    let may_be_meant = status < 500 && ![401, 403, 407, 408, 429].contains(&status);
    let start = String::from_utf8_lossy(body.get(..64).unwrap_or(body)).to_ascii_lowercase();
    let start = start.trim_start_matches('\u{feff}').trim_start();
    let is_html = kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/html"))
        || start.starts_with("<!doctype html")
        || start.starts_with("<html");
    let is_plain_word = status == 404 && !start.is_empty() && !start.starts_with(['<', '{']);
    may_be_meant && (is_html || is_plain_word)
}

/// The whole seconds of a `Retry-After` header; dates in it are not worth a parser.
pub(crate) fn retry_after(value: Option<&str>) -> Option<Duration> {
    value?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, code: &str) -> Refusal {
        Refusal {
            status,
            code: code.to_owned(),
            ..Refusal::default()
        }
    }

    #[test]
    fn a_code_counts_more_than_a_status_and_an_unknown_one_leaves_it_to_the_status() {
        let of = |status, code| refusal(status, code).fault(&Censor::default()).class;
        assert_eq!(of(400, "ExpiredToken"), Class::Credentials);
        assert_eq!(of(403, "RequestTimeTooSkewed"), Class::Clock);
        assert_eq!(of(403, "NewCodeOfNextYear"), Class::Forbidden);
        assert_eq!(of(200, "InternalError"), Class::Transient);
        assert_eq!(of(503, ""), Class::Throttled);
        assert_eq!(
            of(409, "BlobArchived"),
            Class::Unsupported,
            "waiting does not help"
        );
        assert_eq!(of(400, "InvalidBucketName"), Class::NoBucket);
        assert_eq!(
            of(413, "EntityTooLarge"),
            Class::Unsupported,
            "room does not help"
        );
        assert_eq!(of(301, ""), Class::WrongRegion);
        assert_eq!(of(418, ""), Class::Unsupported);
    }

    #[test]
    fn an_object_is_missing_only_where_the_store_speaks_of_the_object() {
        let of = |status, code| refusal(status, code).fault(&Censor::default()).class;
        assert_eq!(of(404, "NoSuchKey"), Class::NotFound);
        assert_eq!(of(404, ""), Class::NotFound);
        assert_eq!(of(404, "NoSuchBucket"), Class::NoBucket);
        assert_eq!(of(404, "XAdminUserNotFound"), Class::Credentials);
        assert_eq!(of(404, "NoSuchThingOfNextYear"), Class::Unsupported);
    }

    #[test]
    fn a_page_is_told_from_what_stores_say() {
        let html = Some("text/html; charset=utf-8");
        for (status, kind, body, expected) in [
            (404, html, "<html><h1>Not Found</h1>", true),
            (404, None, "\n<!DOCTYPE HTML PUBLIC>", true),
            (200, html, "<!doctype html><title>Console</title>", true),
            (404, Some("text/plain"), "404 page not found\n", true),
            (405, html, "", true),
            (
                404,
                Some("application/xml"),
                "<?xml version=\"1.0\"?><Error/>",
                false,
            ),
            (404, Some("application/json"), "{\"error\": {}}", false),
            (404, None, "", false),
            (502, html, "<html>Bad Gateway", false),
            (403, html, "<html>", false),
        ] {
            assert_eq!(
                is_page(status, kind, body.as_bytes()),
                expected,
                "{status} {body}"
            );
        }
    }

    #[test]
    fn the_region_a_store_names_comes_first() {
        let told = Refusal {
            region: Some("eu-west-1".into()),
            ..refusal(301, "PermanentRedirect")
        };
        assert!(
            told.fault(&Censor::default())
                .said
                .starts_with("the bucket is in eu-west-1")
        );
    }
}
