//! The operator put into a Kubernetes the way its users do it: helm, the chart, the samples. It may be a bed or any
//! other that a kubeconfig leads to; nothing here knows how it is made.

use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result};
use kube::api::ObjectMeta;
use tokio::process::Command;

use crate::book::repository;
use crate::command;
use crate::components::{self, Component, EtcdVersion};
use crate::unprivileged::confined;

/// The namespace of the release and of the samples.
pub const NAMESPACE: &str = "etcd";
/// The name of the release.
pub const RELEASE: &str = "etcd-operator";
/// What is applied after the install: file, resource.
const SAMPLES: [(&str, &str); 2] = [
    ("etcdcluster.yaml", "etcdcluster/orders"),
    ("etcdbackup-volume.yaml", "etcdbackup/orders-nightly"),
];
/// What people may try afterwards, each as it is typed.
pub const TO_TRY: [&str; 6] = [
    "kubectl --namespace etcd get etcd",
    "kubectl --namespace etcd describe etcd orders",
    "kubectl --namespace etcd get etcdbackups --output wide",
    "kubectl --namespace etcd annotate --overwrite etcdbackup orders-nightly etcd.database.coreos.com/backup-now=\"$(date)\"",
    "kubectl explain etcdcluster.spec.storage",
    "kubectl --namespace etcd logs deployment/etcd-operator",
];

/// The etcd that the sample cluster runs.
pub const SAMPLE_VERSION: EtcdVersion = EtcdVersion::V3_6_16;

/// The values of a release that serves the clusters of all namespaces.
const EVERYWHERE: [&str; 2] = ["--set", "scope.clusterWide=true,scope.requireAnnotation=false"];

/// A way to a Kubernetes.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    kubectl: PathBuf,
    helm: PathBuf,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
}

impl Kubernetes {
    /// The one a kubeconfig leads to.
    pub async fn at(kubeconfig: &Path) -> Result<Self> {
        Self::new(Some(kubeconfig.to_owned()), None).await
    }

    /// A context of the user's own kubeconfig.
    pub async fn context(name: &str) -> Result<Self> {
        Self::new(None, Some(name.to_owned())).await
    }

    /// The same by another helm.
    pub async fn with_helm(self, helm: Component) -> Result<Self> {
        Ok(Self {
            helm: components::find(helm).await?,
            ..self
        })
    }

    async fn new(kubeconfig: Option<PathBuf>, context: Option<String>) -> Result<Self> {
        Ok(Self {
            kubectl: components::find(Component::Kubectl).await?,
            helm: components::find(Component::Helm).await?,
            kubeconfig,
            context,
        })
    }

    /// Runs kubectl; anything but success is an error.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.run(&self.kubectl, "--context", arguments, "").await
    }

    async fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.run(&self.helm, "--kube-context", arguments, "").await
    }

    /// Runs helm; its exit status is for the caller to judge.
    pub async fn helm_output(&self, arguments: &[&str]) -> Result<Output> {
        command::output(self.command(&self.helm, "--kube-context", arguments), "").await
    }

    /// Makes a namespace that takes only pods without rights on their node, or lets one that is there take no others.
    pub async fn confine(&self, namespace: &str) -> Result<()> {
        let namespace = confined(ObjectMeta {
            name: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        });
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            // Whoever applies the same namespace without the label under kubectl's own name would take it away.
            "--field-manager=bed",
            "--filename=-",
        ];
        let object = serde_json::to_string(&namespace)?;
        self.run(&self.kubectl, "--context", &apply, &object).await?;
        Ok(())
    }

    async fn run(
        &self,
        program: &Path,
        context_flag: &str,
        arguments: &[&str],
        input: &str,
    ) -> Result<String> {
        command::succeed(self.command(program, context_flag, arguments), input).await
    }

    /// A command of kubectl or helm that reaches this Kubernetes and no other.
    fn command(&self, program: &Path, context_flag: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        if let Some(context) = &self.context {
            command.args([context_flag, context]);
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            // They would lead helm elsewhere, past the kubeconfig.
            for (name, _) in std::env::vars_os() {
                if name.as_encoded_bytes().starts_with(b"HELM_") {
                    command.env_remove(name);
                }
            }
            // The bed is on this host, whatever way leads out of it.
            command
                .env("KUBECONFIG", kubeconfig)
                .env("NO_PROXY", "*")
                .env("KUBECACHEDIR", cache_beside(kubeconfig));
        }
        command.args(arguments);
        command
    }

    /// Installs the chart, or upgrades what is there, with an image the nodes have already.
    pub async fn install(&self, image: &str) -> Result<()> {
        self.install_with(image, &[]).await
    }

    /// The same for all namespaces, whatever clusters are annotated with.
    pub async fn install_everywhere(&self, image: &str) -> Result<()> {
        self.install_with(image, &EVERYWHERE).await
    }

    /// Installs a chart of another release for all namespaces, with its image.
    pub async fn install_chart_everywhere(&self, chart: &Path, image: &str) -> Result<()> {
        let chart = chart.to_str().context("the chart's path is not UTF-8")?;
        self.install_chart(chart, image, &EVERYWHERE).await
    }

    /// Upgrades the release to the present chart and another image, and keeps all other values, as the documentation says.
    pub async fn upgrade(&self, image: &str) -> Result<()> {
        let [repository, tag] = image_values(image)?;
        let chart = chart()?;
        let upgrade = ["upgrade", RELEASE, &chart, "--namespace", NAMESPACE];
        let values = [
            "--reset-then-reuse-values",
            "--set-string",
            &repository,
            "--set-string",
            &tag,
        ];
        self.helm(&[&upgrade[..], &values].concat()).await?;
        Ok(())
    }

    /// The same for these namespaces: what a scope is set to.
    pub async fn install_in(&self, image: &str, scope: &str) -> Result<()> {
        self.install_with(image, &["--set", scope]).await
    }

    /// The same with the chart's own example of a cluster, and of a backup into the claim `backups`.
    pub async fn install_example(&self, image: &str) -> Result<()> {
        // The kinds come with the first, and objects of theirs with the second.
        self.install(image).await?;
        self.upgrade_with_example(image).await
    }

    /// Upgrades a release to one that has the example, whether it had it before or not.
    pub async fn upgrade_with_example(&self, image: &str) -> Result<()> {
        let example = "etcdCluster.create=true,etcdBackup.create=true,\
                       etcdBackup.spec.storageType=Local,etcdBackup.spec.local.persistentVolumeClaim=backups";
        self.install_with(image, &["--set", example]).await
    }

    /// Waits until the example serves, and lets helm write a key into it and read it back; gives what was read.
    pub async fn test_example(&self) -> Result<String> {
        let wait = [
            "wait",
            "--for=condition=Available",
            "--timeout=170s",
            "etcdcluster/etcd-cluster",
        ];
        self.kubectl(&[&["--namespace", NAMESPACE], &wait[..]].concat())
            .await?;
        self.helm(&[
            "test",
            RELEASE,
            "--namespace",
            NAMESPACE,
            "--timeout",
            "170s",
            "--logs",
        ])
        .await
    }

    /// The commands that helm has told people to type next.
    pub async fn told_next(&self) -> Result<Vec<String>> {
        let notes = self
            .helm(&["get", "notes", RELEASE, "--namespace", NAMESPACE])
            .await?;
        let typed = notes.lines().filter_map(|line| line.strip_prefix("  "));
        Ok(typed.map(|line| line.trim().to_owned()).collect())
    }

    /// The monitor that the chart makes for a Prometheus that shall find the manager, as YAML.
    pub async fn pod_monitor(&self) -> Result<String> {
        self.helm(&[
            "template",
            RELEASE,
            &chart()?,
            "--namespace",
            NAMESPACE,
            // Nobody is asked for a version; the chart takes every one from this on.
            "--kube-version=1.30.0",
            "--set=podMonitor.create=true",
            "--set=image.repository=etcd-operator",
            "--show-only=templates/podmonitor.yaml",
        ])
        .await
    }

    /// Takes the release away.
    pub async fn uninstall(&self) -> Result<()> {
        self.helm(&["uninstall", RELEASE, "--namespace", NAMESPACE])
            .await?;
        Ok(())
    }

    async fn install_with(&self, image: &str, more: &[&str]) -> Result<()> {
        self.install_chart(&chart()?, image, more).await
    }

    async fn install_chart(&self, chart: &str, image: &str, more: &[&str]) -> Result<()> {
        let [repository, tag] = image_values(image)?;
        let upgrade = ["upgrade", "--install", RELEASE, chart, "--namespace", NAMESPACE];
        let values = [
            "--create-namespace",
            "--set-string",
            &repository,
            "--set-string",
            &tag,
        ];
        self.helm(&[&upgrade[..], &values, more].concat()).await?;
        Ok(())
    }

    /// Replaces the operator's pods, for an image that changed under its name.
    pub async fn restart(&self) -> Result<()> {
        let deployment = format!("deployment/{RELEASE}");
        self.kubectl(&["--namespace", NAMESPACE, "rollout", "restart", &deployment])
            .await?;
        Ok(())
    }

    /// Waits until the manager is ready.
    pub async fn ready(&self) -> Result<()> {
        let deployment = format!("deployment/{RELEASE}");
        let status = ["rollout", "status", &deployment, "--timeout=150s"];
        self.kubectl(&[&["--namespace", NAMESPACE], &status[..]].concat())
            .await?;
        Ok(())
    }

    /// Applies the samples and waits until the operator has accepted each.
    pub async fn apply_samples(&self) -> Result<Vec<&'static str>> {
        for (file, _) in SAMPLES {
            let path = repository_file("config/samples").join(file);
            let path = path.to_str().context("the sample's path is not UTF-8")?;
            self.kubectl(&["--namespace", NAMESPACE, "apply", "--filename", path])
                .await?;
        }
        for (_, resource) in SAMPLES {
            let wait = ["wait", "--for=condition=Accepted", "--timeout=100s", resource];
            self.kubectl(&[&["--namespace", NAMESPACE], &wait[..]].concat())
                .await?;
        }
        Ok(SAMPLES.map(|(_, resource)| resource).to_vec())
    }

    /// Waits until the sample cluster serves.
    pub async fn sample_serves(&self) -> Result<()> {
        let wait = [
            "wait",
            "--for=condition=Available",
            "--timeout=170s",
            "etcdcluster/orders",
        ];
        self.kubectl(&[&["--namespace", NAMESPACE], &wait[..]].concat())
            .await?;
        Ok(())
    }

    /// Waits until the sample backup is made.
    pub async fn sample_is_backed_up(&self) -> Result<()> {
        let wait = [
            "wait",
            "--for=jsonpath={.status.succeeded}=true",
            "--timeout=170s",
            "etcdbackup/orders-nightly",
        ];
        self.kubectl(&[&["--namespace", NAMESPACE], &wait[..]].concat())
            .await?;
        Ok(())
    }

    /// Runs something people may try, as they would: by a shell that finds kubectl.
    pub async fn try_out(&self, line: &str) -> Result<String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]);
        let own = self.kubectl.parent().into_iter().map(Path::to_owned);
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(own.chain(std::env::split_paths(&usual)))?;
        shell.env("PATH", path).env("NO_PROXY", "*");
        if let Some(kubeconfig) = &self.kubeconfig {
            shell
                .env("KUBECONFIG", kubeconfig)
                .env("KUBECACHEDIR", cache_beside(kubeconfig));
        }
        command::succeed(shell, "").await
    }
}

/// Where kubectl and helm keep what they have learnt about a bed: with it, since the next one has the same address.
pub fn cache_beside(kubeconfig: &Path) -> PathBuf {
    kubeconfig.with_file_name("kubectl-cache")
}

/// The values of the chart that name this image.
fn image_values(image: &str) -> Result<[String; 2]> {
    let (repository, tag) = image.rsplit_once(':').context("an image without a tag")?;
    Ok([
        format!("image.repository={repository}"),
        format!("image.tag={tag}"),
    ])
}

fn chart() -> Result<String> {
    let path = repository_file("charts/etcd-operator");
    let path = path.to_str().context("the chart's path is not UTF-8")?;
    Ok(path.to_owned())
}

fn repository_file(path: &str) -> PathBuf {
    repository().join(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tutorial_shows_the_commands_that_up_prints() {
        let tutorial = std::fs::read_to_string(repository_file("docs/tutorial.md")).unwrap();
        let (_, part) = tutorial.split_once("\n## Look around\n").unwrap();
        assert!(
            part.contains(&format!("```sh\n{}\n```", TO_TRY.join("\n"))),
            "{part}"
        );
    }
}
