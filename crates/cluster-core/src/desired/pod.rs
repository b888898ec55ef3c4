//! How the pods of the members are shaped.

use std::collections::BTreeMap;

use etcd_operator_api::{
    cluster::PodPolicy,
    names::{LABEL_MANAGED_BY, MANAGED_BY},
    quantity,
    refusal::Refusal,
    reserved,
};
use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, PodSecurityContext, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use serde_json::{Map, Value};

/// How the pods of the members are shaped; what is absent gets the operator's default when the pod is built.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Further labels.
    pub labels: BTreeMap<String, String>,
    /// Further annotations.
    pub annotations: BTreeMap<String, String>,
    /// Labels a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Rules about nodes and other pods.
    pub affinity: Option<Affinity>,
    /// Whether two members on one node are forbidden; only where no affinity is given.
    pub one_per_node: bool,
    /// Taints the pods bear.
    pub tolerations: Vec<Toleration>,
    /// How the pods spread; the default spread without.
    pub spread: Option<Vec<TopologySpreadConstraint>>,
    /// CPU and memory.
    pub resources: Option<ResourceRequirements>,
    /// The PriorityClass.
    pub priority_class: Option<String>,
    /// Environment of the etcd container.
    pub env: Vec<EnvVar>,
    /// The security context.
    pub security: Option<PodSecurityContext>,
    /// The ServiceAccount.
    pub service_account: Option<String>,
    /// Seconds to stop in.
    pub grace_seconds: Option<i64>,
    /// The DNS domain of the Kubernetes cluster; detected without.
    pub cluster_domain: Option<String>,
    /// What is merged over the pod template at last.
    pub patch: Option<Map<String, Value>>,
}

/// Parses the pod's settings. Fields that are accepted and do nothing are added to `without_effect`.
pub(super) fn pod(
    policy: Option<&PodPolicy>,
    without_effect: &mut Vec<&'static str>,
) -> Result<Pod, Vec<Refusal>> {
    // Taken apart in full, so that a field that is added cannot be forgotten here.
    let Some(PodPolicy {
        labels,
        annotations,
        node_selector,
        affinity,
        anti_affinity,
        tolerations,
        topology_spread_constraints,
        resources,
        priority_class_name,
        etcd_env,
        security_context,
        persistent_volume_claim_spec: _in_storage,
        service_account_name,
        termination_grace_period_seconds,
        patch,
        busybox_image,
        dns_timeout_in_second,
        cluster_domain,
    }) = policy
    else {
        return Ok(Pod::default());
    };
    let mut refused = Vec::new();
    let labels = labels.clone().unwrap_or_default();
    let annotations = annotations.clone().unwrap_or_default();
    let env = etcd_env.clone().unwrap_or_default();
    let is_reserved = |(key, value): &(&String, &String)| {
        reserved::label(key) || (*key == LABEL_MANAGED_BY && *value != MANAGED_BY)
    };
    refused.extend(labels.iter().filter(is_reserved).map(|(key, _)| {
        Refusal::invalid(
            "spec.pod.labels",
            format!("must not use the key '{key}', which belongs to the operator; for example: team"),
        )
    }));
    refused.extend(annotations.keys().filter(|k| reserved::annotation(k)).map(|key| {
        Refusal::invalid(
            "spec.pod.annotations",
            format!("must not use the key '{key}', which belongs to the operator; for example: owner"),
        )
    }));
    refused.extend(env.iter().filter_map(|v| {
        reserved::variable(&v.name)
            .map(|(_, why)| Refusal::invalid("spec.pod.etcdEnv", format!("must not set {}: {why}", v.name)))
    }));
    refused.extend(
        env.iter()
            .enumerate()
            .filter_map(|(index, v)| invalid_variable(v, &env[..index])),
    );
    refused.extend(resources.iter().flat_map(invalid_quantities));
    let spread = topology_spread_constraints.clone();
    refused.extend(
        spread
            .iter()
            .flat_map(|constraints| duplicate_constraints(constraints)),
    );
    let cluster_domain = cluster_domain
        .as_deref()
        .map(|domain| domain.trim_matches('.').to_owned())
        .filter(|domain| !domain.is_empty());
    refused.extend(cluster_domain.as_deref().and_then(invalid_domain));
    if let Some(seconds) = termination_grace_period_seconds.filter(|s| !(0..=3600).contains(s)) {
        let problem = format!("is {seconds}, must be 0 to 3600; for example: 30");
        refused.push(Refusal::invalid(
            "spec.pod.terminationGracePeriodSeconds",
            problem,
        ));
    }
    if !refused.is_empty() {
        return Err(refused);
    }
    let filled = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
    if filled(busybox_image).is_some() {
        without_effect.push("spec.pod.busyboxImage");
    }
    if dns_timeout_in_second.is_some_and(|seconds| seconds != 0) {
        without_effect.push("spec.pod.DNSTimeoutInSecond");
    }
    let one_per_node = anti_affinity.unwrap_or(false) && affinity.is_none();
    if anti_affinity.unwrap_or(false) && affinity.is_some() {
        without_effect.push("spec.pod.antiAffinity");
    }
    Ok(Pod {
        labels,
        annotations,
        node_selector: node_selector.clone().unwrap_or_default(),
        affinity: affinity.clone(),
        one_per_node,
        tolerations: tolerations.clone().unwrap_or_default(),
        spread,
        resources: resources.clone(),
        priority_class: filled(priority_class_name),
        env,
        security: security_context.clone(),
        service_account: filled(service_account_name),
        grace_seconds: *termination_grace_period_seconds,
        cluster_domain,
        patch: patch.clone().filter(|patch| !patch.is_empty()),
    })
}

/// The variables of the operator, and what the kubelet fills them with.
pub(crate) const VARIABLES: [(&str, &str); 4] = [
    ("POD_NAME", "metadata.name"),
    ("POD_NAMESPACE", "metadata.namespace"),
    ("POD_UID", "metadata.uid"),
    ("POD_IP", "status.podIP"),
];

/// Why a variable is refused: it is the operator's, or it repeats one of those before. The kubelet would take the last
/// of that name; a server-side apply accepts none.
fn invalid_variable(variable: &EnvVar, before: &[EnvVar]) -> Option<Refusal> {
    let name = &variable.name;
    let problem = if VARIABLES.iter().any(|(own, _)| own == name) {
        format!("must not set {name}: the operator fills it in; it may be used in other values as $({name})")
    } else if before.iter().any(|other| &other.name == name) {
        format!("sets {name} twice: keep one of them")
    } else {
        return None;
    };
    Some(Refusal::invalid("spec.pod.etcdEnv", problem))
}

/// Refusals for amounts that cannot be parsed.
fn invalid_quantities(resources: &ResourceRequirements) -> Vec<Refusal> {
    let lists = [("requests", &resources.requests), ("limits", &resources.limits)];
    let amounts = lists.into_iter().flat_map(|(list, amounts)| {
        let amounts = amounts.iter().flatten();
        amounts.map(move |(what, amount)| (format!("spec.pod.resources.{list}.{what}"), amount))
    });
    amounts
        .filter_map(|(field, amount)| {
            let error = quantity::millis(amount).err()?;
            Some(Refusal::invalid(field, error.to_string()))
        })
        .collect()
}

/// Refusals for constraints that repeat the topologyKey and whenUnsatisfiable of another one: the API server would
/// refuse the pods.
fn duplicate_constraints(constraints: &[TopologySpreadConstraint]) -> Vec<Refusal> {
    let key = |c: &TopologySpreadConstraint| (c.topology_key.clone(), c.when_unsatisfiable.clone());
    let twice = |(index, c): (usize, &TopologySpreadConstraint)| {
        let (topology, unsatisfiable) = key(c);
        let problem = format!(
            "holds topologyKey: {topology} with whenUnsatisfiable: {unsatisfiable} twice: keep one of them"
        );
        constraints[..index]
            .iter()
            .any(|other| key(other) == key(c))
            .then(|| Refusal::invalid("spec.pod.topologySpreadConstraints", problem))
    };
    constraints.iter().enumerate().filter_map(twice).collect()
}

/// Why a DNS domain is refused; `None` if it is one in lower case.
fn invalid_domain(domain: &str) -> Option<Refusal> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.starts_with(plain)
            && label.ends_with(plain)
            && label.chars().all(|c| plain(c) || c == '-')
    };
    let is_domain = domain.split('.').all(label);
    (!is_domain).then(|| {
        let problem = format!(
            "is '{domain}', must be the DNS domain of the Kubernetes cluster in lower case; for example: cluster.local"
        );
        Refusal::invalid("spec.pod.ClusterDomain", problem)
    })
}
