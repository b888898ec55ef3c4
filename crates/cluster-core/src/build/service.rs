//! The two Services of a cluster.

use etcd_operator_api::{
    cluster::ServiceType,
    names::{CLIENT_PORT, PEER_PORT},
};
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{
    inputs::{BuildInputs, owned_metadata},
    labels::selector_labels,
};
use crate::desired::Desired;

/// A label that no pod has: users may not set labels of this prefix, and the operator sets none of this name.
const NOT_SERVING: (&str, &str) = ("etcd.database.coreos.com/serves", "not-yet");

/// The headless Service by which members find one another, also before they are ready: to become ready they need each
/// other.
pub(super) fn headless(desired: &Desired, inputs: &BuildInputs) -> Service {
    let name = &desired.name;
    Service {
        metadata: owned_metadata(name, inputs, name.headless_service()),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(selector_labels(name)),
            ports: Some(vec![port("client", CLIENT_PORT), port("peer", PEER_PORT)]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// The Service for clients. It selects no pod before the cluster has formed, and leads to ready members from then on.
pub(super) fn client(desired: &Desired, inputs: &BuildInputs) -> Service {
    let (name, service) = (&desired.name, &desired.service);
    let mut metadata = owned_metadata(name, inputs, name.client_service());
    metadata.annotations = (!service.annotations.is_empty()).then(|| service.annotations.clone());
    let mut selector = selector_labels(name);
    if !inputs.accepts_clients {
        selector.insert(NOT_SERVING.0.to_owned(), NOT_SERVING.1.to_owned());
    }
    let type_ = match service.type_ {
        ServiceType::ClusterIP => "ClusterIP",
        ServiceType::NodePort => "NodePort",
        ServiceType::LoadBalancer => "LoadBalancer",
    };
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(type_.to_owned()),
            load_balancer_class: service.load_balancer_class.clone(),
            selector: Some(selector),
            ports: Some(vec![port("client", CLIENT_PORT)]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn port(name: &str, number: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: number.into(),
        target_port: Some(IntOrString::Int(number.into())),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}
