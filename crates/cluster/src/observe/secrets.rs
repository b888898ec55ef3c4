//! The certificates with which the operator shows itself to members: read by name, each time anew, kept nowhere.

use etcd_operator_etcd::endpoint::{Identity, Tls};
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::core::v1::Secret;

use crate::build::StoredTemplates;
use crate::desired::Desired;
use crate::reconcile::Deps;

/// The ancestor's names of the files in the operator's Secret.
const AUTHORITY: &str = "etcd-client-ca.crt";
const CERTIFICATE: &str = "etcd-client.crt";
const KEY: &str = "etcd-client.key";

/// How members are spoken to.
#[derive(Clone, Debug)]
pub enum Transport {
    /// In the clear.
    Plain,
    /// With these certificates.
    Tls(Tls),
    /// Not at all, and why.
    Unavailable(String),
}

/// How the members of this cluster are spoken to: as their pods were made, whatever the spec asks for by now.
pub async fn member_transport(
    desired: &Desired,
    stored: Option<&StoredTemplates>,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Transport, Error> {
    let is_secure = stored.map_or(desired.tls.client.is_some(), StoredTemplates::has_secure_clients);
    if !is_secure {
        return Ok(Transport::Plain);
    }
    let Some(client) = &desired.tls.client else {
        let why = "spec.TLS.static.member.serverSecret and spec.TLS.static.operatorSecret were taken away, and members still speak TLS: put them back";
        return Ok(Transport::Unavailable(why.to_owned()));
    };
    let name = &client.operator;
    let Some(secret) = deps.applier.read::<Secret>(&key.beside(name)).await? else {
        return Ok(Transport::Unavailable(format!(
            "the Secret {name} of spec.TLS.static.operatorSecret does not exist"
        )));
    };
    let data = secret.data.unwrap_or_default();
    let file = |file: &str| {
        data.get(file)
            .map(|bytes| bytes.0.clone())
            .filter(|bytes| !bytes.is_empty())
    };
    Ok(match (file(AUTHORITY), file(CERTIFICATE), file(KEY)) {
        (Some(authority), Some(certificate), Some(key)) => Transport::Tls(Tls {
            authority,
            identity: Some(Identity { certificate, key }),
            server_name: None,
        }),
        _ => Transport::Unavailable(format!(
            "the Secret {name} of spec.TLS.static.operatorSecret must have the keys {AUTHORITY}, {CERTIFICATE} and {KEY}"
        )),
    })
}
