//! The objects that a dry run reads, with the rights of whoever runs it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};

use super::RestoreArgs;

/// What was read.
pub struct Found {
    /// The way to the API server.
    pub client: Client,
    /// The namespace of everything.
    pub namespace: String,
    /// The restore.
    pub restore: EtcdRestore,
    /// All restores of the namespace.
    pub others: Vec<EtcdRestore>,
    /// The cluster that it names.
    pub cluster: Option<EtcdCluster>,
    /// The backup that it names.
    pub backup: Option<EtcdBackup>,
    /// The claim that its backup lies on.
    pub claim: Option<PersistentVolumeClaim>,
}

impl Found {
    /// Reads the restore and everything that it refers to.
    pub async fn read(args: &RestoreArgs, client: Client) -> Result<Self> {
        let asked = args.file.as_deref().map(manifest).transpose()?;
        let namespace = args
            .namespace
            .clone()
            .or_else(|| asked.as_ref()?.namespace())
            .unwrap_or_else(|| client.default_namespace().to_owned());
        let restores: Api<EtcdRestore> = Api::namespaced(client.clone(), &namespace);
        let others = restores.list(&ListParams::default()).await;
        let others = others.context("the EtcdRestores cannot be listed")?.items;
        let restore = if let Some(asked) = asked {
            beside(asked, &others, &namespace)
        } else {
            let name = args.name.as_deref().unwrap_or_default();
            let found = others.iter().find(|one| one.name_any() == name).cloned();
            found.with_context(|| {
                format!("there is no EtcdRestore {name} in the namespace {namespace}: name one with its namespace, or a manifest by --file")
            })?
        };
        let spec = &restore.spec;
        let source = spec.source.as_ref().map(|source| source.backup.name.as_str());
        let backup: Option<EtcdBackup> = get(&client, &namespace, source, "EtcdBackup").await?;
        let block = match (&spec.local, &backup) {
            (Some(local), _) => Some(local),
            (None, backup) => backup.as_ref().and_then(|backup| backup.spec.local.as_ref()),
        };
        let claim = block.and_then(|block| block.persistent_volume_claim.as_deref());
        Ok(Self {
            cluster: get(&client, &namespace, Some(&spec.etcd_cluster.name), "EtcdCluster").await?,
            claim: get(&client, &namespace, claim, "PersistentVolumeClaim").await?,
            backup,
            others,
            restore,
            namespace,
            client,
        })
    }

    /// The entries of a Secret.
    pub async fn secret(&self, name: &str) -> Result<BTreeMap<String, Vec<u8>>, String> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets
            .get(name)
            .await
            .map_err(|error| format!("the Secret {name} cannot be read: {error}"))?;
        let data = secret.data.into_iter().flatten();
        Ok(data.map(|(key, value)| (key, value.0)).collect())
    }
}

/// An object that may be there.
async fn get<K>(client: &Client, namespace: &str, name: Option<&str>, kind: &str) -> Result<Option<K>>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let all: Api<K> = Api::namespaced(client.clone(), namespace);
    let read = all.get_opt(name).await;
    read.with_context(|| format!("the {kind} {name} cannot be read"))
}

fn manifest(path: &Path) -> Result<EtcdRestore> {
    let shown = path.display();
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin()
            .read_to_string(&mut text)
            .context("standard input")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| format!("{shown} cannot be read"))?;
    }
    serde_saphyr::from_str(&text).with_context(|| format!("{shown} is no EtcdRestore"))
}

/// The manifest as the object that it is or would become.
fn beside(mut asked: EtcdRestore, others: &[EtcdRestore], namespace: &str) -> EtcdRestore {
    asked.metadata.namespace = Some(namespace.to_owned());
    if let Some(there) = others.iter().find(|one| one.name_any() == asked.name_any()) {
        asked.metadata.uid.clone_from(&there.metadata.uid);
        asked
            .metadata
            .creation_timestamp
            .clone_from(&there.metadata.creation_timestamp);
        asked.status.clone_from(&there.status);
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn restore(name: &str) -> EtcdRestore {
        serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore", "metadata": {"name": name},
            "spec": {"etcdCluster": {"name": "orders"}, "source": {"backup": {"name": "nightly"}}},
        }))
        .expect("a restore")
    }

    #[test]
    fn a_manifest_of_an_object_that_is_there_is_that_object() {
        let mut there = restore("back");
        there.metadata.uid = Some("u".to_owned());
        there.status.get_or_insert_default().succeeded = true;
        let known = beside(restore("back"), std::slice::from_ref(&there), "shop");
        assert_eq!(known.metadata.uid.as_deref(), Some("u"));
        assert!(known.status.is_some_and(|status| status.succeeded));
        let new = beside(restore("other"), &[there], "shop");
        assert_eq!((new.metadata.uid, new.status), (None, None));
        assert_eq!(new.metadata.namespace.as_deref(), Some("shop"));
    }
}
