//! Admission as a real API server does it: every row of the table of bad objects, and every manifest that must pass.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::crd;
use etcd_operator_e2e::Options;
use etcd_operator_e2e::control_plane::{self, ControlPlane};
use etcd_operator_e2e::deadline::until;
use kube::{
    Client,
    api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

const REFUSED: &str = include_str!("../../crates/api/fixtures/refused.yaml");

#[derive(Deserialize)]
struct Row {
    case: String,
    says: Vec<String>,
    before: Option<Value>,
    object: Value,
}

/// The shared control plane with our definitions on it.
async fn bed() -> Result<&'static ControlPlane> {
    static READY: OnceCell<()> = OnceCell::const_new();
    let bed = control_plane::shared().await?;
    READY
        .get_or_try_init(|| async {
            let documents: Vec<_> = crd::all()
                .iter()
                .map(serde_json::to_string)
                .collect::<Result<_, _>>()?;
            bed.apply_crds(&documents.join("\n---\n")).await
        })
        .await?;
    Ok(bed)
}

fn api(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(etcd_operator_api::GROUP, etcd_operator_api::VERSION, kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

fn object(value: &Value) -> Result<(String, DynamicObject)> {
    let mut value = value.clone();
    value["apiVersion"] = format!("{}/{}", etcd_operator_api::GROUP, etcd_operator_api::VERSION).into();
    let kind = value["kind"].as_str().context("a kind")?.to_owned();
    Ok((kind, serde_json::from_value(value)?))
}

/// What the API server says against an object, or nothing if it takes it.
async fn refusal(client: &Client, namespace: &str, row: &Row) -> Result<Option<String>> {
    let (kind, mut wanted) = object(&row.object)?;
    let api = api(client, namespace, &kind);
    let params = PostParams::default();
    let name = wanted.metadata.name.clone().context("a name")?;
    let answer = if let Some(before) = &row.before {
        let (_, before) = object(before)?;
        let mut stored = api.create(&params, &before).await?;
        if before.data.get("status").is_some() {
            stored.data["status"] = before.data["status"].clone();
            stored = api.replace_status(&name, &params, &stored).await?;
        }
        wanted.metadata.resource_version = stored.metadata.resource_version;
        api.replace(&name, &params, &wanted).await
    } else {
        api.create(&params, &wanted).await
    };
    let refused = match answer {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.message.clone()),
        Err(other) => return Err(other.into()),
    };
    if row.before.is_some() || refused.is_none() {
        api.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(refused)
}

#[tokio::test]
async fn each_bad_object_is_refused_with_the_field_and_the_remedy() -> Result<()> {
    let bed = bed().await?;
    let (client, namespace) = (bed.client().await?, bed.namespace("refused").await?);
    let rows: Vec<Row> = serde_saphyr::from_str(REFUSED)?;
    ensure!(rows.len() > 80, "only {} rows", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        match refusal(&client, &namespace, row)
            .await
            .with_context(|| row.case.clone())?
        {
            None => wrong.push(format!("{}: was accepted", row.case)),
            Some(message) => wrong.extend(
                row.says
                    .iter()
                    .filter(|words| !message.contains(words.as_str()))
                    .map(|words| format!("{}: «{words}» is not in: {message}", row.case)),
            ),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[tokio::test]
async fn manifests_of_the_older_operator_and_of_ours_apply_as_they_are() -> Result<()> {
    let bed = bed().await?;
    let namespace = bed.namespace("accepted").await?;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/api/fixtures/accepted");
    let mut files: Vec<_> = std::fs::read_dir(folder)?
        .map(|f| Ok(f?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    ensure!(files.len() >= 12, "the fixtures have gone");
    for file in files {
        let path = file.to_str().context("a path in UTF-8")?;
        for how in [&["apply"][..], &["apply", "--server-side"]] {
            let arguments = [how, &["--namespace", &namespace, "-f", path, "--dry-run=server"]].concat();
            let output = bed.kubectl(&arguments).await?;
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{path} {how:?}: {said}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn kubectl_gets_describes_explains_and_scales_a_cluster_by_its_short_name() -> Result<()> {
    let bed = bed().await?;
    let namespace = bed.namespace("short").await?;
    let manifest = r#"{"apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster", "metadata": {"name": "c"}, "spec": {}}"#;
    let say = async |arguments: &[&str]| -> Result<String> {
        let output = bed
            .kubectl(&[&["--namespace", namespace.as_str()], arguments].concat())
            .await?;
        ensure!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let created = bed
        .kubectl_with_input(&["--namespace", &namespace, "create", "-f", "-"], manifest)
        .await?;
    ensure!(
        created.status.success(),
        "{}",
        String::from_utf8_lossy(&created.stderr)
    );

    let table = say(&["get", "etcd", "c"]).await?;
    for column in ["NAME", "PHASE", "READY", "VERSION", "LEADER", "AGE"] {
        assert!(table.contains(column), "{table}");
    }
    assert!(say(&["describe", "etcd", "c"]).await?.contains("Size:  3"));
    say(&["scale", "etcd", "c", "--replicas=5"]).await?;
    assert_eq!(
        say(&["get", "etcd", "c", "-o", "jsonpath={.spec.size}"]).await?,
        "5"
    );
    assert!(
        say(&["scale", "etcd", "c", "--replicas=10"]).await.is_err(),
        "ten members were accepted"
    );
    assert!(
        say(&["get", "all"])
            .await?
            .contains("etcdcluster.etcd.database.coreos.com/c")
    );
    let explained = say(&["explain", "etcd.spec.size"]).await?;
    let words: Vec<_> = explained.split_whitespace().collect();
    assert!(
        words.join(" ").contains("tolerates the most failures"),
        "{explained}"
    );
    Ok(())
}

#[tokio::test]
async fn definitions_stay_within_the_api_servers_cost_limits_when_applied_from_the_client() -> Result<()> {
    let bed = bed().await?;
    for definition in crd::all() {
        let text = serde_json::to_string(&definition)?;
        let output = bed
            .kubectl_with_input(&["apply", "--dry-run=server", "-f", "-"], &text)
            .await?;
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// One valid object of each kind, and an edit of its spec.
fn samples() -> [(Value, Value); 3] {
    let store = json!({"path": "b/k"});
    let cluster = json!({"name": "c"});
    let object =
        |kind: &str, name: &str, spec: Value| json!({"kind": kind, "metadata": {"name": name}, "spec": spec});
    [
        (object("EtcdCluster", "c", json!({"size": 3})), json!({"size": 5})),
        (
            object(
                "EtcdBackup",
                "b",
                json!({"etcdCluster": cluster, "storageType": "S3", "s3": store}),
            ),
            json!({"suspend": true}),
        ),
        (
            object(
                "EtcdRestore",
                "r",
                json!({"etcdCluster": cluster, "backupStorageType": "S3", "s3": store}),
            ),
            json!({"s3": {"path": "b/other"}}),
        ),
    ]
}

/// kstatus takes an object without an observed generation for current.
#[tokio::test]
async fn a_new_object_and_one_that_lost_its_status_are_not_current() -> Result<()> {
    let bed = bed().await?;
    let (client, namespace) = (bed.client().await?, bed.namespace("unseen").await?);
    let merge = PatchParams::default();
    for (sample, _) in samples() {
        let (kind, new) = object(&sample)?;
        let name = new.metadata.name.clone().context("a name")?;
        let api = api(&client, &namespace, &kind);
        let created = api.create(&PostParams::default(), &new).await?;
        assert_eq!(created.data["status"]["observedGeneration"], -1, "{kind}");
        let seen = Patch::Merge(json!({"status": {"observedGeneration": 1}}));
        let written = api.patch_status(&name, &merge, &seen).await?;
        assert_eq!(written.data["status"]["observedGeneration"], 1, "{kind}");
        let removal = Patch::Merge(json!({"status": null}));
        api.patch_status(&name, &merge, &removal).await?;
        let removed = api.get(&name).await?;
        assert_eq!(removed.data["status"]["observedGeneration"], -1, "{kind}");
    }
    Ok(())
}

/// The ancestor's conditions lack fields that the schema requires, until the operator has written them anew. The API server
/// validates the status on an edit of the spec, too, and accepts unchanged values as they are (CRDValidationRatcheting).
#[tokio::test]
async fn an_object_with_incomplete_conditions_of_the_ancestor_can_be_edited() -> Result<()> {
    let bed = ControlPlane::start(Options::default()).await?;
    let mut definitions = crd::all().map(|definition| json!(definition));
    let texts = |definitions: &[Value; 3]| definitions.each_ref().map(Value::to_string).join("\n---\n");
    let strict = texts(&definitions);
    for definition in &mut definitions {
        let version = &mut definition["spec"]["versions"][0];
        version["schema"]["openAPIV3Schema"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        version["subresources"] = json!({"status": {}});
    }
    bed.apply_crds(&texts(&definitions)).await?;
    let (client, namespace) = (bed.client().await?, bed.namespace("ancestor").await?);
    let merge = PatchParams::default();
    let conditions = json!([
        {"type": "Available", "status": "True", "lastUpdateTime": "2019-12-15T15:57:59Z", "lastTransitionTime": "", "reason": "Cluster available"},
        {"type": "Scaling", "status": "True"},
    ]);
    let status = Patch::Merge(json!({"status": {"conditions": conditions}}));
    for (sample, _) in samples() {
        let (kind, new) = object(&sample)?;
        let name = new.metadata.name.clone().context("a name")?;
        let api = api(&client, &namespace, &kind);
        api.create(&PostParams::default(), &new).await?;
        api.patch_status(&name, &merge, &status).await?;
    }

    bed.apply_crds(&strict).await?;
    let (_, mut other) = object(&samples()[0].0)?;
    other.metadata.name = Some("other".to_owned());
    let clusters = api(&client, &namespace, "EtcdCluster");
    clusters.create(&PostParams::default(), &other).await?;
    until(
        "such conditions are refused where they are new",
        Duration::from_secs(30),
        || async {
            match clusters
                .patch_status("other", &merge.clone().dry_run(), &status)
                .await
            {
                Ok(_) => Ok(None),
                Err(kube::Error::Api(refusal)) if refusal.code == 422 => Ok(Some(())),
                Err(other) => Err(other.into()),
            }
        },
    )
    .await?;

    for (sample, edit) in samples() {
        let (kind, sent) = object(&sample)?;
        let name = sent.metadata.name.context("a name")?;
        let api = api(&client, &namespace, &kind);
        let edit = Patch::Merge(json!({"spec": edit}));
        let edited = api.patch(&name, &merge, &edit).await.context(kind.clone())?;
        assert_eq!(edited.metadata.generation, Some(2), "{kind}");
        assert_eq!(edited.data["status"]["conditions"], conditions, "{kind}");
        let annotation = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
        api.patch(&name, &merge, &annotation)
            .await
            .context(kind.clone())?;
    }
    let scale = ["--namespace", &namespace, "scale", "etcd", "c", "--replicas=3"];
    let scaled = bed.kubectl(&scale).await?;
    ensure!(
        scaled.status.success(),
        "{}",
        String::from_utf8_lossy(&scaled.stderr)
    );

    // As the operator completes them.
    let complete = json!({"type": "Available", "status": "True", "reason": "QuorumServes", "message": "", "lastTransitionTime": "2026-03-01T03:00:00Z"});
    let status = Patch::Merge(json!({"status": {"observedGeneration": 3, "conditions": [complete]}}));
    clusters.patch_status("c", &merge, &status).await?;
    Ok(())
}
