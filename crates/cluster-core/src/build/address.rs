//! Where members and clients reach a member: the one place that knows how names become addresses.

use etcd_operator_api::names::{CLIENT_PORT, ClusterName, METRICS_PORT, PEER_PORT};
use etcd_operator_etcd_types::url::{ClientUrl, PeerUrl};

use super::labels::member_name;
use crate::desired::Desired;

/// Makes the DNS names and URLs of a cluster's members and its client Service from the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    cluster: ClusterName,
    /// What follows the name of a pod or Service.
    zone: String,
    namespace: String,
    peer_scheme: &'static str,
    client_scheme: &'static str,
}

impl Addresses {
    /// The addresses in a namespace.
    pub fn new(desired: &Desired, namespace: &str) -> Self {
        let scheme = |secure: bool| if secure { "https" } else { "http" };
        let domain = desired.pod.cluster_domain.as_deref();
        Self {
            cluster: desired.name.clone(),
            zone: domain.map_or_else(|| "svc".to_owned(), |domain| format!("svc.{domain}")),
            namespace: namespace.to_owned(),
            peer_scheme: scheme(desired.tls.peer.is_some()),
            client_scheme: scheme(desired.tls.client.is_some()),
        }
    }

    /// The DNS name of a member's pod.
    pub fn host(&self, ordinal: u8) -> String {
        self.pod_host(&member_name(&self.cluster, ordinal))
    }

    /// The URL at which the other members reach a member.
    pub fn peer(&self, ordinal: u8) -> PeerUrl {
        self.peer_at(&self.host(ordinal))
    }

    /// The URL at which clients reach a member.
    pub fn client(&self, ordinal: u8) -> ClientUrl {
        self.client_at(&self.host(ordinal))
    }

    /// The URL of the client Service, which leads to any ready member.
    pub fn service(&self) -> ClientUrl {
        let Self {
            cluster,
            namespace,
            zone,
            ..
        } = self;
        self.client_at(&format!("{}.{namespace}.{zone}", cluster.client_service()))
    }

    pub(super) fn pod_host(&self, pod: &str) -> String {
        let Self {
            cluster,
            namespace,
            zone,
            ..
        } = self;
        format!("{pod}.{}.{namespace}.{zone}", cluster.headless_service())
    }

    pub(super) fn peer_at(&self, host: &str) -> PeerUrl {
        let url = format!("{}://{host}:{PEER_PORT}", self.peer_scheme);
        url.parse().expect("names of Kubernetes make addresses")
    }

    pub(super) fn client_at(&self, host: &str) -> ClientUrl {
        let url = format!("{}://{host}:{CLIENT_PORT}", self.client_scheme);
        url.parse().expect("names of Kubernetes make addresses")
    }

    /// Where health and metrics are served: without TLS, also if clients use it.
    pub(super) fn metrics_at(host: &str) -> ClientUrl {
        let url = format!("http://{host}:{METRICS_PORT}");
        url.parse().expect("names of Kubernetes make addresses")
    }
}
