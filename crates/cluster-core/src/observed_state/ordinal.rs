//! The ordinal of a member: the number in the names of its pod and its PVC, and in its peer URL.

use std::fmt;

use etcd_operator_api::names::{ClusterName, PEER_PORT};
use etcd_operator_etcd_types::url::PeerUrl;

/// The number of ordinals that the operator looks at. A cluster has at most nine members; the rest is for members that are being
/// removed.
const MAX_ORDINALS: u16 = 32;

/// The ordinal of a member's pod, PVC and peer URL, from 0 to 31. It does not identify a member: a later member with the same
/// ordinal has another member ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(u16);

impl Ordinal {
    /// The ordinal with this number; `None` from `MAX_ORDINALS` on.
    pub fn new(number: u16) -> Option<Self> {
        (number < MAX_ORDINALS).then_some(Self(number))
    }

    /// All ordinals.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..MAX_ORDINALS).map(Self)
    }

    /// The ordinals 0 to `count` - 1, whether members have them or not; at most `MAX_ORDINALS`.
    pub fn first_n(count: u16) -> impl Iterator<Item = Self> {
        (0..count.min(MAX_ORDINALS)).map(Self)
    }

    /// The ordinal at the end of the name of a pod or member; `None` if the name is not one of this cluster's.
    pub fn from_name(cluster: &ClusterName, name: &str) -> Option<Self> {
        let digits = name.strip_prefix(cluster.as_str())?.strip_prefix('-')?;
        let number: u16 = digits.parse().ok()?;
        Self::new(number).filter(|ordinal| ordinal.0.to_string() == digits)
    }

    /// The ordinal at the end of the name of a PVC; `None` if the name is not one of this cluster's.
    pub fn from_claim(cluster: &ClusterName, name: &str) -> Option<Self> {
        Self::from_name(cluster, name.strip_prefix("data-")?)
    }

    /// The ordinal in a peer URL; `None` if the URL is not one of this cluster's. The scheme does not matter: the spec may ask
    /// for TLS before members use it.
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

    /// How many replicas a StatefulSet needs to have the pod with this ordinal.
    pub fn replicas(self) -> u16 {
        self.0 + 1
    }

    /// The name of the pod and of the member.
    pub fn name(self, cluster: &ClusterName) -> String {
        format!("{cluster}-{self}")
    }

    /// The name of the PVC.
    pub fn claim(self, cluster: &ClusterName) -> String {
        format!("{}{self}", Self::claim_prefix(cluster))
    }

    /// The prefix of all PVC names, before the ordinal.
    pub fn claim_prefix(cluster: &ClusterName) -> String {
        format!("data-{cluster}-")
    }

    /// The DNS name of the pod.
    pub fn host(self, cluster: &ClusterName, namespace: &str) -> String {
        format!("{cluster}-{self}.{cluster}.{namespace}.svc")
    }

    /// The URL at which other members reach this one.
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
    fn a_peer_url_has_the_same_ordinal_with_and_without_tls_and_with_its_cluster_domain() {
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
    fn an_ordinal_is_read_from_exactly_the_names_it_makes() {
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
