//! Admission as a real API server does it: every row of the table of bad objects, and every manifest that must pass.

use anyhow::{Context, Result, ensure};
use etcd_operator_api::crd;
use etcd_operator_e2e::control_plane::{self, ControlPlane};
use kube::{
    Client,
    api::{Api, DeleteParams, DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde::Deserialize;
use serde_json::Value;
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
