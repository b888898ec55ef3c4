//! Maps error codes of the S3 protocol, OSS, GCS and Azure to error classes.

use std::time::Duration;

use http::StatusCode;

use crate::error::{Class, Fault, Origin};
use crate::secret::Redactor;

/// An error response of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorResponse {
    pub status: u16,
    pub code: String,
    pub message: String,
    /// The region (or endpoint) where the bucket is, if the store names it.
    pub region: Option<String>,
    pub retry_after: Option<Duration>,
}

impl ErrorResponse {
    /// Converts the response to a fault with its class and the redacted message of the store.
    pub(crate) fn fault(&self, redactor: &Redactor) -> Fault {
        let mut detail = match (self.code.is_empty(), self.message.is_empty()) {
            (false, false) => format!("{}: {}", self.code, self.message),
            (false, true) => self.code.clone(),
            (true, _) => format!("HTTP {} {}", self.status, self.message),
        };
        if let Some(region) = &self.region {
            detail = format!("the bucket is in {region}; {detail}");
        }
        Fault {
            class: class(&self.code, self.status),
            detail: redactor.redact(&detail),
            retry_after: self.retry_after,
            origin: Origin::Store,
        }
    }
}

fn class(code: &str, status: u16) -> Class {
    class_by_code(code).unwrap_or_else(|| match class_by_status(status) {
        // The store misses something other than the object, such as the user. As `NotFound` a caller would
        // treat the object as absent.
        Class::NotFound if !code.is_empty() => Class::Unsupported,
        other => other,
    })
}

fn class_by_code(code: &str) -> Option<Class> {
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
        // Alibaba Cloud's STS names what is limited, as in `Throttling.User`, and answers with status 400.
        _ if code.starts_with("Throttling.") => Class::Throttled,
        "InternalError" | "ServiceUnavailable" | "RequestTimeout" | "IncompleteBody" | "BadDigest"
        | "InvalidDigest" | "OperationTimedOut" | "Md5Mismatch" | "Busy" => Class::Transient,
        "OperationAborted" | "ConditionalRequestConflict" | "PartAlreadyInProgress" => Class::Conflict,
        "PreconditionFailed" | "FileAlreadyExists" | "BlobAlreadyExists" | "ObjectAlreadyExists" => {
            Class::Exists
        }
        // An object above the size limit of the store cannot be stored, whatever the quota. The other codes
        // mean archived objects, which must be restored from the archive first.
        "EntityTooLarge" | "InvalidObjectState" | "BlobArchived" | "BlobBeingRehydrated" => {
            Class::Unsupported
        }
        _ => return None,
    })
}

fn class_by_status(status: u16) -> Class {
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

/// Whether a response is a web page, or plain text of a server without such a path. No store reports errors
/// like this.
pub(crate) fn is_web_page(status: u16, kind: Option<&str>, body: &[u8]) -> bool {
    // Server errors may come from a proxy and pass. Statuses 401, 403, 407, 408 and 429 may come from a
    // gateway in front of a store.
    let is_store_status = status < 500 && ![401, 403, 407, 408, 429].contains(&status);
    let start = String::from_utf8_lossy(body.get(..64).unwrap_or(body)).to_ascii_lowercase();
    let start = start.trim_start_matches('\u{feff}').trim_start();
    let is_html = kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/html"))
        || start.starts_with("<!doctype html")
        || start.starts_with("<html");
    let is_plain_text = status == 404 && !start.is_empty() && !start.starts_with(['<', '{']);
    is_store_status && (is_html || is_plain_text)
}

/// Parses the seconds of a `Retry-After` header. The date form is ignored.
pub(crate) fn retry_after(value: Option<&str>) -> Option<Duration> {
    value?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, code: &str) -> ErrorResponse {
        ErrorResponse {
            status,
            code: code.to_owned(),
            ..ErrorResponse::default()
        }
    }

    #[test]
    fn the_error_code_decides_and_the_status_only_if_the_code_is_unknown() {
        let class_of = |status, code| response(status, code).fault(&Redactor::default()).class;
        assert_eq!(class_of(400, "ExpiredToken"), Class::Credentials);
        assert_eq!(class_of(403, "RequestTimeTooSkewed"), Class::Clock);
        assert_eq!(class_of(403, "NewCodeOfNextYear"), Class::Forbidden);
        assert_eq!(class_of(200, "InternalError"), Class::Transient);
        assert_eq!(class_of(503, ""), Class::Throttled);
        assert_eq!(class_of(400, "Throttling.User"), Class::Throttled);
        assert_eq!(
            class_of(409, "BlobArchived"),
            Class::Unsupported,
            "a retry does not help"
        );
        assert_eq!(class_of(400, "InvalidBucketName"), Class::NoBucket);
        assert_eq!(
            class_of(413, "EntityTooLarge"),
            Class::Unsupported,
            "free space does not help"
        );
        assert_eq!(class_of(301, ""), Class::WrongRegion);
        assert_eq!(class_of(418, ""), Class::Unsupported);
    }

    #[test]
    fn only_a_missing_object_is_classified_as_not_found() {
        let class_of = |status, code| response(status, code).fault(&Redactor::default()).class;
        assert_eq!(class_of(404, "NoSuchKey"), Class::NotFound);
        assert_eq!(class_of(404, ""), Class::NotFound);
        assert_eq!(class_of(404, "NoSuchBucket"), Class::NoBucket);
        assert_eq!(class_of(404, "XAdminUserNotFound"), Class::Credentials);
        assert_eq!(class_of(404, "NoSuchThingOfNextYear"), Class::Unsupported);
    }

    #[test]
    fn web_pages_are_distinguished_from_store_errors() {
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
                is_web_page(status, kind, body.as_bytes()),
                expected,
                "{status} {body}"
            );
        }
    }

    #[test]
    fn the_region_that_the_store_names_comes_first() {
        let response = ErrorResponse {
            region: Some("eu-west-1".into()),
            ..response(301, "PermanentRedirect")
        };
        assert!(
            response
                .fault(&Redactor::default())
                .detail
                .starts_with("the bucket is in eu-west-1")
        );
    }
}
