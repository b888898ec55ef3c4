//! The one way a client for the API server is made.
//!
//! It retries nothing: the queue knows better when to try again. It has no read timeout, for that would end quiet
//! watches; every call has a bound of its own where it is made.

use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config, Error};

/// Bound on establishing a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// A client for `config`, known to the API server's logs under `user_agent`.
pub fn build(config: Config, user_agent: &str) -> Result<Client, Error> {
    Client::try_from(prepared(config, user_agent)?)
}

/// What the API server sees in its logs: `etcd-operator/VERSION (COMMIT)`.
pub fn user_agent(version: &str, commit: &str) -> String {
    format!("etcd-operator/{version} ({commit})")
}

fn prepared(mut config: Config, user_agent: &str) -> Result<Config, Error> {
    let agent = HeaderValue::from_str(user_agent).map_err(|error| Error::HttpError(error.into()))?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = None;
    config.headers.retain(|(name, _)| name != USER_AGENT);
    config.headers.push((USER_AGENT, agent));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_retried_and_quiet_watches_live() {
        let config = Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        let config = prepared(config, &user_agent("1.2.3", "abc")).unwrap();
        assert!(!config.default_retry);
        assert_eq!(
            (config.connect_timeout, config.read_timeout),
            (Some(CONNECT), None)
        );
        assert_eq!(
            config.headers,
            [(USER_AGENT, HeaderValue::from_static("etcd-operator/1.2.3 (abc)"))]
        );
    }

    #[test]
    fn a_user_agent_that_is_no_header_is_refused() {
        let config = Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        assert!(build(config, "line\nbreak").is_err());
    }
}
