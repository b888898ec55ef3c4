//! The cluster's DNS: CoreDNS as every cluster has it, except that it asks nobody outside.

use serde_json::{Value, json};

use super::settings::DOMAIN;
use crate::network;

/// Namespace and name of what is made here.
pub(super) const NAMESPACE: &str = "kube-system";
pub(super) const NAME: &str = "kube-dns";

/// Everything that has to be applied, as one list.
pub(super) fn objects(image: &str) -> Value {
    let metadata = json!({ "name": NAME, "namespace": NAMESPACE });
    let labels = json!({ "k8s-app": NAME });
    // Answers are not kept: a name that has just changed is to be seen changed.
    let corefile = format!(
        ".:53 {{\n  errors\n  health :8080\n  ready :8181\n  kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{\n    \
         pods insecure\n    ttl 1\n  }}\n  loadbalance\n}}\n"
    );
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": NAME },
            "rules": [
                {
                    "apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"],
                    "verbs": ["list", "watch"],
                },
                { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": NAME },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE }],
        },
        { "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "Corefile": corefile } },
        {
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {
                "clusterIP": network::DNS_SERVICE, "selector": labels,
                "ports": [
                    { "name": "dns", "port": 53, "protocol": "UDP" },
                    { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
                ],
            },
        },
        {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": 1, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": {
                    "serviceAccountName": NAME,
                    "dnsPolicy": "Default",
                    "priorityClassName": "system-cluster-critical",
                    // A lost node takes this long to be noticed here, not five minutes.
                    "tolerations": [
                        {
                            "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
                            "tolerationSeconds": 0,
                        },
                        {
                            "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                            "tolerationSeconds": 0,
                        },
                    ],
                    "containers": [{
                        "name": "coredns", "image": image, "imagePullPolicy": "Never",
                        "args": ["-conf", "/etc/coredns/Corefile"],
                        "ports": [
                            { "name": "dns", "containerPort": 53, "protocol": "UDP" },
                            { "name": "dns-tcp", "containerPort": 53, "protocol": "TCP" },
                        ],
                        "readinessProbe": {
                            "httpGet": { "path": "/ready", "port": 8181 }, "periodSeconds": 1,
                        },
                        "livenessProbe": {
                            "httpGet": { "path": "/health", "port": 8080 }, "periodSeconds": 5,
                        },
                        "volumeMounts": [{ "name": "config", "mountPath": "/etc/coredns", "readOnly": true }],
                    }],
                    "volumes": [{ "name": "config", "configMap": { "name": NAME } }],
                } },
            },
        },
    ] })
}
