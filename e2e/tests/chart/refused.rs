//! Values that cannot be meant: each is refused before anything is made, by its name.

use anyhow::Result;

use crate::helm::{HELMS, template};

/// What is set, and what the complaint must name.
const REFUSED: &[(&str, &[&str])] = &[
    ("scope.namespace=a", &["scope", "namespace"]),
    ("replica=2", &["replica"]),
    ("replicas=two", &["replicas"]),
    ("replicas=-1", &["replicas"]),
    (
        "image.repository=registry.example.com/X y",
        &["image", "repository"],
    ),
    ("image.repository=/a", &["image", "repository"]),
    ("serviceAccount.name=Bad Name", &["serviceAccount", "name"]),
    (
        "labels.app\\.kubernetes\\.io/name=mine",
        &["labels", "app.kubernetes.io~1name"],
    ),
    (
        "podLabels.app\\.kubernetes\\.io/instance=mine",
        &["podLabels", "app.kubernetes.io~1instance"],
    ),
    (
        "etcdBackup.name=a123456789a123456789a123456789a123456789a123456789abc",
        &["etcdBackup", "name"],
    ),
    ("image.tag=a:b", &["image", "tag"]),
    ("image.repository=etcd-operator:1", &["image", "repository"]),
    ("image.digest=sha256:12", &["image", "digest"]),
    ("image.pullPolicy=Sometimes", &["image", "pullPolicy"]),
    ("log.level=loud", &["log", "level"]),
    ("antiAffinity=hard", &["antiAffinity"]),
    ("concurrency=0", &["concurrency"]),
    ("backups.maxJobs=0", &["backups", "maxJobs"]),
    ("rollouts.maxConcurrent=0", &["rollouts", "maxConcurrent"]),
    ("scope.namespaces={A_B}", &["scope", "namespaces"]),
    (
        "scope.namespaces={a},scope.clusterWide=true",
        &["scope.namespaces", "scope.clusterWide"],
    ),
    ("env[0].name=POD_NAME,env[0].value=x", &["env", "POD_NAME"]),
    ("env[0].nam=x", &["env", "nam"]),
    ("extraEnv[0].name=POD_NAME", &["extraEnv", "POD_NAME"]),
    (
        "env[0].name=ETCD_OPERATOR_LEADER_ELECT",
        &["env", "ETCD_OPERATOR_LEADER_ELECT", "extraArgs"],
    ),
    (
        "env[0].name=SPOT,extraEnv[0].name=SPOT",
        &["env and extraEnv", "SPOT"],
    ),
    ("replicas=2,replicaCount=3", &["replicas is 2", "replicaCount 3"]),
    (
        "etcdOperator.replicaCount=2,replicaCount=3",
        &["etcdOperator.replicaCount is 2", "replicaCount 3"],
    ),
    (
        "labels.team=storage,commonLabels.team=backup",
        &["labels and commonLabels", "team", "storage", "backup"],
    ),
    (
        "commonLabels.app\\.kubernetes\\.io/name=mine",
        &["commonLabels", "app.kubernetes.io~1name"],
    ),
    (
        "extraArgs={--log-level=debug}",
        &["extraArgs", "--log-level", "log.level"],
    ),
    (
        "extraArgs={--etcd-repository=mirror.example.com/etcd}",
        &["extraArgs", "--etcd-repository", "etcdImage.repository"],
    ),
    (
        "etcdImage.repository=mirror.example.com",
        &["etcdImage", "repository"],
    ),
    (
        "etcdImage.repository=mirror.example.com/etcd:v3.6.16",
        &["etcdImage", "repository"],
    ),
    ("extraArgs={--pod-name=x}", &["extraArgs", "--pod-name"]),
    ("extraArgs={leader-elect}", &["extraArgs"]),
    (
        "extraArgs={--leader-elect=false}",
        &["extraArgs", "--leader-elect=false", "two managers"],
    ),
    (
        "podDisruptionBudget.maxUnavailable=0%",
        &["podDisruptionBudget", "maxUnavailable"],
    ),
    ("extraVolumeMounts[0].name=x", &["extraVolumeMounts", "mountPath"]),
    ("namespaceOverride=Bad", &["namespaceOverride"]),
    ("revisionHistoryLimit=-1", &["revisionHistoryLimit"]),
    ("updateStrategy.type=Sometimes", &["updateStrategy", "type"]),
    ("networkPolicy.ingress=true", &["networkPolicy", "ingress"]),
    ("rbac.aggregated=true", &["rbac", "aggregated"]),
    (
        "livenessProbe.periodSeconds=0",
        &["livenessProbe", "periodSeconds"],
    ),
    (
        "topologySpreadConstraints[0].maxSkew=1",
        &["topologySpreadConstraints", "topologyKey"],
    ),
    ("resources.requests.cpu=lots", &["resources", "requests", "cpu"]),
    (
        "resources.limits.memory=64 Mi",
        &["resources", "limits", "memory"],
    ),
    (
        "etcdOperator.resources.cpu=-1",
        &["etcdOperator", "resources", "cpu"],
    ),
    (
        "etcdCluster.storage.size=8GB",
        &["etcdCluster", "storage", "size"],
    ),
    ("podMonitor.interval=often", &["podMonitor", "interval"]),
    ("etcdCluster.size=10", &["etcdCluster", "size"]),
    ("etcdCluster.name=Etcd", &["etcdCluster", "name"]),
    ("etcdCluster.version=latest", &["etcdCluster", "version"]),
    (
        "etcdCluster.create=true,crds.install=false",
        &["etcdCluster.create", "crds.install"],
    ),
    (
        "etcdBackup.create=true",
        &["etcdBackup.create", "etcdCluster.create"],
    ),
    (
        "etcdCluster.create=true,etcdBackup.create=true,etcdBackup.spec.deletionPolicy=Delete",
        &["etcdBackup.spec.deletionPolicy"],
    ),
    (
        "customResources.createRestoreCRD=true",
        &["customResources", "createRestoreCRD"],
    ),
    (
        "deployments.backupOperator=false",
        &["deployments", "backupOperator"],
    ),
    (
        "etcdOperator.image.repository=quay.io/coreos/etcd-operator",
        &["etcdOperator", "image", "repository"],
    ),
    (
        "etcdOperator.readinessProbe.enable=true",
        &["etcdOperator", "readinessProbe", "enable"],
    ),
    (
        "etcdOperator.livenessProbe.successThreshold=2",
        &["etcdOperator", "livenessProbe", "successThreshold"],
    ),
    (
        "etcdOperator.securityContext.runasuser=1000",
        &["etcdOperator", "securityContext", "runasuser"],
    ),
    ("rbac.apiVersion=v1beta1", &["rbac", "apiVersion"]),
    (
        "global.imagePullSecrets=registry",
        &["global", "imagePullSecrets"],
    ),
    ("etcdCluster.image.tag=latest", &["etcdCluster", "image", "tag"]),
    (
        "etcdCluster.version=3.5.21,etcdCluster.image.tag=v3.5.9",
        &["etcdCluster.version", "3.5.21", "etcdCluster.image.tag", "v3.5.9"],
    ),
    (
        "etcdCluster.storage.sise=8Gi",
        &["etcdCluster", "storage", "sise"],
    ),
    (
        "etcdCluster.storage.medium=Disk",
        &["etcdCluster", "storage", "medium"],
    ),
    (
        "etcdCluster.pod.antiaffinity=true",
        &["etcdCluster", "pod", "antiaffinity"],
    ),
    (
        "etcdCluster.pod.tolerations[0].keys=dedicated",
        &["etcdCluster", "pod", "tolerations", "keys"],
    ),
    (
        "etcdCluster.pod.securityContext.runAsNonroot=true",
        &["etcdCluster", "pod", "securityContext", "runAsNonroot"],
    ),
    ("etcdCluster.spec.sise=3", &["etcdCluster", "spec", "sise"]),
    (
        "etcdBackup.spec.storagetype=S3",
        &["etcdBackup", "spec", "storagetype"],
    ),
    (
        "etcdBackup.spec.storageType=FTP",
        &["etcdBackup", "spec", "storageType"],
    ),
    (
        "etcdCluster.create=true,etcdBackup.create=true",
        &["etcdBackup.spec.storageType"],
    ),
    (
        "customResources.createEtcdClusterCRD=true,customResources.createBackupCRD=true",
        &["etcdBackup.spec.storageType"],
    ),
    ("tolerations[0].effect=NoRun", &["tolerations", "effect"]),
    (
        "podSecurityContext.runAsNonroot=true",
        &["podSecurityContext", "runAsNonroot"],
    ),
    (
        "securityContext.readOnlyRootFileSystem=true",
        &["securityContext", "readOnlyRootFileSystem"],
    ),
];

#[tokio::test]
async fn a_value_that_cannot_be_meant_is_refused_by_its_name() -> Result<()> {
    for component in HELMS {
        for (set, named) in REFUSED {
            let said = template(component, &["--set", set]).await?;
            let Err(complaint) = said else {
                panic!("{component:?} takes {set}");
            };
            for name in *named {
                assert!(complaint.contains(name), "{component:?} {set}: {complaint}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_install_without_the_repository_of_the_image_is_refused_with_an_example() -> Result<()> {
    for component in HELMS {
        let said = template(component, &["--set", "image.repository="]).await?;
        let complaint = said.expect_err("there is no image");
        let wanted = "image.repository is not set; set it to the repository of the operator's image, \
                      for example: --set image.repository=registry.example.com/etcd-operator";
        assert!(complaint.contains(wanted), "{component:?}: {complaint}");
    }
    Ok(())
}

#[tokio::test]
async fn the_condition_of_a_dependency_is_accepted_and_changes_nothing() -> Result<()> {
    for component in HELMS {
        let plain = template(component, &[]).await?;
        assert!(plain.is_ok(), "{component:?}: {plain:?}");
        assert_eq!(template(component, &["--set", "enabled=true"]).await?, plain);
    }
    Ok(())
}
