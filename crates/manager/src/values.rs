//! Parsers for values of flags and environment variables. An empty variable counts as unset.

use std::net::SocketAddr;

use etcd_operator_api::cluster::{DefaultRepository, RepositoryError};
use etcd_operator_cluster_core::build::OperatorImage;
use etcd_operator_etcd::policy::IntermediateVersions;
use etcd_operator_etcd::version::Version;
use tracing_subscriber::EnvFilter;

/// Default name of the Lease.
pub(crate) const DEFAULT_LEASE: &str = "etcd-operator";
/// Default address of the health server.
pub(crate) const DEFAULT_HEALTH_ADDRESS: &str = "0.0.0.0:8080";
/// Default log level.
pub(crate) const DEFAULT_LOG_LEVEL: &str = "info";

/// The log levels, least verbose first.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Parses a boolean that defaults to false.
pub(crate) fn parse_off_by_default(text: &str) -> Result<bool, String> {
    parse_bool(text, false)
}

/// Parses a boolean that defaults to true.
pub(crate) fn parse_on_by_default(text: &str) -> Result<bool, String> {
    parse_bool(text, true)
}

fn parse_bool(text: &str, default: bool) -> Result<bool, String> {
    match text.trim() {
        "" => Ok(default),
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// Parses the versions that members run on their way, separated by commas.
pub(crate) fn parse_intermediate_versions(text: &str) -> Result<IntermediateVersions, String> {
    let named = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let versions: Result<Vec<Version>, _> = named.map(str::parse).collect();
    IntermediateVersions::new(versions.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

/// Parses the name of a namespace, or an empty string.
pub(crate) fn parse_namespace(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() || is_label(name) {
        return Ok(name.to_owned());
    }
    Err("is not a namespace name: it must consist of at most 63 lower-case letters, digits and '-', and start and end with a letter or digit; for example: shop".to_owned())
}

/// Parses the name of a Lease; an empty text is the default name.
pub(crate) fn parse_lease(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() {
        return Ok(DEFAULT_LEASE.to_owned());
    }
    if name.len() <= 253 && name.split('.').all(is_label) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "is not a Lease name: it must consist of lower-case letters, digits, '-' and '.', and start and end with a letter or digit; for example: {DEFAULT_LEASE}"
    ))
}

fn is_label(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 63
        && text.starts_with(is_allowed)
        && text.ends_with(is_allowed)
        && text.chars().all(|c| is_allowed(c) || c == '-')
}

/// Parses an image reference, or an empty string.
pub(crate) fn parse_image(text: &str) -> Result<String, String> {
    let image = text.trim();
    if image.is_empty() {
        return Ok(String::new());
    }
    let checked: Result<OperatorImage, _> = image.parse();
    checked
        .map(|image| image.to_string())
        .map_err(|error| error.to_string())
}

/// Parses the repository of the default etcd image; an empty text is upstream's.
pub(crate) fn parse_repository(text: &str) -> Result<DefaultRepository, String> {
    text.parse().map_err(|error: RepositoryError| error.to_string())
}

/// Parses an address to listen on; an empty text is the default address.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text = if text.trim().is_empty() {
        DEFAULT_HEALTH_ADDRESS
    } else {
        text.trim()
    };
    text.parse()
        .map_err(|_| format!("is not IP:PORT; for example: {DEFAULT_HEALTH_ADDRESS}"))
}

/// Parses a log level or a filter by module; an empty text is the default level. `EnvFilter` would take any other word
/// for a module name and mute all other modules.
pub(crate) fn parse_log_level(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(DEFAULT_LOG_LEVEL.to_owned());
    }
    let known =
        |part: &str| part.contains('=') || LEVELS.iter().any(|level| level.eq_ignore_ascii_case(part));
    if !text.split(',').map(str::trim).all(known) {
        return Err(format!(
            "is not a level or filter: use {}, or MODULE=LEVEL; for example: {DEFAULT_LOG_LEVEL},etcd_operator_runtime=debug",
            LEVELS.join(", ")
        ));
    }
    EnvFilter::try_new(text)
        .map(|_| text.to_owned())
        .map_err(|error| {
            format!("is not a filter: {error}; for example: {DEFAULT_LOG_LEVEL},etcd_operator_runtime=debug")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters_are_accepted_and_other_words_rejected() {
        for bad in [
            "loud",
            "information",
            "info,loud",
            "etcd_operator_runtime",
            "a=loud",
            "3",
        ] {
            let why = parse_log_level(bad).expect_err(bad);
            assert!(why.contains("for example: info"), "{bad}: {why}");
        }
        for good in [
            "info",
            "WARN",
            "off",
            "info,etcd_operator_runtime=debug",
            "a=trace, warn",
        ] {
            assert_eq!(parse_log_level(good), Ok(good.to_owned()));
        }
    }

    #[test]
    fn names_that_the_api_server_would_reject_are_rejected() {
        let long = "a".repeat(64);
        for bad in ["Bad Name/x", "Shop", "-a", "a-", "a_b", "ü", &long] {
            assert!(parse_namespace(bad).is_err(), "{bad}");
            assert!(parse_lease(bad).is_err(), "{bad}");
        }
        assert!(parse_namespace("a.b").is_err() && parse_lease("a..b").is_err());
        assert_eq!(parse_lease("a.b-1"), Ok("a.b-1".to_owned()));
        assert_eq!(parse_namespace(" shop-1 "), Ok("shop-1".to_owned()));
    }

    #[test]
    fn an_empty_value_is_the_default() {
        assert_eq!(
            (parse_off_by_default(""), parse_on_by_default("")),
            (Ok(false), Ok(true))
        );
        assert_eq!(
            (parse_namespace(""), parse_image(" ")),
            (Ok(String::new()), Ok(String::new()))
        );
        assert_eq!(parse_lease(""), Ok(DEFAULT_LEASE.to_owned()));
        assert_eq!(parse_log_level(""), Ok(DEFAULT_LOG_LEVEL.to_owned()));
        assert_eq!(parse_address(""), parse_address(DEFAULT_HEALTH_ADDRESS));
    }
}
