//! What the text of a flag or variable may be. A variable that is set to nothing counts as not set.

use std::net::SocketAddr;

use etcd_operator_cluster::build::OperatorImage;
use tracing_subscriber::EnvFilter;

/// The lease where nobody names one.
pub(crate) const LEASE: &str = "etcd-operator";
/// The address of the health server where nobody names one.
pub(crate) const HEALTH_ADDRESS: &str = "0.0.0.0:8080";
/// The level of logs where nobody names one.
pub(crate) const LOG_LEVEL: &str = "info";

/// The levels of logs, the fewest lines first.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A switch that is off unless told otherwise.
pub(crate) fn off(text: &str) -> Result<bool, String> {
    switch(text, false)
}

/// A switch that is on unless told otherwise.
pub(crate) fn on(text: &str) -> Result<bool, String> {
    switch(text, true)
}

fn switch(text: &str, unset: bool) -> Result<bool, String> {
    match text.trim() {
        "" => Ok(unset),
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// The name of a namespace, or nothing.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() || is_label(name) {
        return Ok(name.to_owned());
    }
    Err("is no name of a namespace: it must hold at most 63 lower-case letters, digits and '-', and begin and end with a letter or digit; for example: shop".to_owned())
}

/// The name of a lease.
pub(crate) fn lease(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() {
        return Ok(LEASE.to_owned());
    }
    if name.len() <= 253 && name.split('.').all(is_label) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "is no name of a lease: it must hold lower-case letters, digits, '-' and '.', and begin and end with a letter or digit; for example: {LEASE}"
    ))
}

fn is_label(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 63
        && text.starts_with(plain)
        && text.ends_with(plain)
        && text.chars().all(|c| plain(c) || c == '-')
}

/// The reference of an image, or nothing.
pub(crate) fn image(text: &str) -> Result<String, String> {
    let image = text.trim();
    if image.is_empty() {
        return Ok(String::new());
    }
    let checked: Result<OperatorImage, _> = image.parse();
    checked
        .map(|image| image.to_string())
        .map_err(|error| error.to_string())
}

/// An address to listen on.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let text = if text.trim().is_empty() {
        HEALTH_ADDRESS
    } else {
        text.trim()
    };
    text.parse()
        .map_err(|_| format!("is not IP:PORT; for example: {HEALTH_ADDRESS}"))
}

/// A level of logs, or a filter by module. A word that is neither would be taken for the name of a module and mute
/// all others.
pub(crate) fn log_level(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(LOG_LEVEL.to_owned());
    }
    let known =
        |part: &str| part.contains('=') || LEVELS.iter().any(|level| level.eq_ignore_ascii_case(part));
    if !text.split(',').map(str::trim).all(known) {
        return Err(format!(
            "is no level and no filter: write {}, or MODULE=LEVEL; for example: {LOG_LEVEL},etcd_operator_runtime=debug",
            LEVELS.join(", ")
        ));
    }
    EnvFilter::try_new(text)
        .map(|_| text.to_owned())
        .map_err(|error| {
            format!("is no filter: {error}; for example: {LOG_LEVEL},etcd_operator_runtime=debug")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused_and_filters_are_taken() {
        for bad in [
            "loud",
            "information",
            "info,loud",
            "etcd_operator_runtime",
            "a=loud",
            "3",
        ] {
            let why = log_level(bad).expect_err(bad);
            assert!(why.contains("for example: info"), "{bad}: {why}");
        }
        for good in [
            "info",
            "WARN",
            "off",
            "info,etcd_operator_runtime=debug",
            "a=trace, warn",
        ] {
            assert_eq!(log_level(good), Ok(good.to_owned()));
        }
    }

    #[test]
    fn names_that_the_api_server_would_refuse_are_refused() {
        let long = "a".repeat(64);
        for bad in ["Bad Name/x", "Shop", "-a", "a-", "a_b", "ü", &long] {
            assert!(namespace(bad).is_err(), "{bad}");
            assert!(lease(bad).is_err(), "{bad}");
        }
        assert!(namespace("a.b").is_err() && lease("a..b").is_err());
        assert_eq!(lease("a.b-1"), Ok("a.b-1".to_owned()));
        assert_eq!(namespace(" shop-1 "), Ok("shop-1".to_owned()));
    }

    #[test]
    fn nothing_is_the_default() {
        assert_eq!((off(""), on("")), (Ok(false), Ok(true)));
        assert_eq!(
            (namespace(""), image(" ")),
            (Ok(String::new()), Ok(String::new()))
        );
        assert_eq!(lease(""), Ok(LEASE.to_owned()));
        assert_eq!(log_level(""), Ok(LOG_LEVEL.to_owned()));
        assert_eq!(address(""), address(HEALTH_ADDRESS));
    }
}
