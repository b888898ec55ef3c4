//! How a member is reached: where, with which certificates, and how long is waited. Nothing here connects.

use std::fmt;
use std::time::Duration;

use crate::url::ClientUrl;

/// How one member is reached by its clients: its URL, certificates and limits of time.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Where.
    pub url: ClientUrl,
    /// With which certificates; needed if the URL says https, and not looked at otherwise.
    pub tls: Option<Tls>,
    /// How long is waited.
    pub limits: Limits,
}

/// How long a connection and a call may take, whatever the member or the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a connection.
    pub connect: Duration,
    /// For an answer, of calls that have no limit of their own.
    pub call: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            call: Duration::from_secs(5),
        }
    }
}

/// The CA certificates to verify a member by, and the client certificate that it may ask for, as PEM.
#[derive(Clone)]
pub struct Tls {
    /// Who signs the member's certificate.
    pub authority: Vec<u8>,
    /// What is shown to the member, if it asks.
    pub identity: Option<Identity>,
    /// The name the member's certificate must bear, where that is not the URL's host.
    pub server_name: Option<String>,
}

/// A certificate with its key, as PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
}

/// Without the certificates, and above all without the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("has_identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Endpoint {
    /// A member without TLS, with the default limits.
    pub fn plain(url: ClientUrl) -> Self {
        Self {
            url,
            tls: None,
            limits: Limits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_ever_shown() {
        let endpoint = Endpoint {
            url: "https://a:1".parse().expect("a URL"),
            tls: Some(Tls {
                authority: b"CA".to_vec(),
                identity: Some(Identity {
                    certificate: b"CERT".to_vec(),
                    key: b"SECRET".to_vec(),
                }),
                server_name: None,
            }),
            limits: Limits::default(),
        };
        let shown = format!("{endpoint:?}");
        let bytes = format!("{:?}", b"SECRET");
        assert!(
            !shown.contains("SECRET") && !shown.contains(&bytes[1..]),
            "{shown}"
        );
        let identity = endpoint.tls.and_then(|tls| tls.identity);
        assert_eq!(format!("{identity:?}"), "Some(Identity { .. })");
    }
}
