//! Operators come and go, and members with their data stay: an older release is upgraded, rolled back and taken away,
//! and an older manager meets definitions of a newer one.

pub mod adoption;
mod skew;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use etcd_operator_api::EtcdCluster;
use etcd_operator_e2e::book::Desk;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::install::{Kubernetes, NAMESPACE};
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};
use etcd_operator_e2e::{images, operator};
use kube::CustomResourceExt as _;

use crate::install::prepared;

const SOON: Duration = Duration::from_mins(2);
/// The chart of before: a lower version, and no `spec.recovery` in its definition of EtcdCluster.
const PREVIOUS: &str = "cp -rL charts/etcd-operator previous\n\
                        sed -i 's/^version: .*/version: 0.0.1/; s/^appVersion: .*/appVersion: 0.0.1/' previous/Chart.yaml\n\
                        sed -Ei '/^ {14}recovery:$/,/^ {14}repository:$/{/repository:$/!d}' \
                        previous/templates/crds/etcdclusters.etcd.database.coreos.com.yaml\n";
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
        |stage| Box::pin(skew::played(stage)),
    )
    .full(),
    // The release of before is compiled first.
    Scenario::gate(
        "install",
        "pods_and_jobs_of_0_1_0_are_adopted_and_none_is_restarted",
        Bed::Own(1),
        |stage| Box::pin(adoption::adopted(stage)),
    )
    .full()
    .long(),
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

/// What is found at this path of an object, as text.
async fn found(kubernetes: &Kubernetes, object: &[&str], path: &str) -> Result<String> {
    let output = format!("--output=jsonpath={{{path}}}");
    let get = ["--namespace", NAMESPACE, "get", &*output];
    kubernetes.kubectl(&[&get[..], object].concat()).await
}

/// Whether the definition that is there is the one of now, and not the one of before.
async fn is_defined_anew(kubernetes: &Kubernetes) -> Result<bool> {
    let definition = ["crd", EtcdCluster::crd_name()];
    let recovery = ".spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.recovery.type";
    Ok(!found(kubernetes, &definition, recovery).await?.is_empty())
}

/// A user asks for what only the definition of now has.
async fn ask_for_recovery(kubernetes: &Kubernetes) -> Result<()> {
    let ask = [
        "--namespace",
        NAMESPACE,
        "patch",
        "etcd",
        "orders",
        "--type=merge",
        "--patch",
        r#"{"spec":{"recovery":{"replaceAfter":"1h"}}}"#,
    ];
    // An API server that has not read the definition yet drops it without a word.
    until("the definition of now is served", SOON, || async {
        kubernetes.kubectl(&ask).await?;
        let asked = found(kubernetes, &["etcd", "orders"], ".spec.recovery.replaceAfter").await?;
        Ok((asked == "1h").then_some(()))
    })
    .await
}

async fn upgraded(stage: Arc<Stage>) -> Result<()> {
    let (kubernetes, desk) = with_previous(&stage).await?;
    kubernetes.sample_is_backed_up().await?;
    desk.runs(&format!("{WAY}etcdctl put kept yes\n")).await?;
    let before = members(&kubernetes).await?;
    ensure!(before.lines().count() == 6, "{before}");
    ensure!(
        !is_defined_anew(&kubernetes).await?,
        "the definition of before is the one of now"
    );
    for (what, step, is_new) in [
        (
            "upgrade",
            format!("helm upgrade etcd-operator charts/etcd-operator {NEW}\n"),
            true,
        ),
        // It replays the definition of before, and what only the other one had goes from the objects.
        (
            "rollback",
            "helm rollback etcd-operator 1 --namespace etcd\n".to_owned(),
            false,
        ),
        (
            "forward",
            format!("helm upgrade etcd-operator charts/etcd-operator {NEW}\n"),
            true,
        ),
    ] {
        desk.runs(&step).await?;
        kubernetes.ready().await?;
        ensure!(is_defined_anew(&kubernetes).await? == is_new, "after the {what}");
        if is_new {
            ask_for_recovery(&kubernetes).await?;
        } else {
            until("the definition of before is served", SOON, || async {
                let asked = found(&kubernetes, &["etcd", "orders"], ".spec.recovery").await?;
                Ok(asked.is_empty().then_some(()))
            })
            .await?;
        }
        works(&kubernetes, what).await?;
        kubernetes.sample_serves().await?;
        let after = members(&kubernetes).await?;
        ensure!(before == after, "{what}: {before} became {after}");
        let said = desk.runs(&format!("{WAY}etcdctl get kept\n")).await?;
        ensure!(said.contains("kept\nyes"), "{what}: {said}");
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
