//! The place of a member in its cluster: the number its pod, its volume and its address end with.

use std::fmt;

use etcd_operator_api::names::{ClusterName, PEER_PORT};
use etcd_operator_etcd::url::PeerUrl;

/// The highest number of places ever looked at. A cluster has nine at most; more is room for what is being removed.
const MAX_ORDINALS: u16 = 32;

/// The place of a member, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(u16);

impl Ordinal {
    /// The place of this number; none beyond those that are looked at.
    pub fn new(number: u16) -> Option<Self> {
        (number < MAX_ORDINALS).then_some(Self(number))
    }

    /// All places.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..MAX_ORDINALS).map(Self)
    }

    /// The first places, as many as these.
    pub fn first_n(count: u16) -> impl Iterator<Item = Self> {
        (0..count.min(MAX_ORDINALS)).map(Self)
    }

    /// The place that this name of a pod or member ends with, if it is one of this cluster's.
    pub fn from_name(cluster: &ClusterName, name: &str) -> Option<Self> {
        let digits = name.strip_prefix(cluster.as_str())?.strip_prefix('-')?;
        let number: u16 = digits.parse().ok()?;
        Self::new(number).filter(|ordinal| ordinal.0.to_string() == digits)
    }

    /// The place of this claim, if it is one of this cluster's.
    pub fn from_claim(cluster: &ClusterName, name: &str) -> Option<Self> {
        Self::from_name(cluster, name.strip_prefix("data-")?)
    }

    /// The place that this address is of, if it is one of this cluster's. Whether members speak TLS there has no say in it:
    /// the spec may ask for it before they do, and they are the same members.
    pub fn from_peer_url(url: &PeerUrl, cluster: &ClusterName, namespace: &str) -> Option<Self> {
        let (label, below) = url.host().split_once('.')?;
        let ordinal = Self::from_name(cluster, label)?;
        let below = below.strip_prefix(cluster.as_str())?.strip_prefix('.')?;
        let domain = below.strip_prefix(namespace)?.strip_prefix(".svc")?;
        let is_its_name = domain.is_empty() || domain.starts_with('.');
        (is_its_name && url.port() == PEER_PORT).then_some(ordinal)
    }

    /// Its number.
    pub fn get(self) -> u16 {
        self.0
    }

    /// How many pods a StatefulSet must keep to have this one.
    pub fn replicas(self) -> u16 {
        self.0 + 1
    }

    /// The name of the pod and of the member.
    pub fn name(self, cluster: &ClusterName) -> String {
        format!("{cluster}-{self}")
    }

    /// The name of the claim.
    pub fn claim(self, cluster: &ClusterName) -> String {
        format!("{}{self}", Self::claim_prefix(cluster))
    }

    /// What the names of all claims begin with, before the number.
    pub fn claim_prefix(cluster: &ClusterName) -> String {
        format!("data-{cluster}-")
    }

    /// The name under which it is found.
    pub fn host(self, cluster: &ClusterName, namespace: &str) -> String {
        format!("{cluster}-{self}.{cluster}.{namespace}.svc")
    }

    /// Where the other members find it.
    pub fn peer_url(self, cluster: &ClusterName, namespace: &str, is_secure: bool) -> PeerUrl {
        let scheme = if is_secure { "https" } else { "http" };
        let text = format!("{scheme}://{}:{PEER_PORT}", self.host(cluster, namespace));
        text.parse().expect("a checked name makes an address")
    }
}

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> ClusterName {
        "orders-1".parse().expect("a name")
    }

    #[test]
    fn a_member_stays_at_its_place_whether_it_speaks_tls_or_not_and_under_its_longer_name() {
        for ordinal in Ordinal::all() {
            for is_secure in [true, false] {
                let url = ordinal.peer_url(&cluster(), "ns", is_secure);
                assert_eq!(
                    Ordinal::from_peer_url(&url, &cluster(), "ns"),
                    Some(ordinal),
                    "{url}"
                );
            }
        }
        let of = |url: &str| Ordinal::from_peer_url(&url.parse().expect("an address"), &cluster(), "ns");
        let longer = "http://orders-1-0.orders-1.ns.svc.cluster.local:2380";
        assert_eq!(of(longer), Ordinal::new(0));
        for other in [
            "http://orders-1-0.orders-1.ns.svc:2381",
            "http://orders-1-0.orders-1.ns.svcs:2380",
            "http://orders-1-0.orders-1.other.svc:2380",
            "http://orders-1-0.orders.ns.svc:2380",
            "http://orders-2-0.orders-2.ns.svc:2380",
            "http://10.0.0.1:2380",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_place_is_read_from_exactly_the_names_it_makes() {
        for ordinal in Ordinal::all() {
            assert_eq!(
                Ordinal::from_name(&cluster(), &ordinal.name(&cluster())),
                Some(ordinal)
            );
            assert_eq!(
                Ordinal::from_claim(&cluster(), &ordinal.claim(&cluster())),
                Some(ordinal)
            );
        }
        for other in [
            "orders-1",
            "orders-1-",
            "orders-1-01",
            "orders-1-x",
            "orders-1-1-0",
            "orders-10",
            "orders-1-99",
            "x-0",
        ] {
            assert_eq!(Ordinal::from_name(&cluster(), other), None, "{other}");
        }
    }
}
