//! TLS of a cluster: certificates from the user's Secrets, from the operator's own CA, or from cert-manager.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::span::Span;

/// Source of the certificates: one of static, managed and certManager.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.static), has(self.managed), has(self.certManager)].filter(x, x).size() <= 1").message("TLS takes one of static, managed and certManager; for example: TLS: {static: {member: {peerSecret: etcd-peer-tls}}}"),
)]
pub struct TlsPolicy {
    /// Certificates in existing Secrets, created and renewed outside this operator.
    #[serde(default, rename = "static", skip_serializing_if = "Option::is_none")]
    pub static_: Option<StaticTls>,
    /// Certificates from a certificate authority that the operator manages for this cluster. Not implemented yet: an EtcdCluster that sets it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedTls>,
    /// Certificates requested from cert-manager. Not implemented yet: an EtcdCluster that sets it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_manager: Option<CertManagerTls>,
}

/// Existing Secrets with certificates. Peer and client encryption are independent of each other.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!(has(self.operatorSecret) && self.operatorSecret != '') || (has(self.member) && has(self.member.serverSecret) && self.member.serverSecret != '')").message("TLS.static.operatorSecret is set but TLS.static.member.serverSecret is not: members would not speak TLS to the operator; set both or neither; for example: member: {serverSecret: etcd-server-tls}").field_path(".operatorSecret"),
    validation = Rule::new("!(has(self.member) && has(self.member.serverSecret) && self.member.serverSecret != '') || (has(self.operatorSecret) && self.operatorSecret != '')").message("TLS.static.member.serverSecret is set but TLS.static.operatorSecret is not: the operator could not reach the members; set both or neither; for example: operatorSecret: etcd-client-tls").field_path(".member"),
)]
pub struct StaticTls {
    /// Secrets mounted into the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberSecrets>,
    /// Secret with the operator's client certificate for the members: keys etcd-client.crt, etcd-client.key, etcd-client-ca.crt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub operator_secret: Option<String>,
}

/// Secrets mounted into the members.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberSecrets {
    /// Secret for peer traffic: keys peer.crt, peer.key, peer-ca.crt. The certificate must cover *.NAME.NAMESPACE.svc, with and without the cluster domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub peer_secret: Option<String>,
    /// Secret for client traffic: keys server.crt, server.key, server-ca.crt. The certificate must cover *.NAME.NAMESPACE.svc, NAME-client.NAMESPACE.svc and localhost. It must also allow client authentication, because a joining member presents it to the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub server_secret: Option<String>,
}

/// Certificates that the operator issues and renews.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedTls {
    /// Validity of a certificate; the operator renews it after two thirds of that time. Default: 2160h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<Span>,
}

/// Certificates requested from cert-manager.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertManagerTls {
    /// Issuer of the certificates.
    pub issuer_ref: IssuerRef,
}

/// Reference to a cert-manager issuer.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuerRef {
    /// Name of the issuer.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Kind of the issuer: Issuer or ClusterIssuer. Default: Issuer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub kind: Option<String>,
    /// API group of the issuer. Default: cert-manager.io.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub group: Option<String>,
}
