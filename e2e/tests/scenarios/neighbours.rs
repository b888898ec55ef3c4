//! Two releases that would both look after one namespace: the second one finds out, says so, and touches nothing.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::book::Desk;
use etcd_operator_e2e::images;
use etcd_operator_e2e::install::NAMESPACE;
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};

use crate::install::sampled;

pub const SCENARIOS: &[Scenario] = &[
    // What installing shows, with a second release; who gives way is also shown in unit tests.
    Scenario::gate(
        "install",
        "a_second_release_over_a_namespace_stays_out_of_its_way_and_says_so",
        Bed::Own(1),
        |stage| Box::pin(second(stage)),
    )
    .full(),
];

/// What is said of the pods, and of who looks after the cluster.
const LOOK: &str = "kubectl get pods --selector etcd_cluster=orders --output \
                    jsonpath='{.items[*].metadata.uid}{.items[*].status.containerStatuses[*].restartCount}'\n\
                    kubectl get etcd orders --output jsonpath='{.status.controlledBy}'\n";

async fn second(stage: Arc<Stage>) -> Result<()> {
    sampled(&stage).await?;
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE).await?;
    let before = desk.runs(LOOK).await?;
    ensure!(before.contains("etcd/etcd-operator"), "{before}");
    let (repository, tag) = images::OPERATOR.split_once(':').unwrap_or((images::OPERATOR, ""));
    let install = format!(
        "helm install second charts/etcd-operator --namespace other --create-namespace \
         --set image.repository={repository} --set image.tag={tag} --set 'scope.namespaces={{{NAMESPACE}}}'\n\
         kubectl --namespace other rollout status deployment/second-etcd-operator --timeout=3m\n\
         until kubectl get events --field-selector reason=ControlledElsewhere --output name | grep --quiet .; do sleep 1; done\n\
         kubectl get events --field-selector reason=ControlledElsewhere \
           --output jsonpath='{{range .items[*]}}{{.involvedObject.name}}: {{.message}}{{\"\\n\"}}{{end}}'\n"
    );
    let said = desk.runs(&install).await?;
    ensure!(
        said.contains("orders: ") && said.contains("etcd/etcd-operator"),
        "{said}"
    );
    let after = desk.runs(LOOK).await?;
    ensure!(before == after, "{before} became {after}");
    // The first one goes on, whoever else looks on.
    let scaled = desk
        .runs(
            "kubectl scale etcd orders --replicas=1\n\
             kubectl wait --for=jsonpath='{.status.readyMembers}'=1/1 --timeout=4m etcd/orders\n\
             kubectl get etcd orders --output jsonpath='{.status.controlledBy}'\n",
        )
        .await?;
    ensure!(scaled.ends_with("etcd/etcd-operator"), "{scaled}");
    Ok(())
}
