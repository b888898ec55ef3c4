//! An EtcdRestore on a bed, as its user sees it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::{EtcdRestore, EtcdRestoreStatus};
use etcd_operator_e2e::observe;
use etcd_operator_e2e::scenario::Stage;
use kube::api::Api;
use serde_json::{Value, json};

use crate::cluster::tenant::{SOON, Tenant};

/// One EtcdRestore in the namespace of a stage.
pub struct Restore {
    stage: Arc<Stage>,
    name: String,
    patience: Duration,
}

impl Restore {
    /// The one of this name.
    pub fn named(stage: &Arc<Stage>, name: &str) -> Self {
        Self {
            stage: Arc::clone(stage),
            name: name.to_owned(),
            patience: SOON,
        }
    }

    /// The same, waited for so long.
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Its status, whatever it is about.
    pub async fn status(&self) -> Result<Option<EtcdRestoreStatus>> {
        Ok(self.restores().await?.get(&self.name).await?.status)
    }

    /// Applies it with this spec.
    pub async fn apply(&self, spec: &Value) -> Result<()> {
        self.stage.note(&format!("applies the EtcdRestore {}", self.name));
        let object = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdRestore",
            "metadata": {"name": self.name, "namespace": self.stage.namespace()},
            "spec": spec,
        });
        self.stage.cluster().apply(&object).await
    }

    async fn restores(&self) -> Result<Api<EtcdRestore>> {
        let client = self.stage.cluster().client().await?;
        Ok(Api::namespaced(client, self.stage.namespace()))
    }

    /// Watches it until its status is about the spec of now, and as wanted.
    pub async fn says(
        &self,
        what: &str,
        wanted: impl Fn(&EtcdRestoreStatus) -> bool,
    ) -> Result<EtcdRestoreStatus> {
        let is_so = |found: Option<&EtcdRestore>| {
            let generation = found.and_then(|restore| restore.metadata.generation);
            found
                .and_then(|restore| restore.status.as_ref())
                .filter(|status| status.observed_generation == generation)
                .is_some_and(&wanted)
        };
        let what = format!("{} {what}", self.name);
        let found = observe::object(self.restores().await?, &self.name, &what, self.patience, is_so).await?;
        found
            .and_then(|restore| restore.status)
            .context("an EtcdRestore without a status")
    }

    /// Watches until it is in this phase.
    pub async fn reaches(&self, phase: &str) -> Result<EtcdRestoreStatus> {
        self.says(&format!("is {phase}"), |status| {
            status.phase.as_deref() == Some(phase)
        })
        .await
    }

    /// Watches until it has succeeded; anything else it could end with is an error.
    pub async fn succeeds(&self) -> Result<EtcdRestoreStatus> {
        let status = self.says("is over", is_over).await?;
        ensure!(status.succeeded && status.committed, "{status:?}");
        Ok(status)
    }

    /// Deletes it.
    pub async fn delete(&self, tenant: &Tenant) -> Result<()> {
        self.stage.note(&format!("deletes the EtcdRestore {}", self.name));
        tenant
            .kubectl(&[
                "delete",
                "etcdrestore",
                &self.name,
                "--wait=true",
                "--timeout=60s",
            ])
            .await?;
        Ok(())
    }
}

/// Whether nothing more becomes of it.
pub fn is_over(status: &EtcdRestoreStatus) -> bool {
    let phase = status.phase.as_deref().unwrap_or_default();
    ["Succeeded", "Failed", "RolledBack"].contains(&phase)
}
