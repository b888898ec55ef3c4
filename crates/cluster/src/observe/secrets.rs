//! The certificates with which the operator shows itself to members, and those that members show: read by name, each time
//! anew, kept nowhere.

use etcd_operator_cluster_core::build::StoredTemplates;
use etcd_operator_cluster_core::desired::Desired;
use etcd_operator_cluster_core::observed_state::ServerCertificateFault;
use etcd_operator_etcd::client::verify_as_client;
use etcd_operator_etcd::endpoint::{Identity, Tls};
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::key::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use crate::reconcile::Deps;

/// The ancestor's names of the files in the operator's Secret.
const AUTHORITY: &str = "etcd-client-ca.crt";
const CERTIFICATE: &str = "etcd-client.crt";
const KEY: &str = "etcd-client.key";

/// The ancestor's names of the files in the Secret that members serve clients with.
const SERVER_AUTHORITY: &str = "server-ca.crt";
const SERVER_CERTIFICATE: &str = "server.crt";

/// How the operator connects to members.
#[derive(Clone, Debug)]
pub enum Transport {
    /// In the clear.
    Plain,
    /// With these certificates.
    Tls(Tls),
    /// Not at all, and why.
    Unavailable(String),
}

/// How the operator connects to the members: by TLS if their pod template has it, whatever the spec asks for by now. A
/// missing or incomplete Secret is no error but [`Transport::Unavailable`].
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
    let file = |name: &str| file(&secret, name).map(<[u8]>::to_vec);
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

/// Why members do not accept the certificate of one of them. `None` if they do, and also if the Secret is missing,
/// incomplete or may not be read: a missing one shows in pods that do not start.
pub async fn server_certificate_fault(
    desired: &Desired,
    transport: &Transport,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Option<ServerCertificateFault>, Error> {
    let Some(client) = desired
        .tls
        .client
        .as_ref()
        .filter(|_| !matches!(transport, Transport::Plain))
    else {
        return Ok(None);
    };
    let secret = match deps.applier.read::<Secret>(&key.beside(&client.server)).await {
        Ok(Some(secret)) => secret,
        // A role may allow the operator its own Secret alone.
        Err(error) if error.is_refusal() => return Ok(None),
        Ok(None) => return Ok(None),
        Err(error) => return Err(error),
    };
    let files = file(&secret, SERVER_CERTIFICATE).zip(file(&secret, SERVER_AUTHORITY));
    let now = deps
        .clock
        .now()
        .duration_since(Timestamp::UNIX_EPOCH)
        .unsigned_abs();
    Ok(files.and_then(|(certificate, authority)| {
        let error = verify_as_client(certificate, authority, now).err()?;
        Some(ServerCertificateFault {
            secret: client.server.clone(),
            error,
        })
    }))
}

/// A file in a Secret, if it is there and not empty.
fn file<'s>(secret: &'s Secret, name: &str) -> Option<&'s [u8]> {
    let bytes = secret.data.as_ref()?.get(name)?;
    Some(bytes.0.as_slice()).filter(|bytes| !bytes.is_empty())
}
