//! Reads the objects for a dry run, with the permissions of the user.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};

use super::RestoreArgs;

/// The objects that a dry run is based on, as the API server has them.
pub struct Found {
    /// The client for the API server.
    pub client: Client,
    /// The namespace of all objects.
    pub namespace: String,
    /// The restore.
    pub restore: EtcdRestore,
    /// All restores of the namespace.
    pub others: Vec<EtcdRestore>,
    /// The cluster of the restore.
    pub cluster: Option<EtcdCluster>,
    /// The `EtcdBackup` of the restore.
    pub backup: Option<EtcdBackup>,
    /// The PVC with the backup.
    pub claim: Option<PersistentVolumeClaim>,
}

impl Found {
    /// Reads the restore and all objects it refers to.
    pub async fn read(args: &RestoreArgs, client: Client) -> Result<Self> {
        let from_manifest = args.file.as_deref().map(read_manifest).transpose()?;
        let namespace = args
            .namespace
            .clone()
            .or_else(|| from_manifest.as_ref()?.namespace())
            .unwrap_or_else(|| client.default_namespace().to_owned());
        let restores: Api<EtcdRestore> = Api::namespaced(client.clone(), &namespace);
        let others = restores.list(&ListParams::default()).await;
        let others = others.context("cannot list EtcdRestores")?.items;
        let restore = if let Some(from_manifest) = from_manifest {
            with_existing(from_manifest, &others, &namespace)
        } else {
            let name = args.name.as_deref().unwrap_or_default();
            let found = others.iter().find(|one| one.name_any() == name).cloned();
            found.with_context(|| {
                format!("there is no EtcdRestore {name} in the namespace {namespace}: specify the name and namespace of an existing one, or a manifest with --file")
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

    /// Reads the data of a Secret.
    pub async fn secret(&self, name: &str) -> Result<BTreeMap<String, Vec<u8>>, String> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets
            .get(name)
            .await
            .map_err(|error| format!("cannot read the Secret {name}: {error}"))?;
        let data = secret.data.into_iter().flatten();
        Ok(data.map(|(key, value)| (key, value.0)).collect())
    }
}

/// Reads an object that may not exist.
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
    read.with_context(|| format!("cannot read the {kind} {name}"))
}

fn read_manifest(path: &Path) -> Result<EtcdRestore> {
    let shown = path.display();
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    }
    serde_saphyr::from_str(&text).with_context(|| format!("{shown} is not an EtcdRestore"))
}

/// Completes a manifest with UID, creation time and status of the existing object, if there is one.
fn with_existing(mut from_manifest: EtcdRestore, others: &[EtcdRestore], namespace: &str) -> EtcdRestore {
    from_manifest.metadata.namespace = Some(namespace.to_owned());
    if let Some(existing) = others
        .iter()
        .find(|one| one.name_any() == from_manifest.name_any())
    {
        from_manifest.metadata.uid.clone_from(&existing.metadata.uid);
        from_manifest
            .metadata
            .creation_timestamp
            .clone_from(&existing.metadata.creation_timestamp);
        from_manifest.status.clone_from(&existing.status);
    }
    from_manifest
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
    fn a_manifest_of_an_existing_object_is_completed_from_it() {
        let mut existing = restore("back");
        existing.metadata.uid = Some("u".to_owned());
        existing.status.get_or_insert_default().succeeded = true;
        let merged = with_existing(restore("back"), std::slice::from_ref(&existing), "shop");
        assert_eq!(merged.metadata.uid.as_deref(), Some("u"));
        assert!(merged.status.is_some_and(|status| status.succeeded));
        let new = with_existing(restore("other"), &[existing], "shop");
        assert_eq!((new.metadata.uid, new.status), (None, None));
        assert_eq!(new.metadata.namespace.as_deref(), Some("shop"));
    }
}
