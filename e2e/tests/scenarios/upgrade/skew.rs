//! An older manager and what a newer one left: fields that it does not know stay, also in the items of lists, and where it
//! does not know what is under way nothing is touched.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::install::{Kubernetes, NAMESPACE, SAMPLE_VERSION};
use etcd_operator_e2e::scenario::Stage;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Client, CustomResourceExt as _, Resource as _};
use serde_json::{Value, json};

use super::{SOON, members, with_previous, works};

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

/// Kinds as a newer operator would define them, and the objects in which it has written.
fn newer() -> [Newer; 3] {
    [
        Newer {
            resource: ApiResource::erase::<EtcdCluster>(&()),
            definition: EtcdCluster::crd_name(),
            object: "orders",
            parts: &[
                "spec",
                "spec/storage",
                "status",
                "status/members",
                "status/memberStatus/0",
                "status/conditions/0",
                "status/plan",
            ],
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
                "status/conditions/0",
                "status/history/0",
            ],
        },
        Newer {
            resource: ApiResource::erase::<EtcdRestore>(&()),
            definition: EtcdRestore::crd_name(),
            object: COPY,
            parts: &[
                "spec",
                "spec/source",
                "spec/clusterTemplate/spec",
                "status",
                "status/conditions/0",
            ],
        },
    ]
}

/// The same of what there is once the second cluster is restored.
fn newer_of_restored() -> [Newer; 2] {
    [
        Newer {
            resource: ApiResource::erase::<EtcdCluster>(&()),
            definition: EtcdCluster::crd_name(),
            object: COPY,
            parts: &[
                "status/memberStatus/0",
                "status/conditions/0",
                "status/restore/members/0",
            ],
        },
        Newer {
            resource: ApiResource::erase::<EtcdRestore>(&()),
            definition: EtcdRestore::crd_name(),
            object: COPY,
            parts: &["status/conditions/0", "status/members/0"],
        },
    ]
}

/// The manager goes on with what it knows, and writes its part of all three statuses.
async fn goes_on(stage: &Stage, kubernetes: &Kubernetes) -> Result<()> {
    let before = members(kubernetes).await?;
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
    let after = members(kubernetes).await?;
    for line in before.lines() {
        ensure!(after.contains(line), "{line} is not in {after}");
    }
    works(kubernetes, "second").await?;
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
    restored_from(stage, "orders-nightly").await?;
    let wait = [
        "--namespace",
        NAMESPACE,
        "wait",
        "--for=jsonpath={.status.phase}=Succeeded",
        "--timeout=170s",
        "etcdrestore/orders-copy",
    ];
    kubernetes.kubectl(&wait).await?;
    Ok(())
}

/// Nothing that was written into these has been lost.
async fn keep_all(stage: &Stage, kinds: &[Newer]) -> Result<()> {
    for kind in kinds {
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

/// What the second cluster consists of.
async fn parts_of_copy(kubernetes: &Kubernetes) -> Result<String> {
    let list = [
        "--namespace",
        NAMESPACE,
        "get",
        "pods,pvc,statefulsets",
        "--selector=etcd_cluster=orders-copy",
        "--output=jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.uid} {.metadata.generation} \
         {.metadata.annotations}{\"\\n\"}{end}",
    ];
    kubernetes.kubectl(&list).await
}

/// Whether a status speaks of the object as it is now.
fn is_seen(object: &DynamicObject) -> bool {
    object.data["status"]["observedGeneration"].as_i64() == object.metadata.generation
}

/// Asks the second cluster for another size, which it does not get.
async fn withheld(api: &Api<DynamicObject>, size: i32, why: &str) -> Result<()> {
    let asked = json!({ "spec": { "size": size } });
    api.patch(COPY, &PatchParams::default(), &Patch::Merge(&asked))
        .await?;
    told(api, why).await
}

/// The status of the second cluster, as it is now, says that something waits because of this.
async fn told(api: &Api<DynamicObject>, why: &str) -> Result<()> {
    let what = format!("{COPY} waits because of {why}");
    until(&what, SOON, || async {
        let now = api.get(COPY).await?;
        let told = now.data["status"]["plan"]["why"].as_str().unwrap_or_default();
        Ok((is_seen(&now) && told.contains(why)).then_some(()))
    })
    .await
}

/// The second cluster has this size, and nothing is to be done about it.
async fn settled(api: &Api<DynamicObject>, size: i32) -> Result<()> {
    let (what, ready) = (format!("{COPY} settles at {size}"), format!("{size}/{size}"));
    until(&what, SOON, || async {
        let now = api.get(COPY).await?;
        let status = &now.data["status"];
        let conditions = status["conditions"].as_array();
        let is_converged = conditions
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "Progressing" && one["reason"] == "Converged");
        let is_ready = status["readyMembers"].as_str() == Some(&*ready);
        Ok((is_seen(&now) && is_ready && is_converged).then_some(()))
    })
    .await
}

/// What only a newer operator knows stands in the status of the second cluster, first a step, then a phase of a restore:
/// nothing is touched for as long, also not by a manager that starts anew. Once it is gone, what was asked for is done.
async fn untouched(stage: &Stage, kubernetes: &Kubernetes) -> Result<()> {
    let resource = ApiResource::erase::<EtcdCluster>(&());
    let client = stage.cluster().client().await?;
    let api: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &resource);
    let step = json!({"kind": "Levitate", "attempt": 3, "targets": [{"member": "orders-copy-0"}]});
    let params = PatchParams::default();
    settled(&api, 1).await?;
    for (place, newer, known, size) in [
        (
            "/status/plan/step",
            json!({"plan": {"step": step}}),
            json!({"plan": {"step": null}}),
            2,
        ),
        (
            "/status/restore/phase",
            json!({"restore": {"phase": "Levitate"}}),
            json!({"restore": {"phase": "Finished"}}),
            1,
        ),
    ] {
        let unknown = json!({ "status": newer });
        api.patch_status(COPY, &params, &Patch::Merge(&unknown)).await?;
        // Only now everything that was begun before is over.
        told(&api, "Levitate").await?;
        let before = parts_of_copy(kubernetes).await?;
        ensure!(before.contains("StatefulSet"), "{before}");
        withheld(&api, 3, "Levitate").await?;
        kubernetes.restart().await?;
        kubernetes.ready().await?;
        withheld(&api, size, "Levitate").await?;
        let now = api.get(COPY).await?.data;
        ensure!(now.pointer(place) == unknown.pointer(place), "{place}: {now}");
        let after = parts_of_copy(kubernetes).await?;
        ensure!(before == after, "{place}: {before} became {after}");
        let cleared = json!({ "status": known });
        api.patch_status(COPY, &params, &Patch::Merge(&cleared)).await?;
        settled(&api, size).await?;
    }
    Ok(())
}

/// A newer operator defines its fields and writes them, and the older one comes after it. A watch that was opened before
/// would show objects by the definitions of then, without what these did not know.
async fn written_into(stage: &Stage, kubernetes: &Kubernetes, kinds: &[Newer]) -> Result<()> {
    for kind in kinds {
        kind.define(stage).await?;
    }
    kubernetes.restart().await?;
    kubernetes.ready().await?;
    for kind in kinds {
        kind.write(stage).await?;
    }
    Ok(())
}

/// The story.
pub async fn played(stage: Arc<Stage>) -> Result<()> {
    let (kubernetes, _) = with_previous(&stage).await?;
    kubernetes.sample_is_backed_up().await?;
    restored_from(&stage, "a-backup-to-come").await?;
    let kinds = newer();
    written_into(&stage, &kubernetes, &kinds).await?;
    goes_on(&stage, &kubernetes).await?;
    keep_all(&stage, &kinds).await?;

    let restored = newer_of_restored();
    written_into(&stage, &kubernetes, &restored).await?;
    untouched(&stage, &kubernetes).await?;
    // The template is all that may still be edited, and makes no cluster any more; its status is written anew for that.
    let [_, restore] = &restored;
    let restores = restore.api(stage.cluster().client().await?);
    let edit = json!({"spec": {"clusterTemplate": {"spec": {"size": 3}}}});
    restores
        .patch(COPY, &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    until(
        "the manager has looked at the restore once more",
        SOON,
        || async { Ok(is_seen(&restores.get(COPY).await?).then_some(())) },
    )
    .await?;
    keep_all(&stage, &restored).await?;
    keep_all(&stage, &kinds).await
}
