//! Certificates that a person made, as the older operator wanted them: between members, for clients, for the operator.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::pki::{Authority, Identity, self_signed};
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::heal::wipe;
use super::tenant::{SOON, Tenant, is, told};

/// Where the container of a member has what it shows to clients.
const SERVER: &str = "/etc/etcdtls/member/server-tls";

pub async fn static_certificates(stage: Arc<Stage>) -> Result<()> {
    for version in [EtcdVersion::V3_3_27, EtcdVersion::V3_5_35, EtcdVersion::V3_6_16] {
        let tenant = Tenant::on(stage.clone(), version).await?;
        let authority = Authority::new()?;
        secrets(&tenant, &authority).await?;
        tenant.apply(&spec(&tenant, 1)).await?;
        converged(&tenant, 1).await?;
        inside(&tenant, "put", &["k", "k"]).await?;
        tenant.scale(3).await?;
        converged(&tenant, 3).await?;

        let node = tenant
            .etcdctl_at(&tenant.endpoint().await?, &["get", "k"])
            .await?;
        ensure!(
            !node.status.success(),
            "whoever shows nothing is let in: {node:?}"
        );

        replaced(&tenant, "c-1").await?;

        tenant.note("the operator's certificate goes, and comes back");
        tenant.kubectl(&["delete", "secret", "operator-tls"]).await?;
        tenant
            .says("the Secret is missed", |status| {
                told(status).any(|text| text.contains("operator-tls"))
            })
            .await?;
        secrets(&tenant, &authority).await?;
        converged(&tenant, 3).await?;
        gone(&tenant).await?;
    }
    Ok(())
}

async fn converged(tenant: &Tenant, size: u8) -> Result<()> {
    tenant.says_converged(size).await?;
    // Nodes learn of a new endpoint a moment after everybody else.
    let through = until("clients get through", SOON, || async {
        Ok(inside(tenant, "get", &["anything"]).await.ok())
    });
    if let Err(late) = through.await {
        // What stands in the way says so when it is asked once more.
        inside(tenant, "get", &["anything"]).await.context(late)?;
    }
    Ok(())
}

/// What is asked for with certificates.
pub fn spec(tenant: &Tenant, size: u8) -> Value {
    let mut spec = tenant.spec(size);
    spec["TLS"] = json!({"static": {
        "member": {"peerSecret": "peer-tls", "serverSecret": "server-tls"},
        "operatorSecret": "operator-tls",
    }});
    spec
}

/// etcdctl in the container of the first member, with what is mounted there, by the name of the client Service.
pub async fn inside(tenant: &Tenant, verb: &str, words: &[&str]) -> Result<String> {
    let endpoint = format!(
        "--endpoints=https://c-client.{}.svc:2379",
        tenant.stage().namespace()
    );
    let files = ["cacert=server-ca.crt", "cert=server.crt", "key=server.key"];
    let files = files.map(|file| {
        let (flag, name) = file.split_once('=').unwrap_or_default();
        format!("--{flag}={SERVER}/{name}")
    });
    let pod = tenant.pod(0);
    let mut all = vec!["exec", &pod, "--container=etcd", "--"];
    // The older ones speak the language of version 2 unless told otherwise; the newer ones have no `env` beside them.
    if tenant.version() <= EtcdVersion::V3_3_27 {
        all.extend(["env", "ETCDCTL_API=3"]);
    }
    all.extend(["etcdctl", &endpoint]);
    all.extend(files.iter().map(String::as_str));
    all.push(verb);
    all.extend(words);
    tenant.kubectl(&all).await
}

/// The Secrets with the names of files that the older operator wanted.
pub async fn secrets(tenant: &Tenant, authority: &Authority) -> Result<()> {
    let hosts = hosts(tenant);
    for (secret, prefix) in [PEER, SERVER_SECRET, OPERATOR] {
        let own = authority.peer(prefix, &as_strs(&hosts))?;
        store(tenant, (secret, prefix), &own, authority.certificate()).await?;
    }
    Ok(())
}

/// A Secret and what the names of its files begin with.
type Named = (&'static str, &'static str);
const PEER: Named = ("peer-tls", "peer");
const SERVER_SECRET: Named = ("server-tls", "server");
const OPERATOR: Named = ("operator-tls", "etcd-client");

/// The names that members and their Service have.
fn hosts(tenant: &Tenant) -> [String; 4] {
    let namespace = tenant.stage().namespace();
    let members = format!("*.{}.{namespace}.svc", tenant.name());
    // etcd looks up the name of who connects, and is told the long one.
    let looked_up = format!("{members}.cluster.local");
    let service = format!("{}-client.{namespace}.svc", tenant.name());
    [members, looked_up, service, "localhost".to_owned()]
}

fn as_strs(hosts: &[String; 4]) -> [&str; 4] {
    hosts.each_ref().map(String::as_str)
}

/// Makes or replaces a Secret with a certificate, its key, and the CA certificates by which the other side is verified.
async fn store(tenant: &Tenant, (secret, prefix): Named, own: &Identity, authority: &str) -> Result<()> {
    let files = [
        ("-ca.crt", authority),
        (".crt", &own.certificate),
        (".key", &own.key),
    ];
    let data: BTreeMap<_, _> = files
        .iter()
        .map(|(end, content)| (format!("{prefix}{end}"), *content))
        .collect();
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret, "namespace": tenant.stage().namespace()},
        "stringData": data,
    });
    let cluster = tenant.stage().cluster();
    cluster
        .apply(&object)
        .await
        .with_context(|| format!("the Secret {secret}"))
}

/// Each certificate is its own CA, which etcd's own verifier accepts. Then the operator gets another CA.
pub async fn self_signed_certificates(stage: Arc<Stage>) -> Result<()> {
    for version in [EtcdVersion::V3_4_23, EtcdVersion::V3_6_16] {
        let tenant = Tenant::on(stage.clone(), version).await?;
        let hosts = hosts(&tenant);
        let peer = self_signed("peer", &as_strs(&hosts))?;
        let client = self_signed("client", &as_strs(&hosts))?;
        store(&tenant, PEER, &peer, &peer.certificate).await?;
        store(&tenant, SERVER_SECRET, &client, &client.certificate).await?;
        store(&tenant, OPERATOR, &client, &client.certificate).await?;
        tenant.apply(&spec(&tenant, 3)).await?;
        converged(&tenant, 3).await?;
        inside(&tenant, "put", &["k", "k"]).await?;
        replaced(&tenant, "c-1").await?;

        tenant.note("the operator gets a CA that has not signed what members show");
        let other = Authority::new()?;
        store(&tenant, OPERATOR, &client, other.certificate()).await?;
        let status = tenant
            .says("members, Secrets and the verifier's words are told", |status| {
                told(status).any(|text| {
                    text.contains("c-0 cannot be reached by TLS: ")
                        && text.contains("it is a CA, and not itself among the trusted CA certificates")
                        && text.contains("server.crt in the Secret server-tls")
                        && text.contains("etcd-client-ca.crt in the Secret operator-tls")
                })
            })
            .await?;
        ensure!(
            is(&status, "Available", "Unknown", "MembersUnreachable"),
            "{status:?}"
        );
        inside(&tenant, "get", &["k"]).await?;
        store(&tenant, OPERATOR, &client, &client.certificate).await?;
        converged(&tenant, 3).await?;
        gone(&tenant).await?;
    }
    Ok(())
}

/// One CA signs what members show, and another one what clients show, as the manual of the older operator allows. Members
/// are clients of one another before they join, so theirs must be accepted as well.
pub async fn two_authorities(stage: Arc<Stage>) -> Result<()> {
    for version in [EtcdVersion::V3_4_23, EtcdVersion::V3_6_16] {
        let tenant = Tenant::on(stage.clone(), version).await?;
        let hosts = hosts(&tenant);
        let (servers, clients) = (Authority::new()?, Authority::new()?);
        let peer = servers.peer("peer", &as_strs(&hosts))?;
        let server = servers.peer("server", &as_strs(&hosts))?;
        let client = clients.client("operator", "operators")?;
        store(&tenant, PEER, &peer, servers.certificate()).await?;
        store(&tenant, SERVER_SECRET, &server, clients.certificate()).await?;
        store(&tenant, OPERATOR, &client, servers.certificate()).await?;
        tenant.apply(&spec(&tenant, 3)).await?;
        tenant
            .says(
                "the cluster has formed and serves, and which Secret to correct is told",
                |status| {
                    let is_told = told(status).any(|text| {
                        text.contains("no member can be added or replaced")
                            && text.contains("server.crt of the Secret server-tls")
                    });
                    let serves = is(status, "Available", "True", "QuorumServes");
                    is_told && serves && status.cluster_id.is_some() && status.size == 3
                },
            )
            .await?;

        tenant.note("members accept what either CA has signed");
        let both = format!("{}{}", clients.certificate(), servers.certificate());
        store(&tenant, SERVER_SECRET, &server, &both).await?;
        for ordinal in 0..3 {
            let before = tenant.pod_uids().await?;
            tenant.delete_pod(&tenant.pod(ordinal)).await?;
            tenant.another_pod(&tenant.pod(ordinal), &before).await?;
        }
        converged(&tenant, 3).await?;
        inside(&tenant, "put", &["k", "k"]).await?;
        replaced(&tenant, "c-1").await?;
        gone(&tenant).await?;
    }
    Ok(())
}

/// A member whose disk is wiped comes back as another one, with what was written.
async fn replaced(tenant: &Tenant, name: &str) -> Result<()> {
    let status = tenant.status().await?;
    let before = id_of(&status, name).context("a member without an ID")?;
    wipe(tenant, name).await?;
    tenant
        .says(&format!("{name} is another member"), |status| {
            id_of(status, name).is_some_and(|now| now != before)
        })
        .await?;
    converged(tenant, 3).await?;
    let said = inside(tenant, "get", &["k", "--print-value-only"]).await?;
    ensure!(said.trim() == "k", "{said}");
    Ok(())
}

fn id_of(status: &EtcdClusterStatus, name: &str) -> Option<String> {
    let mut members = status.member_status.iter().flatten();
    members.find(|member| member.name == name)?.id.clone()
}

/// Nothing is left of the cluster, its data included.
async fn gone(tenant: &Tenant) -> Result<()> {
    tenant.delete().await?;
    tenant.kubectl(&["delete", "pvc", "--all", "--wait=true"]).await?;
    Ok(())
}
