//! Builds the client for the API server.
//!
//! The client does not retry: the queue decides when to try again. It has no read timeout, because that would end
//! watches without events. Callers set a timeout for every call.

use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config, Error};

/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Builds a client for `config` that sends `user_agent` with every request.
pub fn build(config: Config, user_agent: &str) -> Result<Client, Error> {
    Client::try_from(configure(config, user_agent)?)
}

/// The user agent of the operator: `etcd-operator/VERSION (COMMIT)`.
pub fn user_agent(version: &str, commit: &str) -> String {
    format!("etcd-operator/{version} ({commit})")
}

fn configure(mut config: Config, user_agent: &str) -> Result<Config, Error> {
    let agent = HeaderValue::from_str(user_agent).map_err(|error| Error::HttpError(error.into()))?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = None;
    config.headers.retain(|(name, _)| name != USER_AGENT);
    config.headers.push((USER_AGENT, agent));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_neither_retries_nor_has_a_read_timeout() {
        let config = Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        let config = configure(config, &user_agent("1.2.3", "abc")).unwrap();
        assert!(!config.default_retry);
        assert_eq!(
            (config.connect_timeout, config.read_timeout),
            (Some(CONNECT_TIMEOUT), None)
        );
        assert_eq!(
            config.headers,
            [(USER_AGENT, HeaderValue::from_static("etcd-operator/1.2.3 (abc)"))]
        );
    }

    #[test]
    fn a_user_agent_that_is_not_a_valid_header_is_rejected() {
        let config = Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        assert!(build(config, "line\nbreak").is_err());
    }
}
