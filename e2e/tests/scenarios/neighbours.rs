//! Who looks after which namespace: a release that is told of several, or of all with a mark on each cluster; and two
//! that would both look after one, of which the second finds out, says so, and touches nothing; and two managers of one
//! release, of which one works.

use std::sync::Arc;

use anyhow::{Result, ensure};
use etcd_operator_e2e::book::{Desk, Page};
use etcd_operator_e2e::images;
use etcd_operator_e2e::install::{NAMESPACE, SAMPLE_VERSION};
use etcd_operator_e2e::scenario::{Bed, Scenario, Stage};

use crate::install::{prepared, sampled};

pub const SCENARIOS: &[Scenario] = &[
    // What installing shows, with a second release; who gives way is also shown in unit tests.
    Scenario::gate(
        "install",
        "a_second_release_over_a_namespace_stays_out_of_its_way_and_says_so",
        Bed::Own(1),
        |stage| Box::pin(second(stage)),
    )
    .full(),
    // Which namespaces are watched is also shown by rendered arguments and without nodes.
    Scenario::gate(
        "install",
        "only_namespaces_of_the_list_are_served_and_in_all_of_them_only_marked_clusters",
        Bed::Own(1),
        |stage| Box::pin(scopes(stage)),
    )
    .full(),
    // Who leads is also shown with processes alone; this shows what the chart makes of it.
    Scenario::gate(
        "install",
        "two_managers_lie_on_two_nodes_and_the_other_goes_on_when_the_leading_one_dies",
        Bed::Own(3),
        |stage| Box::pin(taken_over(stage)),
    )
    .full(),
];

/// What is said of the pods, and of who looks after the cluster.
const LOOK: &str = "kubectl get pods --selector etcd_cluster=orders --output \
                    jsonpath='{.items[*].metadata.uid}{.items[*].status.containerStatuses[*].restartCount}'\n\
                    kubectl get etcd orders --output jsonpath='{.status.controlledBy}'\n";

/// What is said of the pods alone.
const PODS: &str = "kubectl get pods --selector etcd_cluster=orders --output \
                    jsonpath='{.items[*].metadata.uid}{.items[*].status.containerStatuses[*].restartCount}'\n";

async fn second(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = sampled(&stage).await?;
    kubernetes.confine("other").await?;
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE).await?;
    let before = desk.runs(LOOK).await?;
    ensure!(before.contains("etcd/etcd-operator"), "{before}");
    let (repository, tag) = images::OPERATOR.split_once(':').unwrap_or((images::OPERATOR, ""));
    let install = format!(
        "helm install second charts/etcd-operator --namespace other \
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
    desk.runs(&figure(1)).await?;
    // The first one goes on, whoever else looks on.
    let scaled = desk
        .runs(
            "kubectl scale etcd orders --replicas=1\n\
             kubectl wait --for=jsonpath='{.status.readyMembers}'=1/1 --timeout=4m etcd/orders\n\
             until [ $(kubectl get pods --selector etcd_cluster=orders --output name | wc -l) = 1 ]; do sleep 1; done\n\
             kubectl get etcd orders --output jsonpath='{.status.controlledBy}'\n",
        )
        .await?;
    ensure!(scaled.ends_with("etcd/etcd-operator"), "{scaled}");
    // Once it is gone for good, whoever looked on takes over as the page tells, and no pod is touched for it.
    let before = desk.runs(PODS).await?;
    let page = Page::read("docs/how-to/several-installations.md")?;
    desk.runs("helm uninstall etcd-operator --wait\n").await?;
    desk.types(&page.shell().collect::<Vec<_>>()).await?;
    desk.runs(
        "kubectl wait --for=jsonpath='{.status.controlledBy}'=other/second-etcd-operator --timeout=2m etcd/orders\n\
         kubectl wait --for=condition=Available --timeout=2m etcd/orders\n",
    )
    .await?;
    desk.runs(&figure(0)).await?;
    let after = desk.runs(PODS).await?;
    ensure!(before == after, "{before} became {after}");
    desk.runs(
        "kubectl scale etcd orders --replicas=3\n\
         kubectl wait --for=jsonpath='{.status.readyMembers}'=3/3 --timeout=4m etcd/orders\n",
    )
    .await?;
    Ok(())
}

/// Waits until the second installation counts so many clusters as another one's.
fn figure(count: u8) -> String {
    format!(
        "pod=$(kubectl --namespace other get pods --output jsonpath='{{.items[0].metadata.name}}')\n\
         page=/api/v1/namespaces/other/pods/$pod:8080/proxy/metrics\n\
         until [ $(kubectl get --raw $page | grep --count '^etcd_operator_cluster_controlled_elsewhere{{.*}} 1$') = {count} ]; \
         do sleep 1; done\n"
    )
}

async fn taken_over(stage: Arc<Stage>) -> Result<()> {
    prepared(&stage).await?;
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE).await?;
    let (repository, tag) = images::OPERATOR.split_once(':').unwrap_or((images::OPERATOR, ""));
    let managers = "kubectl get pods --selector app.kubernetes.io/name=etcd-operator";
    let said = desk
        .runs(&format!(
            "helm install etcd-operator charts/etcd-operator --set image.repository={repository} --set image.tag={tag} \
               --set replicas=2 --set antiAffinity=required\n\
             kubectl rollout status deployment/etcd-operator --timeout=3m\n\
             kubectl wait --for=jsonpath='{{.status.disruptionsAllowed}}'=1 --timeout=1m poddisruptionbudget/etcd-operator\n\
             kubectl apply --filename config/samples/etcdcluster.yaml\n\
             kubectl wait --for=condition=Available --timeout=4m etcd/orders\n\
             {managers} --output jsonpath='{{range .items[*]}}{{.spec.nodeName}}{{\"\\n\"}}{{end}}' | sort --unique | wc -l\n"
        ))
        .await?;
    ensure!(said.trim_end().ends_with("\n2"), "{said}");
    // It says nothing to anybody before it goes, and so its lease must run out.
    desk.runs(&format!(
        "holder=$(kubectl get lease etcd-operator --output jsonpath='{{.spec.holderIdentity}}')\n\
         for pod in $({managers} --output name); do\n\
           case $holder in ${{pod#pod/}}*) kubectl delete $pod --force --grace-period=0;; esac\n\
         done\n\
         {managers} --output name\n\
         kubectl scale etcd orders --replicas=1\n\
         kubectl wait --for=jsonpath='{{.status.readyMembers}}'=1/1 --timeout=4m etcd/orders\n\
         [ $(kubectl get lease etcd-operator --output jsonpath='{{.spec.holderIdentity}}') != $holder ]\n\
         kubectl rollout status deployment/etcd-operator --timeout=3m\n"
    ))
    .await?;
    Ok(())
}

/// A cluster of one member in a namespace.
fn cluster(namespace: &str) -> String {
    format!(
        "echo '{{\"apiVersion\": \"etcd.database.coreos.com/v1beta2\", \"kind\": \"EtcdCluster\", \
         \"metadata\": {{\"name\": \"c\"}}, \"spec\": {{\"size\": 1, \"version\": \"{}\"}}}}' \
         | kubectl --namespace {namespace} apply --filename=-\n",
        SAMPLE_VERSION.number()
    )
}

/// Waits until the cluster of a namespace serves.
fn serves(namespace: &str) -> String {
    format!("kubectl --namespace {namespace} wait --for=condition=Available --timeout=3m etcdcluster/c\n")
}

/// All that is said of, and made for, the cluster of a namespace.
fn made(namespace: &str) -> String {
    format!(
        "kubectl --namespace {namespace} get etcdcluster c --output=jsonpath='{{.status}}'\n\
         kubectl --namespace {namespace} get statefulsets,pods,services,pvc --output=name\n"
    )
}

async fn scopes(stage: Arc<Stage>) -> Result<()> {
    let kubernetes = prepared(&stage).await?;
    let desk = Desk::new(stage.cluster(), "desk", NAMESPACE).await?;
    // Roles are made in namespaces that are there.
    for namespace in ["one", "two", "three", "four"] {
        kubernetes.confine(namespace).await?;
    }
    kubernetes
        .install_in(images::OPERATOR, "scope.namespaces={one,two}")
        .await?;
    kubernetes.ready().await?;
    // What is not served is asked for first, so that there was time to serve it.
    for namespace in ["three", "one", "two"] {
        desk.runs(&cluster(namespace)).await?;
    }
    for namespace in ["one", "two"] {
        desk.runs(&serves(namespace)).await?;
    }
    let said = desk.runs(&made("three")).await?;
    ensure!(said.trim().is_empty(), "it is not on the list: {said}");

    // The same release looks after all namespaces then, and there after what is marked.
    kubernetes
        .install_in(images::OPERATOR, "scope.clusterWide=true")
        .await?;
    kubernetes.ready().await?;
    let before = desk.runs(&pods("one")).await?;
    desk.runs(&cluster("four")).await?;
    desk.runs(
        "kubectl --namespace three annotate etcdcluster c etcd.database.coreos.com/scope=clusterwide\n",
    )
    .await?;
    desk.runs(&serves("three")).await?;
    let said = desk.runs(&made("four")).await?;
    ensure!(
        said.contains(r#""reason":"NotServed""#) && !said.contains("statefulset") && !said.contains("pod/"),
        "it is not marked: {said}"
    );
    let after = desk.runs(&pods("one")).await?;
    ensure!(
        !before.trim().is_empty() && before == after,
        "{before} became {after}"
    );
    Ok(())
}

/// Which pods the cluster of a namespace has.
fn pods(namespace: &str) -> String {
    format!(
        "kubectl --namespace {namespace} get pods --selector etcd_cluster=c \
         --output jsonpath='{{.items[*].metadata.uid}}'\n"
    )
}
