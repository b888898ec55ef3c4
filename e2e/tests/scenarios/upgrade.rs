//! Operators come and go, and members with their data stay: an older release is upgraded, rolled back and taken away,
//! and an older manager meets definitions of a newer one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore};
use etcd_operator_e2e::book::Desk;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::install::{Kubernetes, NAMESPACE, SAMPLE_VERSION};
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_e2e::{images, operator};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Client, CustomResourceExt as _, Resource as _};
use serde_json::{Value, json};

use crate::install::prepared;

const SOON: Duration = Duration::from_mins(2);
/// The chart of before: a lower version.
const PREVIOUS: &str = "cp -rL charts/etcd-operator previous\n\
                        sed -i 's/^version: .*/version: 0.0.1/; s/^appVersion: .*/appVersion: 0.0.1/' previous/Chart.yaml\n";
/// Another image, and other labels on all that the release makes.
const OLD: &str = "--namespace etcd --create-namespace --set image.repository=etcd-operator --set image.tag=previous \
                   --set labels.generation=previous";
const NEW: &str =
    "--namespace etcd --set image.repository=etcd-operator --set image.tag=dev --set labels.generation=this";
/// A way to the members from the desk, until its script ends.
const WAY: &str = "kubectl port-forward service/orders-client 2379 > /dev/null &\n\
                   until etcdctl endpoint health; do sleep 1; done\n";

pub const SCENARIOS: &[Scenario] = &[
    // A minute and a half of a bed of its own.
    Scenario::gate(
        "install",
        "members_and_data_outlive_an_upgrade_a_rollback_and_the_end_of_the_operator",
        Bed::Own(1),
        |stage| Box::pin(upgraded(stage)),
    )
    .full(),
    Scenario::gate(
        "install",
        "an_older_manager_loses_nothing_that_a_newer_one_wrote",
        Bed::Own(1),
        |stage| Box::pin(skewed(stage)),
    )
    .full(),
];

/// A bed on which the release of before serves the samples, and a desk on it. Its image is the same program, and yet has
/// another digest.
async fn with_previous(stage: &Stage) -> Result<(Kubernetes, Desk<'_>)> {
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE).await?;
    let binary = desk.path("etcd-operator");
    let mut program = std::fs::read(operator::binary().await?)?;
    program.extend(b"previous");
    std::fs::write(&binary, program)?;
    let archive = images::operator(&binary).await?;
    for node in stage.cluster().nodes() {
        node.import(&archive).await?;
    }
    desk.image("docker.io/library/etcd-operator:previous").await?;
    let kubernetes = prepared(stage).await?;
    desk.runs(&format!("{PREVIOUS}helm install etcd-operator previous {OLD}\n"))
        .await?;
    kubernetes.ready().await?;
    kubernetes.apply_samples().await?;
    kubernetes.sample_serves().await?;
    Ok((kubernetes, desk))
}

/// Which pods and volumes there are, and how often something started in them.
async fn members(kubernetes: &Kubernetes) -> Result<String> {
    let list = [
        "--namespace",
        NAMESPACE,
        "get",
        "pods,pvc",
        "--selector=etcd_cluster=orders",
        "--output=jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} \
         {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}",
    ];
    kubernetes.kubectl(&list).await
}

/// A backup on request, which only a manager at work makes.
async fn works(kubernetes: &Kubernetes, word: &str) -> Result<()> {
    let ask = format!("etcd.database.coreos.com/backup-now={word}");
    let annotate = [
        "--namespace",
        NAMESPACE,
        "annotate",
        "--overwrite",
        "etcdbackup",
        "orders-nightly",
        &ask,
    ];
    kubernetes.kubectl(&annotate).await?;
    let made = format!("--for=jsonpath={{.status.lastBackupNow}}={word}");
    let wait = [
        "--namespace",
        NAMESPACE,
        "wait",
        &made,
        "--timeout=170s",
        "etcdbackup/orders-nightly",
    ];
    kubernetes.kubectl(&wait).await?;
    Ok(())
}

async fn upgraded(stage: Arc<Stage>) -> Result<()> {
    let (kubernetes, desk) = with_previous(&stage).await?;
    kubernetes.sample_is_backed_up().await?;
    desk.runs(&format!("{WAY}etcdctl put kept yes\n")).await?;
    let before = members(&kubernetes).await?;
    ensure!(before.lines().count() == 6, "{before}");

    for (what, step) in [
        (
            "upgrade",
            format!("helm upgrade etcd-operator charts/etcd-operator {NEW}\n"),
        ),
        (
            "rollback",
            "helm rollback etcd-operator 1 --namespace etcd\n".to_owned(),
        ),
        (
            "forward",
            format!("helm upgrade etcd-operator charts/etcd-operator {NEW}\n"),
        ),
    ] {
        desk.runs(&step).await?;
        kubernetes.ready().await?;
        works(&kubernetes, what).await?;
        let after = members(&kubernetes).await?;
        ensure!(before == after, "{what}: {before} became {after}");
    }
    kubernetes.uninstall().await?;
    until("the operator is gone", SOON, || async {
        let pods = [
            "--namespace",
            NAMESPACE,
            "get",
            "pods",
            "--selector=app.kubernetes.io/name=etcd-operator",
            "--output=name",
        ];
        Ok(kubernetes.kubectl(&pods).await?.is_empty().then_some(()))
    })
    .await?;
    let after = members(&kubernetes).await?;
    ensure!(before == after, "uninstall: {before} became {after}");
    let said = desk.runs(&format!("{WAY}etcdctl get kept\n")).await?;
    ensure!(said.contains("kept\nyes"), "{said}");
    Ok(())
}

/// What a newer operator would have in a kind: a text called `later` in each of these parts.
struct Newer {
    resource: ApiResource,
    definition: &'static str,
    object: &'static str,
    parts: &'static [&'static str],
}

/// Where a schema describes it, a list's items by the name `items`.
fn described(part: &str) -> String {
    let root = "/spec/versions/0/schema/openAPIV3Schema/properties";
    let names: Vec<&str> = part.split('/').collect();
    let path = names.join("/properties/").replace("properties/0", "items");
    format!("{root}/{path}/properties")
}

impl Newer {
    /// Defines them.
    async fn define(&self, stage: &Stage) -> Result<()> {
        let definitions = Api::<CustomResourceDefinition>::all(stage.cluster().client().await?);
        let mut definition = serde_json::to_value(definitions.get(self.definition).await?)?;
        for part in self.parts {
            let fields = definition.pointer_mut(&described(part));
            let fields = fields
                .and_then(Value::as_object_mut)
                .with_context(|| format!("{part} has no fields"))?;
            fields.insert("later".to_owned(), json!({ "type": "string" }));
        }
        let newer = json!({ "spec": { "versions": definition["spec"]["versions"] } });
        definitions
            .patch(self.definition, &PatchParams::default(), &Patch::Merge(&newer))
            .await?;
        Ok(())
    }

    fn api(&self, client: Client) -> Api<DynamicObject> {
        Api::namespaced_with(client, NAMESPACE, &self.resource)
    }

    /// Writes them into the object, as a newer operator and its users would.
    async fn write(&self, stage: &Stage) -> Result<()> {
        let api = self.api(stage.cluster().client().await?);
        let what = format!("the newer fields of {} are known", self.object);
        until(&what, SOON, || async {
            let params = PatchParams::default();
            let mut wanted = serde_json::to_value(api.get(self.object).await?)?;
            for part in self.parts {
                let place = wanted.pointer_mut(&format!("/{part}"));
                place.with_context(|| format!("there is no {part}"))?["later"] = "kept".into();
            }
            // Fenced by the version that was read: somebody else writes as well.
            let change = json!({
                "metadata": {"resourceVersion": wanted["metadata"]["resourceVersion"]}, "spec": wanted["spec"],
            });
            let Ok(written) = api.patch(self.object, &params, &Patch::Merge(&change)).await else {
                return Ok(None);
            };
            let change = json!({
                "metadata": {"resourceVersion": written.metadata.resource_version}, "status": wanted["status"],
            });
            let written = api
                .patch_status(self.object, &params, &Patch::Merge(&change))
                .await;
            // An API server that has not read the newer definition yet drops them without a word.
            Ok(written.ok().filter(|object| self.lost(object).is_empty()).map(drop))
        })
        .await
    }

    /// The parts that have lost what was written into them.
    fn lost(&self, object: &DynamicObject) -> Vec<&str> {
        let has = |part: &&str| object.data.pointer(&format!("/{part}/later")) == Some(&json!("kept"));
        let lost = self.parts.iter().filter(|part| !has(part));
        lost.copied().collect()
    }
}

/// The second cluster, and what makes it.
const COPY: &str = "orders-copy";

/// A restore of this backup beside the first cluster, or the one that is there turned to it.
async fn restored_from(stage: &Stage, backup: &str) -> Result<()> {
    let api = Api::<EtcdRestore>::namespaced(stage.cluster().client().await?, NAMESPACE);
    let template = json!({"size": 1, "version": SAMPLE_VERSION.number(), "storage": {"size": "1Gi"}});
    let wanted = json!({
        "apiVersion": EtcdRestore::api_version(&()),
        "kind": EtcdRestore::kind(&()),
        "metadata": {"name": COPY},
        "spec": {
            "etcdCluster": {"name": COPY},
            "clusterTemplate": {"spec": template},
            "source": {"backup": {"name": backup}},
        },
    });
    let params = PatchParams::apply("user");
    api.patch(COPY, &params, &Patch::Apply(&wanted)).await?;
    until("the manager has looked at the restore", SOON, || async {
        let seen = api.get(COPY).await?;
        let generation = seen.status.and_then(|status| status.observed_generation);
        Ok((generation == seen.metadata.generation).then_some(()))
    })
    .await
}

async fn skewed(stage: Arc<Stage>) -> Result<()> {
    let (kubernetes, _) = with_previous(&stage).await?;
    kubernetes.sample_is_backed_up().await?;
    restored_from(&stage, "a-backup-to-come").await?;
    let kinds = [
        Newer {
            resource: ApiResource::erase::<EtcdCluster>(&()),
            definition: EtcdCluster::crd_name(),
            object: "orders",
            parts: &["spec", "spec/storage", "status", "status/members"],
        },
        Newer {
            resource: ApiResource::erase::<EtcdBackup>(&()),
            definition: EtcdBackup::crd_name(),
            object: "orders-nightly",
            parts: &[
                "spec",
                "spec/backupPolicy",
                "spec/local",
                "status",
                "status/history/0",
            ],
        },
        Newer {
            resource: ApiResource::erase::<EtcdRestore>(&()),
            definition: EtcdRestore::crd_name(),
            object: COPY,
            parts: &["spec", "spec/source", "spec/clusterTemplate/spec", "status"],
        },
    ];
    for kind in &kinds {
        kind.define(&stage).await?;
        kind.write(&stage).await?;
    }
    let before = members(&kubernetes).await?;
    // It goes on with what it knows, and writes its part of the status.
    let grow = r#"{"spec":{"size":5}}"#;
    kubernetes
        .kubectl(&[
            "--namespace",
            NAMESPACE,
            "patch",
            "etcd",
            "orders",
            "--type=merge",
            "--patch",
            grow,
        ])
        .await?;
    let wait = [
        "--namespace",
        NAMESPACE,
        "wait",
        "--for=jsonpath={.status.readyMembers}=5/5",
        "--timeout=170s",
        "etcdcluster/orders",
    ];
    kubernetes.kubectl(&wait).await?;
    let after = members(&kubernetes).await?;
    for line in before.lines() {
        ensure!(after.contains(line), "{line} is not in {after}");
    }
    works(&kubernetes, "second").await?;
    let listed = [
        "--namespace",
        NAMESPACE,
        "get",
        "etcdbackup",
        "orders-nightly",
        "--output=jsonpath={.status.history[*].object}",
    ];
    until("both backups are listed", SOON, || async {
        let said = kubernetes.kubectl(&listed).await?;
        Ok((said.split_whitespace().count() == 2).then_some(()))
    })
    .await?;
    restored_from(&stage, "orders-nightly").await?;
    let wait = [
        "--namespace",
        NAMESPACE,
        "wait",
        "--for=jsonpath={.status.phase}=Succeeded",
        "--timeout=170s",
        "etcdrestore/orders-copy",
    ];
    kubernetes.kubectl(&wait).await?;
    for kind in &kinds {
        let mut object = kind.api(stage.cluster().client().await?).get(kind.object).await?;
        if kind.object == "orders-nightly" {
            // The newest is the first; the one that was written into is behind it by now.
            let history = object.data.pointer_mut("/status/history");
            let history = history.and_then(Value::as_array_mut).context("no history")?;
            ensure!(history.len() == 2, "{history:?}");
            history.remove(0);
        }
        let lost = kind.lost(&object);
        ensure!(
            lost.is_empty(),
            "{lost:?} of {} are lost: {}",
            kind.object,
            object.data
        );
    }
    Ok(())
}
