//! Certificates that a person made, as the older operator wanted them: between members, for clients, for the operator.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::pki::Authority;
use etcd_operator_e2e::scenario::Stage;
use serde_json::{Value, json};

use super::heal::wipe;
use super::tenant::{SOON, Tenant, told};

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
        let before = converged(&tenant, 3).await?;

        let node = tenant
            .etcdctl_at(&tenant.endpoint().await?, &["get", "k"])
            .await?;
        ensure!(
            !node.status.success(),
            "whoever shows nothing is let in: {node:?}"
        );

        wipe(&tenant, "c-1").await?;
        let id = |status: &EtcdClusterStatus| {
            let mut members = status.member_status.iter().flatten();
            members
                .find(|member| member.name == "c-1")
                .and_then(|member| member.id.clone())
        };
        tenant
            .says("c-1 is another member", |status| {
                id(status).is_some_and(|now| Some(now) != id(&before))
            })
            .await?;
        converged(&tenant, 3).await?;
        let said = inside(&tenant, "get", &["k", "--print-value-only"]).await?;
        ensure!(said.trim() == "k", "{said}");

        tenant.note("the operator's certificate goes, and comes back");
        tenant.kubectl(&["delete", "secret", "operator-tls"]).await?;
        tenant
            .says("the Secret is missed", |status| {
                told(status).any(|text| text.contains("operator-tls"))
            })
            .await?;
        secrets(&tenant, &authority).await?;
        converged(&tenant, 3).await?;
        tenant.delete().await?;
        tenant.kubectl(&["delete", "pvc", "--all", "--wait=true"]).await?;
    }
    Ok(())
}

async fn converged(tenant: &Tenant, size: u8) -> Result<EtcdClusterStatus> {
    let status = tenant.says_converged(size).await?;
    // Nodes learn of a new endpoint a moment after everybody else.
    let through = until("clients get through", SOON, || async {
        Ok(inside(tenant, "get", &["anything"]).await.ok())
    });
    if let Err(late) = through.await {
        // What stands in the way says so when it is asked once more.
        inside(tenant, "get", &["anything"]).await.context(late)?;
    }
    Ok(status)
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
    let namespace = tenant.stage().namespace();
    let members = format!("*.{}.{namespace}.svc", tenant.name());
    // etcd looks up the name of who connects, and is told the long one.
    let looked_up = format!("{members}.cluster.local");
    let service = format!("{}-client.{namespace}.svc", tenant.name());
    let hosts = [&members, &looked_up, &service, "localhost"];
    for (secret, prefix) in [
        ("peer-tls", "peer"),
        ("server-tls", "server"),
        ("operator-tls", "etcd-client"),
    ] {
        let own = authority.peer(prefix, &hosts)?;
        let authority = authority.certificate();
        let files = [("crt", own.certificate.as_str()), ("key", &own.key)];
        let mut data: Value = json!({format!("{prefix}-ca.crt"): authority});
        for (end, content) in files {
            data[format!("{prefix}.{end}")] = content.into();
        }
        let object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret, "namespace": namespace},
            "stringData": data,
        });
        let cluster = tenant.stage().cluster();
        cluster
            .apply(&object)
            .await
            .with_context(|| format!("the Secret {secret}"))?;
    }
    Ok(())
}
