//! Values of the older operator's chart: which of them are taken, what they come to here, and which are refused.

use std::fs;

use anyhow::{Context, Result};
use etcd_operator_e2e::components::Component;
use serde_json::{Value, json};

use crate::helm::{HELMS, Said, repository, template};
use crate::rendered::KNOWN;

/// What has no meaning here: Deployments that there are not, and an image without this operator in it.
const REFUSED: [&str; 4] = [
    "/backupOperator",
    "/restoreOperator",
    "/etcdOperator/image/repository",
    "/etcdOperator/image/tag",
];

/// All values that chart had, as it had them.
fn stock() -> Result<Value> {
    let text = fs::read_to_string(repository("e2e/tests/chart/older/stock.yaml"))?;
    Ok(serde_saphyr::from_str(&text)?)
}

/// The same without what is refused, but for one.
fn stock_with(kept: Option<&str>) -> Result<Value> {
    let mut values = stock()?;
    for path in REFUSED.into_iter().filter(|path| Some(*path) != kept) {
        let (above, name) = path.rsplit_once('/').context("no path")?;
        let above = values.pointer_mut(above).and_then(Value::as_object_mut);
        let taken = above.and_then(|above| above.remove(name));
        taken.with_context(|| format!("{path} is not in that chart"))?;
    }
    Ok(values)
}

async fn render(helm: Component, values: &Value, flags: &[&str]) -> Result<Said> {
    let values = values.as_object().context("values are an object")?.iter();
    let given: Vec<String> = values.map(|(key, value)| format!("{key}={value}")).collect();
    let given = given.iter().flat_map(|one| ["--set-json", one.as_str()]);
    let arguments: Vec<&str> = given.chain(KNOWN.iter().chain(flags).copied()).collect();
    template(helm, &arguments).await
}

#[tokio::test]
async fn what_has_no_meaning_here_is_refused_by_its_name_and_nothing_else_is() -> Result<()> {
    for helm in HELMS {
        let all = render(helm, &stock()?, &[]).await?;
        let all = all.err().context("all of it is taken")?;
        for path in REFUSED {
            let said = render(helm, &stock_with(Some(path))?, &[]).await?;
            let complaint = said.err().with_context(|| format!("{helm:?} takes {path}"))?;
            let (above, name) = path.rsplit_once('/').context("no path")?;
            let named = format!("at '{above}': additional properties '{name}' not allowed");
            assert!(complaint.contains(&named), "{helm:?} {path}: {complaint}");
            assert!(all.contains(&format!("'{name}'")), "{helm:?} {path}: {all}");
        }
        let said = render(helm, &stock_with(None)?, &[]).await?;
        assert!(said.is_ok(), "{helm:?}: {said:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_taken_comes_to_what_it_was_there() -> Result<()> {
    let theirs = stock_with(None)?;
    let amounts = json!({"cpu": "100m", "memory": "128Mi"});
    let ours = json!({
        "image": {"repository": "etcd-operator", "pullPolicy": "Always"},
        "resources": {"requests": amounts, "limits": amounts},
        "etcdCluster": {
            "version": "3.2.25",
            "repository": "quay.io/coreos/etcd",
            "pod": theirs["etcdCluster"]["pod"],
            "spec": {"imagePullPolicy": "Always"},
        },
    });
    for helm in HELMS {
        let mut rendered = Vec::new();
        for (values, wanted) in [
            (&theirs, "customResources.createEtcdClusterCRD=true"),
            (&ours, "etcdCluster.create=true"),
        ] {
            let said = render(helm, values, &["--set", wanted]).await?;
            rendered.push(said.map_err(anyhow::Error::msg)?);
        }
        assert_eq!(rendered[0], rendered[1], "{helm:?}");
        // What its empty values and its missing probes must not take away.
        for kept in [
            "kind: EtcdCluster",
            "livenessProbe:",
            "runAsNonRoot: true",
            "tolerationSeconds: 20",
        ] {
            assert!(rendered[0].contains(kept), "{helm:?}: {kept}");
        }
    }
    Ok(())
}

/// The older chart's names give the same as ours.
#[tokio::test]
async fn names_of_the_older_chart_mean_what_they_meant() -> Result<()> {
    let theirs = "etcdOperator.replicaCount=2,etcdOperator.nodeSelector.a=b,etcdOperator.priorityClassName=high,\
        etcdOperator.podAnnotations.c=d,etcdOperator.commandArgs.cluster-wide=true,\
        etcdOperator.resources.memory=128Mi,etcdOperator.resources.cpu=100m,\
        etcdOperator.name=keeper,etcdOperator.image.pullPolicy=Never,\
        etcdOperator.tolerations[0].key=dedicated,etcdOperator.securityContext.runAsNonRoot=true,\
        etcdOperator.livenessProbe.enabled=true,etcdOperator.livenessProbe.periodSeconds=7,\
        etcdOperator.readinessProbe.enabled=false,etcdOperator.readinessProbe.periodSeconds=9,\
        serviceAccount.etcdOperatorServiceAccount.name=runner,customResources.createEtcdClusterCRD=true,\
        etcdCluster.image.repository=mirror/etcd,etcdCluster.image.tag=v3.5.21,\
        etcdCluster.image.pullPolicy=Never,deployments.backupOperator=true,rbac.apiVersion=v1,\
        global.imagePullSecrets[0].name=registry";
    let ours = "replicas=2,nodeSelector.a=b,priorityClassName=high,podAnnotations.c=d,scope.clusterWide=true,\
        resources.requests.memory=128Mi,resources.limits.memory=128Mi,\
        resources.requests.cpu=100m,resources.limits.cpu=100m,\
        nameOverride=keeper,image.pullPolicy=Never,tolerations[0].key=dedicated,\
        podSecurityContext.runAsUser=null,podSecurityContext.runAsGroup=null,\
        podSecurityContext.seccompProfile=null,livenessProbe.periodSeconds=7,\
        serviceAccount.name=runner,etcdCluster.create=true,etcdCluster.repository=mirror/etcd,\
        etcdCluster.version=3.5.21,etcdCluster.spec.imagePullPolicy=Never,imagePullSecrets[0].name=registry";
    for component in HELMS {
        let theirs = template(component, &[&["--set", theirs], KNOWN].concat())
            .await?
            .map_err(anyhow::Error::msg)?;
        let ours = template(component, &[&["--set", ours], KNOWN].concat())
            .await?
            .map_err(anyhow::Error::msg)?;
        assert_eq!(theirs, ours);
        assert!(theirs.contains("replicas: 2") && theirs.contains("--cluster-wide"));
    }
    Ok(())
}
