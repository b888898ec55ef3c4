//! Addresses of members, for their peers and for clients, compared by meaning and not by spelling. Nothing is
//! resolved here.

use core::net::Ipv6Addr;
use std::fmt;
use std::str::FromStr;

/// Why a text is not an address of a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not an address of a member: http or https, host and port, for example https://c-0.c.ns.svc:2380"
)]
pub struct UrlError(String);

/// Scheme, host and port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Url {
    /// A name in lower case, or an IP address; IPv6 in brackets.
    host: String,
    port: u16,
    is_secure: bool,
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let wrong = || UrlError(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let is_secure = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = is_number.then(|| port.parse().ok()).flatten().ok_or_else(wrong)?;
        let host = read_host(host).ok_or_else(wrong)?;
        Ok(Self {
            host,
            port,
            is_secure,
        })
    }
}

/// A host in the form in which hosts are compared: a name in lower case, or an IPv6 address in brackets. `None` if it
/// is neither.
fn read_host(host: &str) -> Option<String> {
    if let Some(inner) = host.strip_prefix('[') {
        let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
        return Some(format!("[{address}]"));
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (!host.is_empty() && host.bytes().all(is_name)).then(|| host.to_ascii_lowercase())
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Url);

        impl $name {
            /// Whether its scheme is https.
            pub fn is_secure(&self) -> bool {
                self.0.is_secure
            }

            /// Its name in lower case or its IP address, IPv6 in brackets.
            pub fn host(&self) -> &str {
                &self.0.host
            }

            /// Its port.
            pub fn port(&self) -> u16 {
                self.0.port
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl FromStr for $name {
            type Err = UrlError;

            fn from_str(text: &str) -> Result<Self, UrlError> {
                text.parse().map(Self)
            }
        }
    };
}

address! {
    /// The URL at which the other members reach a member. Two are equal if scheme, host and port are; a path, or no
    /// port, is an error.
    PeerUrl
}
address! {
    /// The URL at which clients reach a member. Two are equal if scheme, host and port are; a path, or no port, is an
    /// error.
    ClientUrl
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_address_is_equal_however_it_is_spelled() {
        for (text, shown) in [
            ("http://127.0.0.1:2380", "http://127.0.0.1:2380"),
            ("https://C-0.c.ns.svc:2380", "https://c-0.c.ns.svc:2380"),
            ("https://[FD00::0:1]:2380", "https://[fd00::1]:2380"),
            ("http://etcd_1:02380", "http://etcd_1:2380"),
        ] {
            let url: PeerUrl = text.parse().expect(text);
            assert_eq!(url.to_string(), shown);
            assert_eq!(shown.parse::<PeerUrl>(), Ok(url));
        }
    }

    #[test]
    fn scheme_and_port_tell_addresses_apart() {
        let url = |text: &str| text.parse::<ClientUrl>().expect(text);
        assert_ne!(url("http://a:1"), url("https://a:1"));
        assert_ne!(url("http://a:1"), url("http://a:2"));
        assert!(url("https://a:1").is_secure());
        assert_eq!(
            (url("http://[::1]:7").host(), url("http://[::1]:7").port()),
            ("[::1]", 7)
        );
    }

    #[test]
    fn what_etcd_would_not_take_is_refused() {
        for text in [
            "",
            "a:1",
            "unix://a:1",
            "http://a",
            "http://:1",
            "http://a:1/",
            "http://a:1/x",
            "http://a:",
            "http://a:65536",
            "http://a:+1",
            "http://::1:2380",
            "http://[x]:1",
            "http://a b:1",
            "http://u@a:1",
        ] {
            assert!(text.parse::<PeerUrl>().is_err(), "{text}");
        }
    }
}
