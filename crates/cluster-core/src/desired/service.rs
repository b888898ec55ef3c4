//! How the Service for clients is published.

use std::collections::BTreeMap;

use etcd_operator_api::{
    cluster::{ServicePolicy, ServiceType},
    refusal::Refusal,
    reserved,
};

/// How the Service for clients is published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Where it can be reached from.
    pub type_: ServiceType,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Who balances; only for a load balancer.
    pub load_balancer_class: Option<String>,
}

/// Parses the settings of the client Service.
pub(super) fn service(policy: Option<&ServicePolicy>) -> Result<Service, Vec<Refusal>> {
    let Some(ServicePolicy {
        type_,
        annotations,
        load_balancer_class,
        external_names: _refused,
    }) = policy
    else {
        return Ok(Service::default());
    };
    let annotations = annotations.clone().unwrap_or_default();
    let load_balancer_class = load_balancer_class.clone().filter(|class| !class.is_empty());
    let mut refused: Vec<_> = annotations
        .keys()
        .filter(|key| reserved::annotation(key))
        .map(|key| {
            let problem =
                format!("must not use the key '{key}', which belongs to the operator; for example: owner");
            Refusal::invalid("spec.service.annotations", problem)
        })
        .collect();
    if load_balancer_class.is_some() && *type_ != ServiceType::LoadBalancer {
        let problem = "is for spec.service.type: LoadBalancer only: leave it out, or change the type";
        refused.push(Refusal::invalid("spec.service.loadBalancerClass", problem));
    }
    if !refused.is_empty() {
        return Err(refused);
    }
    Ok(Service {
        type_: *type_,
        annotations,
        load_balancer_class,
    })
}
