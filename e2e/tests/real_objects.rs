//! The objects of a cluster as a real API server sees them: it takes them from an operator with the rights of our
//! role, has nothing to add that would be taken for drift, and lets the pods into a namespace that is restricted.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use etcd_operator_api::{EtcdCluster, cluster::DefaultRepository, crd};
use etcd_operator_cluster_core::{
    build::{
        BuildInputs, FetchContainer, Objects, RestartRequests, StateAnnotations, StoredTemplates, build,
        claim, desired,
    },
    desired::Desired,
};
use etcd_operator_e2e::control_plane::{self, ControlPlane};
use etcd_operator_runtime::drift;
use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Client, Resource,
    api::{Api, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const NAMES: [&str; 6] = [
    "seed",
    "persistent",
    "memory",
    "static-tls",
    "image-3.4",
    "everything",
];
/// In whose name the operator of these tests speaks.
const OPERATOR: &str = "operator-of-objects";

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn spec(name: &str) -> Result<String> {
    let path = root().join(format!("crates/cluster-core/tests/canonical/{name}.yaml"));
    Ok(std::fs::read_to_string(path)?)
}

fn wishes(name: &str) -> Result<Desired> {
    let cluster: EtcdCluster = serde_saphyr::from_str(&spec(name)?)?;
    desired(&cluster).map_err(|refused| anyhow!("{name}: {refused:?}"))
}

fn inputs(desired: &Desired, namespace: &str) -> Result<BuildInputs> {
    Ok(BuildInputs {
        namespace: namespace.to_owned(),
        cluster_uid: "7f6f1bb5-0000-4000-8000-000000000000".to_owned(),
        state_annotations: StateAnnotations {
            incarnation: 1,
            cluster_id: "cdf818194e3a8c32".parse().ok(),
            voters: ["a-0".to_owned()].into(),
            members: std::collections::BTreeMap::new(),
            restore: None,
            restored_revision: 0,
            earlier_restores: Vec::new(),
            served_spec_hashes: Vec::new(),
        },
        replicas: desired.size.get(),
        accepts_clients: true,
        version: desired.version(None),
        default_repository: DefaultRepository::default(),
        operator_image: "etcd-operator:dev".parse()?,
        budget_voters: desired.size.get().into(),
        stored: None,
        may_update_template: false,
        snapshot_count: None,
        restart: RestartRequests::default(),
        fetch_container: FetchContainer::Absent,
        is_restoring: false,
    })
}

fn objects(desired: &Desired, inputs: &BuildInputs) -> Result<Objects> {
    build(desired, inputs).map_err(|refused| anyhow!("{refused:?}"))
}

/// A namespace in which nothing but restricted pods may run, and a client with the rights of the operator's role.
async fn restricted(bed: &ControlPlane, prefix: &str) -> Result<(String, Client)> {
    let namespace = bed.namespace(prefix).await?;
    let role = std::fs::read_to_string(root().join("config/rbac/own_namespace/role.yaml"))?;
    let role = role.replace("namespace: etcd-operator", &format!("namespace: {namespace}"));
    said(bed, &["apply", "-f", "-"], &role).await?;
    let (role, user) = ("--role=etcd-operator", format!("--user={OPERATOR}"));
    let binding = ["create", "rolebinding", "objects", role, &user, "-n", &namespace];
    said(bed, &binding, "").await?;
    let client = bed.client_for(OPERATOR, &[]).await?;
    Ok((namespace, client))
}

async fn said(bed: &ControlPlane, arguments: &[&str], input: &str) -> Result<()> {
    let output = bed.kubectl_with_input(arguments, input).await?;
    ensure!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Applies an object, until a role that was just bound is known; then reads it back, and it is as wanted.
async fn applied<K>(client: &Client, object: &K) -> Result<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let meta = object.meta();
    let name = meta.name.clone().context("a name")?;
    let api: Api<K> = Api::namespaced(client.clone(), meta.namespace.as_deref().context("a namespace")?);
    let params = PatchParams::apply("etcd-operator/cluster").force();
    etcd_operator_e2e::deadline::until(
        "the role is known",
        std::time::Duration::from_secs(20),
        || async {
            match api.patch(&name, &params, &Patch::Apply(object)).await {
                Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
                answer => Ok(Some(answer?)),
            }
        },
    )
    .await?;
    let stored = api.get(&name).await?;
    ensure!(
        !drift::needs_apply(&serde_json::to_value(&stored)?, &serde_json::to_value(object)?),
        "what the API server stores would be applied again and again: {stored:?}"
    );
    Ok(stored)
}

async fn applied_all(client: &Client, objects: &Objects) -> Result<StatefulSet> {
    applied(client, &objects.headless).await?;
    applied(client, &objects.client).await?;
    if let Some(budget) = &objects.disruption {
        applied(client, budget).await?;
    }
    applied(client, &objects.members).await
}

/// The pod that the StatefulSet controller would make.
fn pod(set: &StatefulSet) -> Result<Pod> {
    let template = set.spec.template.clone();
    let mut spec = template.spec.context("a pod")?;
    let name = format!("{}-0", set.metadata.name.as_deref().context("a name")?);
    let claims = set.spec.volume_claim_templates.iter().flatten();
    let claimed = claims
        .filter_map(|claim| claim.metadata.name.clone())
        .map(|claim| Volume {
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: format!("{claim}-{name}"),
                ..PersistentVolumeClaimVolumeSource::default()
            }),
            name: claim,
            ..Volume::default()
        });
    spec.volumes.get_or_insert_default().extend(claimed);
    spec.hostname = Some(name.clone());
    spec.subdomain.clone_from(&set.spec.service_name);
    Ok(Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: set.metadata.namespace.clone(),
            ..template.metadata.unwrap_or_default()
        },
        spec: Some(spec),
        status: None,
    })
}

/// What the API server says against a pod, or nothing if it takes it.
async fn refusal(bed: &ControlPlane, pod: &Pod) -> Result<Option<String>> {
    let namespace = pod.metadata.namespace.as_deref().context("a namespace")?;
    let pods: Api<Pod> = Api::namespaced(bed.client().await?, namespace);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match pods.create(&dry, pod).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
        Err(other) => Err(other.into()),
    }
}

/// The definitions of our kinds, and what the richest of the specs refers to.
async fn surroundings(bed: &ControlPlane) -> Result<()> {
    let definitions: Vec<_> = crd::all()
        .iter()
        .map(serde_json::to_string)
        .collect::<Result<_, _>>()?;
    bed.apply_crds(&definitions.join("\n---\n")).await?;
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "important"}, "value": 1000,
    });
    said(bed, &["apply", "-f", "-"], &class.to_string()).await
}

#[tokio::test]
async fn the_objects_of_six_clusters_are_stored_as_built_and_their_pods_let_into_a_restricted_namespace()
-> Result<()> {
    let bed = control_plane::shared().await?;
    surroundings(bed).await?;
    let (namespace, operator) = restricted(bed, "objects").await?;
    for name in NAMES {
        let admit = ["apply", "--dry-run=server", "-n", &namespace, "-f", "-"];
        said(bed, &admit, &spec(name)?).await.context(name)?;
        let desired = wishes(name)?;
        let objects = objects(&desired, &inputs(&desired, &namespace)?)?;
        let set = applied_all(&operator, &objects).await.context(name)?;
        assert_eq!(refusal(bed, &pod(&set)?).await?, None, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_pod_that_asks_for_more_is_not_let_in() -> Result<()> {
    let bed = control_plane::shared().await?;
    let (namespace, operator) = restricted(bed, "loose").await?;
    let mut desired = wishes("seed")?;
    let loose = json!({"spec": {"containers": [{"name": "etcd", "securityContext": {"privileged": true, "allowPrivilegeEscalation": null}}]}});
    desired.pod.patch = loose.as_object().cloned();
    let objects = objects(&desired, &inputs(&desired, &namespace)?)?;
    let set = applied_all(&operator, &objects).await?;
    let said = refusal(bed, &pod(&set)?).await?.context("it was let in")?;
    assert!(said.contains("violates PodSecurity"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_forms_grows_and_waits_with_a_change_is_applied_over_what_is_stored() -> Result<()> {
    let bed = control_plane::shared().await?;
    let (namespace, operator) = restricted(bed, "grows").await?;
    let mut desired = wishes("persistent")?;
    let mut inputs = inputs(&desired, &namespace)?;
    inputs.accepts_clients = false;
    let stored = applied_all(&operator, &objects(&desired, &inputs)?).await?;

    // A size of volumes that the StatefulSet can no longer take, a version whose gate is shut, and two more members.
    let later = json!({"spec": {"size": 5, "version": "3.7.3", "storage": {"size": "16Gi", "storageClassName": "fast"}}});
    desired = {
        let mut cluster = json!({"metadata": {"name": "orders"}});
        cluster["spec"] = later["spec"].clone();
        let cluster: EtcdCluster = serde_json::from_value(cluster)?;
        etcd_operator_cluster_core::build::desired(&cluster).map_err(|refused| anyhow!("{refused:?}"))?
    };
    inputs.accepts_clients = true;
    inputs.replicas = 5;
    inputs.version = "3.7.3".parse()?;
    inputs.stored = Some(StoredTemplates::read(&stored).into());
    let grown = objects(&desired, &inputs)?;
    ensure!(grown.pending.is_some(), "the change did not wait");
    let stored = applied_all(&operator, &grown).await?;
    assert_eq!(stored.spec.replicas, Some(5));
    let template = serde_json::to_value(&stored.spec.template)?;
    assert_eq!(
        template["spec"]["containers"][0]["image"],
        "quay.io/coreos/etcd:v3.6.16"
    );
    Ok(())
}

#[tokio::test]
async fn a_claim_gets_its_labels_and_owner_and_loses_the_owner_when_it_is_to_stay() -> Result<()> {
    let bed = control_plane::shared().await?;
    let (namespace, operator) = restricted(bed, "claims").await?;
    let made: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "data-orders-0", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "8Gi"}}},
    }))?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(bed.client().await?, &namespace);
    let made = claims.create(&PostParams::default(), &made).await?;
    let owners =
        |claim: &PersistentVolumeClaim| claim.metadata.owner_references.clone().unwrap_or_default().len();
    let mut desired = wishes("persistent")?;
    let inputs = inputs(&desired, &namespace)?;
    let owned = applied(&operator, &claim(&desired, &inputs, &made).context("a claim")?).await?;
    assert_eq!(owners(&owned), 1);
    assert_eq!(
        owned
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get("etcd_cluster"))
            .map(String::as_str),
        Some("orders")
    );
    if let etcd_operator_cluster_core::desired::Storage::Persistent { retention, .. } = &mut desired.storage {
        *retention = etcd_operator_api::cluster::Retention::Retain;
    }
    let kept = applied(&operator, &claim(&desired, &inputs, &owned).context("a claim")?).await?;
    assert_eq!(owners(&kept), 0);
    let spec: Value = serde_json::to_value(kept.spec)?;
    assert_eq!(spec["resources"]["requests"]["storage"], "8Gi");
    Ok(())
}
